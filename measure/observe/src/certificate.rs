//! A server's certificate, as far as an inventory needs it.

use openssl::asn1::Asn1Time;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKeyRef, Public};
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
        not_after: certificate.not_after().to_string(),
        days_left: i64::from(now.diff(certificate.not_after()).ok()?.days),
    })
}

/// `CN=db.example, O=Example`: printable characters only.
fn name(name: &X509NameRef) -> String {
    let entry = |entry: &openssl::x509::X509NameEntryRef| {
        let value = entry.data().to_string().unwrap_or_default();
        let value: String = value.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
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
