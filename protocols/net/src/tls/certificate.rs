//! A minimal certificate parser (RFC 5280, 4.1), for fields that neither library exposes.

use std::borrow::Cow;

use aws_lc_rs::digest::{self, SHA256, SHA384, SHA512};

use crate::Error;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// The version's tag; version 1 has no such field.
const EXPLICIT_0: u8 = 0xa0;

/// The digest used for channel binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256,
    Sha384,
    Sha512,
}

/// A public key's algorithm (RFC 3279, 2.3; RFC 5480, 2.1; RFC 8410, 3) and the bits.
struct PublicKey<'a> {
    algorithm: &'a [u8],
    /// The algorithm's parameters, such as the curve.
    parameters: &'a [u8],
    bits: &'a [u8],
}

impl Digest {
    pub(super) fn of(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &SHA256,
            Self::Sha384 => &SHA384,
            Self::Sha512 => &SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }
}

/// `p256`, `rsa2048`; `None` if this is not a certificate.
pub(super) fn key_label(certificate_der: &[u8]) -> Option<Cow<'static, str>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    const ED448: &[u8] = &[0x2b, 0x65, 0x71];
    /// FIPS 204 (RFC 9881, 2): the last byte is the parameter set.
    const ML_DSA: [u8; 8] = [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03];
    let key = public_key(certificate_der)?;
    Some(match key.algorithm {
        RSA => match modulus_bits(key.bits)? {
            2048 => "rsa2048".into(),
            bits => format!("rsa{bits}").into(),
        },
        EC => curve_of(&key).into(),
        ED25519 => "ed25519".into(),
        ED448 => "ed448".into(),
        other => match other.strip_prefix(&ML_DSA) {
            Some([17]) => "mldsa44".into(),
            Some([18]) => "mldsa65".into(),
            Some([19]) => "mldsa87".into(),
            _ => "another key".into(),
        },
    })
}

/// The digest of the certificate's signature, used for channel binding (RFC 5929, 4.1); `None` if the signature
/// algorithm does not imply one.
pub(super) fn end_point_digest(certificate_der: &[u8]) -> Option<Digest> {
    /// RFC 8017, A.2.4: the last byte identifies the digest.
    const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    /// RFC 5758, 3.2.
    const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let mut certificate = certificate_der;
    let mut content = expect(&mut certificate, SEQUENCE)?;
    let _to_be_signed = expect(&mut content, SEQUENCE)?;
    let mut signature = expect(&mut content, SEQUENCE)?;
    let (last, family) = expect(&mut signature, OBJECT_IDENTIFIER)?.split_last()?;
    match (family, last) {
        // RFC 5929 replaces MD5 and SHA-1 by SHA-256.
        (PKCS1, 4 | 5 | 11) | (ECDSA_SHA2, 2) | (ECDSA_SHA1, 1) => Some(Digest::Sha256),
        (PKCS1, 12) | (ECDSA_SHA2, 3) => Some(Digest::Sha384),
        (PKCS1, 13) | (ECDSA_SHA2, 4) => Some(Digest::Sha512),
        _ => None,
    }
}

pub(super) fn absent() -> Error {
    Error::Tls("there is no certificate for channel binding".to_owned())
}

pub(super) fn signed_without_digest() -> Error {
    Error::Tls("the certificate's signature algorithm implies no digest for channel binding".to_owned())
}

fn curve_of(key: &PublicKey<'_>) -> &'static str {
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
    const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];
    let mut parameters = key.parameters;
    match expect(&mut parameters, OBJECT_IDENTIFIER) {
        Some(P256) => "p256",
        Some(P384) => "p384",
        Some(P521) => "p521",
        _ => "other curve",
    }
}

fn public_key(certificate_der: &[u8]) -> Option<PublicKey<'_>> {
    let mut certificate = certificate_der;
    let mut content = expect(&mut certificate, SEQUENCE)?;
    let mut fields = expect(&mut content, SEQUENCE)?;
    if fields.first() == Some(&EXPLICIT_0) {
        element(&mut fields)?;
    }
    expect(&mut fields, INTEGER)?;
    // Signature algorithm, issuer, validity, subject.
    for _ in 0..4 {
        expect(&mut fields, SEQUENCE)?;
    }
    let mut key = expect(&mut fields, SEQUENCE)?;
    let mut parameters = expect(&mut key, SEQUENCE)?;
    let algorithm = expect(&mut parameters, OBJECT_IDENTIFIER)?;
    // The first byte counts unused bits of the last byte, which keys do not have.
    let bits = expect(&mut key, BIT_STRING)?.get(1..)?;
    Some(PublicKey { algorithm, parameters, bits })
}

/// Size of an RSA key (RFC 8017, A.1.1).
fn modulus_bits(mut key: &[u8]) -> Option<usize> {
    let mut numbers = expect(&mut key, SEQUENCE)?;
    let mut modulus = expect(&mut numbers, INTEGER)?;
    while let [0, rest @ ..] = modulus {
        modulus = rest;
    }
    let unused = modulus.first()?.leading_zeros();
    Some(modulus.len() * 8 - unused as usize)
}

fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, content) = element(input)?;
    (found == tag).then_some(content)
}

/// Takes a one-byte tag, a length and that many bytes (X.690, 8.1).
fn element<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], mut rest) = input.split_first_chunk()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        // A certificate has at most 2^24 bytes (RFC 8446, 4.4.2).
        let count = usize::from(first & 0x7f);
        if !(1..=3).contains(&count) {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(count)?;
        length = bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, content))
}

/// Certificates by OpenSSL 3.6 with ML-DSA keys, signed with P-256.
#[cfg(test)]
pub(super) const ML_DSA_EXAMPLES: [(&[u8], &str); 2] = [
    (include_bytes!("certificate/mldsa44.der"), "mldsa44"),
    (include_bytes!("certificate/mldsa65.der"), "mldsa65"),
];

#[cfg(test)]
mod tests;
