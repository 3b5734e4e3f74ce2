//! `parsec` of MariaDB since 11.6: both sides' nonces, signed with a key that PBKDF2 derives from the
//! password.
//!
//! 1. The server requests the plugin and sends its nonce, 32 bytes.
//! 2. The client requests the salt with an empty packet.
//! 3. The server sends the "ext-salt": `P`, the exponent of the iterations, the salt. Its first byte differs
//!    from
//!    that of every other login message, so MariaDB sends it without the `0x01` of `AuthMoreData`.
//! 4. The client sends its own nonce, 32 bytes, and the Ed25519 signature (RFC 8032) of both nonces. The
//!    key's seed
//!    is PBKDF2-HMAC-SHA-512 of password and salt, `1024 << exponent` iterations, 32 bytes.
//! 5. The server answers OK or ERR.
//!
//! Sources: MariaDB Knowledge Base, "Authentication Plugin - PARSEC"; for lengths and the largest exponent,
//! `plugin/auth_parsec/server_parsec.cc` of the server and `plugins/auth/parsec.c` of Connector/C.

use ed25519_dalek::{Signer, SigningKey};
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
mod tests;
