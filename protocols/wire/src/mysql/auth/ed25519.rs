//! `client_ed25519` of MariaDB: the server's nonce, signed ("Authentication Plugin - ed25519").
//!
//! The server sends 32 random bytes and the client answers with their Ed25519 signature. The key differs from
//! RFC 8032: where that hashes a seed of 32 bytes, MariaDB hashes the password of any length
//! (`plugin/auth_ed25519/ref10/keypair.c` and `sign.c` of the server's source). Signing and verifying are as
//! usual.

use ed25519_dalek::{
    Sha512, VerifyingKey,
    hazmat::{ExpandedSecretKey, raw_sign},
};
use openssl::sha::sha512;
use zeroize::Zeroizing;

pub const NAME: &[u8] = b"client_ed25519";
pub const NONCE_BYTES: usize = 32;

pub(crate) const SIGNATURE_BYTES: usize = 64;

pub(crate) fn response(password: &[u8], nonce: &[u8; NONCE_BYTES]) -> [u8; SIGNATURE_BYTES] {
    let secret = secret_key(password);
    let public = VerifyingKey::from(&secret);
    raw_sign::<Sha512>(&secret, nonce, &public).to_bytes()
}

fn secret_key(password: &[u8]) -> ExpandedSecretKey {
    ExpandedSecretKey::from_bytes(&Zeroizing::new(sha512(password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_form_as_mariadb_documents_it() {
        // "Authentication Plugin - ed25519": SELECT ed25519_password("secret").
        let documented = "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY=";
        let stored = VerifyingKey::from(&secret_key(b"secret"));
        assert_eq!(openssl::base64::encode_block(stored.as_bytes()), documented);
    }

    #[test]
    fn response_matches_an_independent_implementation() {
        // The arithmetic of RFC 8032 written out in Python, with a key of SHA-512(password).
        let expected: [u8; SIGNATURE_BYTES] = [
            0xde, 0xe6, 0x2d, 0x17, 0x2e, 0x63, 0x06, 0x38, 0xab, 0x2c, 0x8c, 0x0f, 0x06, 0xe8, 0x7d, 0xb0,
            0x64, 0xb5, 0x15, 0x4f, 0x1a, 0xd1, 0x43, 0x1c, 0x7e, 0x78, 0xc0, 0xcd, 0x48, 0xa0, 0x61, 0x24,
            0xe8, 0xa5, 0xff, 0x38, 0xe9, 0x71, 0xc3, 0x1e, 0x0a, 0x66, 0xcb, 0x33, 0xef, 0xc2, 0x93, 0x7a,
            0xf7, 0xaa, 0x22, 0xca, 0xd5, 0xa8, 0x78, 0x82, 0xae, 0x13, 0xc7, 0x75, 0x00, 0x41, 0x09, 0x08,
        ];
        let nonce = std::array::from_fn(|index| index as u8);
        assert_eq!(response(b"correct horse", &nonce), expected);
    }
}
