use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::X509;

use super::*;

fn ec(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn rsa(bits: u32) -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()
}

fn signed(key: &PKey<Private>, digest: MessageDigest, version: i32) -> X509 {
    let mut builder = X509::builder().unwrap();
    builder.set_version(version).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.sign(key, digest).unwrap();
    builder.build()
}

#[test]
fn keys_by_name() {
    let keys = [
        (ec(Nid::X9_62_PRIME256V1), "p256"),
        (ec(Nid::SECP384R1), "p384"),
        (ec(Nid::SECP521R1), "p521"),
        (ec(Nid::SECP256K1), "other curve"),
        (rsa(2048), "rsa2048"),
        (rsa(1031), "rsa1031"),
    ];
    for (key, label) in keys {
        // Versions 1 and 3.
        for version in [0, 2] {
            let der = signed(&key, MessageDigest::sha256(), version).to_der().unwrap();
            assert_eq!(key_label(&der).as_deref(), Some(label));
        }
    }
    let ed25519 = PKey::generate_ed25519().unwrap();
    let der = signed(&ed25519, MessageDigest::null(), 2).to_der().unwrap();
    assert_eq!(key_label(&der).as_deref(), Some("ed25519"));
    assert_eq!(end_point_digest(&der), None);
}

#[test]
fn ml_dsa_keys_by_name() {
    for (der, label) in ML_DSA_EXAMPLES {
        assert_eq!(key_label(der).as_deref(), Some(label));
        assert_eq!(end_point_digest(der), Some(Digest::Sha256));
    }
}

/// The digest matches the signature algorithm, and its value equals OpenSSL's.
#[test]
fn digests_by_signature() {
    let digests = [
        (MessageDigest::sha1(), Digest::Sha256, MessageDigest::sha256()),
        (MessageDigest::sha256(), Digest::Sha256, MessageDigest::sha256()),
        (MessageDigest::sha384(), Digest::Sha384, MessageDigest::sha384()),
        (MessageDigest::sha512(), Digest::Sha512, MessageDigest::sha512()),
    ];
    for key in [ec(Nid::X9_62_PRIME256V1), rsa(2048)] {
        for (signature, expected, as_openssl) in digests {
            let certificate = signed(&key, signature, 2);
            let der = certificate.to_der().unwrap();
            let digest = end_point_digest(&der);
            assert_eq!(digest, Some(expected));
            assert_eq!(expected.of(&der), certificate.digest(as_openssl).unwrap().to_vec());
        }
    }
}

#[test]
fn truncated_certificates_are_rejected() {
    let der = signed(&rsa(2048), MessageDigest::sha256(), 2).to_der().unwrap();
    for length in 0..der.len() {
        assert_eq!(key_label(&der[..length]), None);
        assert_eq!(end_point_digest(&der[..length]), None);
    }
}

#[test]
fn lengths_beyond_the_input_are_rejected() {
    for length in [&[0x80][..], &[0x84, 0, 0, 0, 0], &[0x83, 0xff, 0xff, 0xff], &[0xff], &[5]] {
        let bytes = [&[SEQUENCE], length].concat();
        assert_eq!(key_label(&bytes), None, "{length:02x?}");
    }
}
