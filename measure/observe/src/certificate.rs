//! A server's certificate, as far as an inventory needs it.

use std::fmt::Write as _;

use ciphertoll_wire::printable::is_printable;
use openssl::asn1::Asn1Time;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKeyRef, Public};
use openssl::sha::sha256;
use openssl::x509::{X509, X509NameRef};

use crate::observation::Certificate;

/// Reads the DER of a certificate that was seen at `time_ns`; `None` if it is none.
pub(crate) fn read(der: &[u8], time_ns: u64) -> Option<Certificate> {
    let certificate = X509::from_der(der).ok()?;
    let now = Asn1Time::from_unix(i64::try_from(time_ns / 1_000_000_000).ok()?).ok()?;
    Some(Certificate {
        subject: name(certificate.subject_name()),
        issuer: name(certificate.issuer_name()),
        key: certificate.public_key().ok().map_or_else(|| "unknown".to_owned(), |key| key_label(&key)),
        not_before: Some(certificate.not_before().to_string()),
        not_after: certificate.not_after().to_string(),
        days_left: i64::from(now.diff(certificate.not_after()).ok()?.days),
        serial: certificate
            .serial_number()
            .to_bn()
            .ok()
            .and_then(|serial| Some(serial.to_hex_str().ok()?.to_string())),
        signature: Some(signature(&certificate)),
        sha256: Some(hex(&sha256(der))),
    })
}

/// OpenSSL's name of the algorithm by which the issuer signed: `ecdsa-with-SHA256`.
fn signature(certificate: &X509) -> String {
    let nid = certificate.signature_algorithm().object().nid();
    nid.long_name().unwrap_or("unknown").to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `CN=db.example, O=Example`: printable characters only.
fn name(name: &X509NameRef) -> String {
    let entry = |entry: &openssl::x509::X509NameEntryRef| {
        let value = entry.data().to_string().unwrap_or_default();
        let value: String = value.chars().map(|c| if is_printable(c) { c } else { '?' }).collect();
        format!("{}={value}", entry.object().nid().short_name().unwrap_or("?"))
    };
    name.entries().map(entry).collect::<Vec<_>>().join(", ")
}

/// In the words of paths: `rsa2048`, `p256`, `ed25519`.
fn key_label(key: &PKeyRef<Public>) -> String {
    match key.id() {
        Id::RSA => format!("rsa{}", key.bits()),
        Id::EC => match key.ec_key().ok().and_then(|key| key.group().curve_name()) {
            Some(Nid::X9_62_PRIME256V1) => "p256".to_owned(),
            Some(Nid::SECP384R1) => "p384".to_owned(),
            Some(Nid::SECP521R1) => "p521".to_owned(),
            _ => format!("ec{}", key.bits()),
        },
        Id::ED25519 => "ed25519".to_owned(),
        Id::ED448 => "ed448".to_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::bn::BigNum;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::pkey::PKey;
    use openssl::x509::{X509, X509NameBuilder};

    use super::*;

    #[test]
    fn a_certificate_is_read_and_its_names_cannot_change_what_surrounds_them() {
        let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_nid(Nid::COMMONNAME, "db\u{202e}\n.example").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_serial_number(&BigNum::from_u32(0x0abc).unwrap().to_asn1_integer().unwrap()).unwrap();
        builder.set_not_before(&Asn1Time::from_unix(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::from_unix(86_400).unwrap()).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let der = builder.build().to_der().unwrap();
        let seen = read(&der, 0).unwrap();
        assert_eq!((seen.subject.as_str(), seen.days_left), ("CN=db??.example", 1));
        assert_eq!(seen.not_before.as_deref(), Some("Jan  1 00:00:00 1970 GMT"));
        assert_eq!(seen.serial.as_deref(), Some("0ABC"));
        assert_eq!(seen.signature.as_deref(), Some("ecdsa-with-SHA256"));
        assert_eq!(seen.sha256, Some(hex(&sha256(&der))));
    }
}
