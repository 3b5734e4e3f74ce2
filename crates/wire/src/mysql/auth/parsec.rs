//! `parsec` of MariaDB since 11.6: both sides' nonces, signed with a key that PBKDF2 derives from the
//! password.
//!
//! 1. The server requests the plugin and sends its nonce, 32 bytes.
//! 2. The client requests the salt with an empty packet.
//! 3. The server sends the "ext-salt": `P`, the exponent of the iterations, the salt. Its first byte differs
//! from
//! that of every other login message, so MariaDB sends it without the `0x01` of `AuthMoreData`.
//! 4. The client sends its own nonce, 32 bytes, and the Ed25519 signature (RFC 8032) of both nonces. The
//! key's seed
//! is PBKDF2-HMAC-SHA-512 of password and salt, `1024 << exponent` iterations, 32 bytes.
//! 5. The server answers OK or ERR.
//!
//! Sources: MariaDB Knowledge Base, "Authentication Plugin - PARSEC"; for lengths and the largest exponent,
//! `plugin/auth_parsec/server_parsec.cc` of the server and `plugins/auth/parsec.c` of Connector/C.

use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use openssl::{hash::MessageDigest, pkcs5, rand};
use zeroize::Zeroizing;

use crate::mysql::{auth::ed25519::SIGNATURE_BYTES, codec::reader::Reader, error::Error};

pub const NAME: &[u8] = b"parsec";
/// The length of each side's nonce.
pub const NONCE_BYTES: usize = 32;

/// The key derivation function: PBKDF2, the only one defined.
const PBKDF2: u8 = b'P';
const BASE_ITERATIONS: u32 = 1024;
/// MariaDB accepts no larger exponent. The limit also protects the client from a hostile server.
const MAX_EXPONENT: u8 = 3;
/// MariaDB's salts have 18 bytes.
const MAX_SALT_BYTES: usize = 64;
const SEED_BYTES: usize = 32;
const RESPONSE_BYTES: usize = NONCE_BYTES + SIGNATURE_BYTES;
const SIGNED_BYTES: usize = 2 * NONCE_BYTES;

/// The parameters of the key derivation, which the server sends to each client of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtSalt<'a> {
    /// At most 3.
    pub exponent: u8,
    /// 1 to 64 bytes.
    pub salt: &'a [u8],
}

impl<'a> ExtSalt<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "salt");
        if reader.u8()? != PBKDF2 {
            return Err(reader.error("an unknown key derivation function"));
        }
        let exponent = reader.u8()?;
        if exponent > MAX_EXPONENT {
            return Err(reader.error("too many iterations"));
        }
        let salt = reader.rest();
        if salt.is_empty() || salt.len() > MAX_SALT_BYTES {
            return Err(reader.error("not 1 to 64 bytes of salt"));
        }
        Ok(Self { exponent, salt })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[PBKDF2, self.exponent]);
        out.extend_from_slice(self.salt);
    }

    /// Iterations of PBKDF2, 1024 to 8192.
    pub fn iterations(&self) -> u32 {
        BASE_ITERATIONS << self.exponent.min(MAX_EXPONENT)
    }

    fn key(&self, password: &[u8]) -> Result<SigningKey, Error> {
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        let iterations = self.iterations() as usize;
        pkcs5::pbkdf2_hmac(password, self.salt, iterations, MessageDigest::sha512(), &mut *seed)
            .map_err(|_| Error::Crypto { doing: "derive a key from the password" })?;
        Ok(SigningKey::from_bytes(&seed))
    }
}

/// What a server stores of a password besides its [`ExtSalt`]: the public key.
#[derive(Clone)]
pub struct StoredKey(VerifyingKey);

impl StoredKey {
    pub fn of(password: &[u8], ext_salt: &ExtSalt<'_>) -> Result<Self, Error> {
        ext_salt.key(password).map(|key| Self(key.verifying_key()))
    }

    /// Whether `response` to `nonce` was computed from the password.
    pub fn accepts(&self, nonce: &[u8; NONCE_BYTES], response: &[u8]) -> bool {
        let Some((client_nonce, signature)) = response.split_first_chunk() else {
            return false;
        };
        let signed = signed(nonce, client_nonce);
        Signature::from_slice(signature).is_ok_and(|signature| self.0.verify(&signed, &signature).is_ok())
    }
}

/// The response to `nonce`, with a fresh client nonce.
pub(crate) fn response(
    password: &[u8],
    nonce: &[u8; NONCE_BYTES],
    ext_salt: &ExtSalt<'_>,
) -> Result<[u8; RESPONSE_BYTES], Error> {
    let mut client_nonce = [0; NONCE_BYTES];
    rand::rand_bytes(&mut client_nonce).map_err(|_| Error::Crypto { doing: "draw random bytes" })?;
    respond(password, nonce, &client_nonce, ext_salt)
}

fn respond(
    password: &[u8],
    nonce: &[u8; NONCE_BYTES],
    client_nonce: &[u8; NONCE_BYTES],
    ext_salt: &ExtSalt<'_>,
) -> Result<[u8; RESPONSE_BYTES], Error> {
    let signature = ext_salt.key(password)?.sign(&signed(nonce, client_nonce)).to_bytes();
    let mut response = [0; RESPONSE_BYTES];
    response[..NONCE_BYTES].copy_from_slice(client_nonce);
    response[NONCE_BYTES..].copy_from_slice(&signature);
    Ok(response)
}

fn signed(nonce: &[u8; NONCE_BYTES], client_nonce: &[u8; NONCE_BYTES]) -> [u8; SIGNED_BYTES] {
    let mut signed = [0; SIGNED_BYTES];
    signed[..NONCE_BYTES].copy_from_slice(nonce);
    signed[NONCE_BYTES..].copy_from_slice(client_nonce);
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &[u8] = b"correct horse";
    /// Computed with Python's hashlib and `cryptography`, for [`NONCE`], [`CLIENT_NONCE`] and [`SALT`].
    const SIGNATURES: [(u8, u32, [u8; SIGNATURE_BYTES]); 2] = [
        (
            0,
            1024,
            [
                0xde, 0x44, 0xd6, 0xcf, 0xd0, 0x47, 0x2a, 0xb5, 0xb9, 0x92, 0x06, 0xc3, 0x59, 0xff, 0xd9,
                0xd8, 0x3f, 0x95, 0x3d, 0x2e, 0x9f, 0xf0, 0x34, 0xfe, 0x50, 0x1b, 0x0b, 0x6f, 0xee, 0x9f,
                0xae, 0x48, 0x43, 0xd0, 0x0f, 0x7f, 0x63, 0xd4, 0x7e, 0x85, 0x14, 0x25, 0x56, 0xea, 0xf2,
                0xff, 0x9a, 0x32, 0x23, 0xf8, 0x5b, 0x9e, 0x76, 0xfe, 0x2c, 0xed, 0xc3, 0x72, 0xe1, 0x6c,
                0xf4, 0xab, 0xe3, 0x05,
            ],
        ),
        (
            3,
            8192,
            [
                0x26, 0x70, 0x3d, 0x6c, 0x3d, 0xe4, 0x1c, 0x23, 0x8a, 0x7a, 0x4b, 0x24, 0x24, 0x42, 0x0c,
                0x08, 0x9f, 0x80, 0x94, 0xe9, 0x69, 0xed, 0x80, 0xfc, 0x74, 0xfa, 0x8c, 0xb2, 0xab, 0xc6,
                0x80, 0xd1, 0xa9, 0xf5, 0x6b, 0xc8, 0xae, 0xc8, 0x58, 0x4d, 0x22, 0xdc, 0xc5, 0x58, 0x76,
                0xca, 0x91, 0x51, 0xa9, 0x05, 0x07, 0x00, 0x1e, 0x6e, 0x67, 0x3c, 0x43, 0x39, 0x4f, 0x30,
                0xdc, 0x89, 0x7b, 0x0c,
            ],
        ),
    ];
    const NONCE: [u8; NONCE_BYTES] = counted(0);
    const CLIENT_NONCE: [u8; NONCE_BYTES] = counted(200);
    const SALT: [u8; 18] = counted(100);

    const fn counted<const N: usize>(first: u8) -> [u8; N] {
        let mut bytes = [first; N];
        let mut index = 1;
        while index < N {
            bytes[index] = bytes[index - 1] + 1;
            index += 1;
        }
        bytes
    }

    #[test]
    fn response_matches_an_independent_implementation() {
        for (exponent, iterations, signature) in SIGNATURES {
            let ext_salt = ExtSalt { exponent, salt: &SALT };
            assert_eq!(ext_salt.iterations(), iterations);
            let response = respond(PASSWORD, &NONCE, &CLIENT_NONCE, &ext_salt).unwrap();
            assert_eq!(response[..NONCE_BYTES], CLIENT_NONCE);
            assert_eq!(response[NONCE_BYTES..], signature);
            let stored = StoredKey::of(PASSWORD, &ext_salt).unwrap();
            assert!(stored.accepts(&NONCE, &response));
            assert!(!stored.accepts(&CLIENT_NONCE, &response));
            assert!(!stored.accepts(&NONCE, &response[1..]));
            assert!(!StoredKey::of(b"wrong horse", &ext_salt).unwrap().accepts(&NONCE, &response));
        }
    }

    #[test]
    fn each_response_has_a_fresh_nonce() {
        let ext_salt = ExtSalt { exponent: 0, salt: &SALT };
        let responses = [(); 2].map(|()| response(PASSWORD, &NONCE, &ext_salt).unwrap());
        assert_ne!(responses[0][..NONCE_BYTES], responses[1][..NONCE_BYTES]);
    }

    #[test]
    fn ext_salt_round_trip() {
        let ext_salt = ExtSalt { exponent: 2, salt: &SALT };
        let mut payload = Vec::new();
        ext_salt.encode(&mut payload);
        assert_eq!(ExtSalt::parse(&payload), Ok(ext_salt));
    }

    #[test]
    fn impossible_salts_are_refused() {
        for payload in [&b""[..], b"P", b"P\0", b"P\x04salt", b"S\0salt", &[b'P'; 67]] {
            let error = ExtSalt::parse(payload).unwrap_err();
            assert!(matches!(error, Error::Protocol { message: "salt", .. }), "{payload:?}: {error}");
        }
    }
}
