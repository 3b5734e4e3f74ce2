//! MD5 authentication, which is weak; only old servers use it.

use openssl::{
    hash::{MessageDigest, hash},
    memcmp,
};
use zeroize::Zeroizing;

use crate::postgres::error::Error;

pub const SALT_BYTES: usize = 4;
const PREFIX: &[u8] = b"md5";
const HEX_BYTES: usize = 32;
/// The length of a response: the prefix and a hash in hexadecimal digits.
pub const RESPONSE_BYTES: usize = PREFIX.len() + HEX_BYTES;

/// What a server stores of a password: the MD5 of password and user name, in hexadecimal digits. It suffices
/// to log in.
#[derive(Clone)]
pub struct StoredPassword(Zeroizing<[u8; HEX_BYTES]>);

impl StoredPassword {
    pub fn of(password: &[u8], user: &[u8]) -> Result<Self, Error> {
        hex_md5(&Zeroizing::new([password, user].concat())).map(Zeroizing::new).map(Self)
    }

    /// The response to a challenge.
    pub fn response(&self, salt: [u8; SALT_BYTES]) -> Result<[u8; RESPONSE_BYTES], Error> {
        let mut response = [0; RESPONSE_BYTES];
        let (prefix, hash) = response.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        hash.copy_from_slice(&hex_md5(&Zeroizing::new([&self.0[..], &salt].concat()))?);
        Ok(response)
    }

    /// Whether `response` to `salt` was computed from the password, or from this stored form.
    pub fn accepts(&self, salt: [u8; SALT_BYTES], response: &[u8]) -> Result<bool, Error> {
        let expected = self.response(salt)?;
        Ok(response.len() == expected.len() && memcmp::eq(&expected, response))
    }
}

fn hex_md5(bytes: &[u8]) -> Result<[u8; HEX_BYTES], Error> {
    let digest = hash(MessageDigest::md5(), bytes).map_err(|_| Error::Crypto { operation: "MD5" })?;
    let mut hex = [0; HEX_BYTES];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest.iter()) {
        pair.copy_from_slice(&[byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
    Ok(hex)
}
