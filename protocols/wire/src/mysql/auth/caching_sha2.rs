//! `caching_sha2_password`: SHA-256 challenge and response, and the cleartext password if the server has not
//! cached the account ("Caching SHA-2 Pluggable Authentication", "`caching_sha2_password` information").
//!
//! The client answers the nonce with a proof. A server that has cached the account answers [`FAST_OK`].
//! Otherwise it answers [`FULL`] and needs the password: in cleartext if the path is private (TLS, a unix
//! socket), else `XORed` with the nonce and encrypted with the server's RSA key, which the client requests with
//! [`KEY_WANTED`]. The key is not authenticated: it protects against passive observers only.

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::mysql::auth::native_password::NONCE_BYTES;

pub const NAME: &[u8] = b"caching_sha2_password";
/// Server, in `AuthMoreData`: the proof was right.
pub const FAST_OK: u8 = 3;
/// Server, in `AuthMoreData`: the password is needed.
pub const FULL: u8 = 4;
/// Client: request for the server's public key.
pub const KEY_WANTED: u8 = 2;

const HASH_BYTES: usize = 32;

/// What a server caches of a password: SHA-256 of its SHA-256.
#[derive(Clone)]
pub struct CachedPassword([u8; HASH_BYTES]);

impl CachedPassword {
    pub fn of(password: &[u8]) -> Self {
        Self(sha256(&[&*Zeroizing::new(sha256(&[password]))]))
    }

    /// Whether `response` to `nonce` was computed from the password.
    pub fn accepts(&self, nonce: &[u8; NONCE_BYTES], response: &[u8]) -> bool {
        let Ok(response) = <&[u8; HASH_BYTES]>::try_from(response) else {
            return false;
        };
        let candidate = sha256(&[&xor(response, &sha256(&[&self.0, nonce]))]);
        openssl::memcmp::eq(&candidate, &self.0)
    }

    /// Whether `password` matches. For the client's answer to [`FULL`].
    pub fn is_of(&self, password: &[u8]) -> bool {
        openssl::memcmp::eq(&Self::of(password).0, &self.0)
    }
}

/// The response to `nonce`. The response for an empty password is empty and not computed here.
pub(crate) fn response(password: &[u8], nonce: &[u8; NONCE_BYTES]) -> [u8; HASH_BYTES] {
    let once = Zeroizing::new(sha256(&[password]));
    let twice = Zeroizing::new(sha256(&[&*once]));
    xor(&once, &sha256(&[&*twice, nonce]))
}

/// OpenSSL looks the digest up in its providers and allocates for each hash.
fn sha256(parts: &[&[u8]]) -> [u8; HASH_BYTES] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn xor(a: &[u8; HASH_BYTES], b: &[u8; HASH_BYTES]) -> [u8; HASH_BYTES] {
    std::array::from_fn(|index| a[index] ^ b[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_matches_an_independent_implementation() {
        // Python's hashlib.
        let expected: [u8; HASH_BYTES] = [
            0x9e, 0xab, 0xc4, 0x26, 0xd7, 0xdd, 0x6e, 0xcb, 0x62, 0x09, 0xbc, 0x00, 0x3c, 0xb1, 0x4a, 0xcd,
            0x5e, 0xf6, 0x53, 0x8f, 0x68, 0xad, 0x98, 0x68, 0x13, 0x7d, 0xa9, 0x32, 0x5a, 0x5e, 0x69, 0x28,
        ];
        let nonce = b"abcdefghijklmnopqrst";
        assert_eq!(response(b"correct horse", nonce), expected);
        let cached = CachedPassword::of(b"correct horse");
        assert!(cached.accepts(nonce, &expected));
        assert!(!cached.accepts(nonce, &expected[1..]));
        assert!(!cached.accepts(b"Abcdefghijklmnopqrst", &expected));
        assert!(!CachedPassword::of(b"wrong horse").accepts(nonce, &expected));
        assert!(cached.is_of(b"correct horse") && !cached.is_of(b"correct horse\0"));
    }
}
