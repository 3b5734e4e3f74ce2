//! The keys of RFC 5802, section 3, and the functions that compute them.

use std::ops::Deref;

use openssl::{hash, memcmp, pkcs5, pkey::PKey, rand, sign::Signer};
use zeroize::{Zeroize, Zeroizing};

use crate::scram::{digest::Digest, error::Error};

/// The most iterations that a client accepts: seconds of work. Servers use 4096 by default.
pub const MAX_ITERATIONS: u32 = 10_000_000;
/// The longest digest.
const MAX_KEY_BYTES: usize = 32;

/// A key, a proof or a signature.
#[derive(Clone, Copy)]
pub(crate) struct ScramKey {
    digest: Digest,
    /// The digest's length is used; the rest is 0.
    bytes: [u8; MAX_KEY_BYTES],
}

impl ScramKey {
    fn zero(digest: Digest) -> Self {
        Self { digest, bytes: [0; MAX_KEY_BYTES] }
    }

    /// The key of these bytes, if they have the digest's length.
    pub(crate) fn from_slice(digest: Digest, bytes: &[u8]) -> Option<Self> {
        let mut key = Self::zero(digest);
        if bytes.len() != digest.bytes() {
            return None;
        }
        key.bytes_mut().copy_from_slice(bytes);
        Some(key)
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.digest.bytes()]
    }
}

impl Deref for ScramKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.digest.bytes()]
    }
}

impl Zeroize for ScramKey {
    fn zeroize(&mut self) {
        self.bytes.zeroize();
    }
}

/// The keys derived from a password for one salt and number of iterations.
#[derive(Clone)]
pub(crate) struct ScramKeys {
    client: Zeroizing<ScramKey>,
    server: Zeroizing<ScramKey>,
}

impl ScramKeys {
    /// Runs the iterations: the expensive part.
    pub(crate) fn derive(
        digest: Digest,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, Error> {
        let mut salted = Zeroizing::new(ScramKey::zero(digest));
        pkcs5::pbkdf2_hmac(password, salt, iterations as usize, digest.openssl(), salted.bytes_mut())
            .map_err(|_| Error::Crypto { operation: "PBKDF2" })?;
        Ok(Self {
            client: Zeroizing::new(hmac(&salted, b"Client Key")?),
            server: Zeroizing::new(hmac(&salted, b"Server Key")?),
        })
    }

    /// `StoredKey`: verifies proofs.
    pub(crate) fn stored(&self) -> Result<ScramKey, Error> {
        hash(&self.client)
    }

    /// `ServerKey`: signs for the server.
    pub(crate) fn server(&self) -> &ScramKey {
        &self.server
    }

    /// `ClientProof`.
    pub(crate) fn proof(&self, auth_message: &[u8]) -> Result<ScramKey, Error> {
        Ok(xor(&self.client, &hmac(&self.stored()?, auth_message)?))
    }
}

/// `ServerSignature`.
pub(crate) fn server_signature(server_key: &ScramKey, auth_message: &[u8]) -> Result<ScramKey, Error> {
    hmac(server_key, auth_message)
}

/// Whether a proof was computed from the password of `stored_key`.
pub(crate) fn proves(stored_key: &ScramKey, auth_message: &[u8], proof: &ScramKey) -> Result<bool, Error> {
    let client_key = Zeroizing::new(xor(proof, &hmac(stored_key, auth_message)?));
    Ok(equal(&hash(&client_key)?, stored_key))
}

/// Compares in constant time.
pub(crate) fn equal(one: &ScramKey, other: &ScramKey) -> bool {
    one.digest == other.digest && memcmp::eq(one, other)
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rand::rand_bytes(&mut bytes).map_err(|_| Error::Crypto { operation: "random bytes" })?;
    Ok(bytes)
}

fn hash(key: &ScramKey) -> Result<ScramKey, Error> {
    let made = hash::hash(key.digest.openssl(), key).ok();
    let made = made.and_then(|made| ScramKey::from_slice(key.digest, &made));
    made.ok_or(Error::Crypto { operation: key.digest.mechanism() })
}

fn hmac(key: &ScramKey, data: &[u8]) -> Result<ScramKey, Error> {
    let hmac = || {
        let mut mac = ScramKey::zero(key.digest);
        let secret = PKey::hmac(key)?;
        Signer::new(key.digest.openssl(), &secret)?.sign_oneshot(mac.bytes_mut(), data)?;
        Ok(mac)
    };
    hmac().map_err(|_: openssl::error::ErrorStack| Error::Crypto { operation: "HMAC" })
}

/// Both keys must have the same digest.
fn xor(one: &ScramKey, other: &ScramKey) -> ScramKey {
    ScramKey { digest: one.digest, bytes: std::array::from_fn(|index| one.bytes[index] ^ other.bytes[index]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_of_rfc_4231_and_rfc_2202() {
        // Test case 1 has a key of 20 bytes, which HMAC fills up with zeros.
        let mut key = ScramKey::zero(Digest::Sha256);
        key.bytes[..20].fill(0x0b);
        let mac = hmac(&key, b"Hi There").unwrap();
        assert_eq!(mac[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
        key.digest = Digest::Sha1;
        let mac = hmac(&key, b"Hi There").unwrap();
        assert_eq!((mac.len(), &mac[..8]), (20, &[0xb6, 0x17, 0x31, 0x86, 0x55, 0x05, 0x72, 0x64][..]));
    }
}
