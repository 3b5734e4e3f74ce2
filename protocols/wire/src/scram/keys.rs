//! The keys of RFC 5802, section 3, and the functions that compute them.

use std::ops::Deref;

use hmac::{Hmac, KeyInit, Mac};
use openssl::{memcmp, pkcs5, rand};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::scram::{digest::Digest, error::Error};

/// The most iterations that a client accepts: seconds of work. Servers use 4096 by default.
pub const MAX_ITERATIONS: u32 = 10_000_000;
/// The longest digest.
pub(crate) const MAX_KEY_BYTES: usize = 32;
/// The block length of both digests, to which HMAC pads its key with zeros.
const BLOCK_BYTES: usize = 64;

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

    /// The key of these bytes, which have the digest's length.
    fn of(digest: Digest, bytes: &[u8]) -> Self {
        let mut key = Self::zero(digest);
        key.bytes_mut().copy_from_slice(bytes);
        key
    }

    /// The key of these bytes, if they have the digest's length.
    pub(crate) fn from_slice(digest: Digest, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == digest.bytes()).then(|| Self::of(digest, bytes))
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
        let salted = HmacKey::new(&salted);
        Ok(Self {
            client: Zeroizing::new(salted.mac(b"Client Key")),
            server: Zeroizing::new(salted.mac(b"Server Key")),
        })
    }

    /// Keys that were not derived here.
    pub(crate) fn of(client: Zeroizing<ScramKey>, server: ScramKey) -> Self {
        Self { client, server: Zeroizing::new(server) }
    }

    /// `StoredKey`: verifies proofs.
    pub(crate) fn stored(&self) -> ScramKey {
        hash(&self.client)
    }

    /// `ServerKey`: signs for the server.
    pub(crate) fn server(&self) -> &ScramKey {
        &self.server
    }

    /// `ClientProof`.
    pub(crate) fn proof(&self, auth_message: &[u8]) -> ScramKey {
        xor(&self.client, &HmacKey::new(&self.stored()).mac(auth_message))
    }
}

/// HMAC with one key. What depends on the key alone is computed once; it is as secret as the key, and zeroed when
/// dropped.
#[derive(Clone)]
pub(crate) enum HmacKey {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
}

impl HmacKey {
    pub(crate) fn new(key: &ScramKey) -> Self {
        let mut block = Zeroizing::new([0; BLOCK_BYTES]);
        block[..key.len()].copy_from_slice(key);
        match key.digest {
            Digest::Sha1 => Self::Sha1(Hmac::new((&*block).into())),
            Digest::Sha256 => Self::Sha256(Hmac::new((&*block).into())),
        }
    }

    pub(crate) fn mac(&self, data: &[u8]) -> ScramKey {
        match self {
            Self::Sha1(hmac) => {
                ScramKey::of(Digest::Sha1, &hmac.clone().chain_update(data).finalize().into_bytes())
            }
            Self::Sha256(hmac) => {
                ScramKey::of(Digest::Sha256, &hmac.clone().chain_update(data).finalize().into_bytes())
            }
        }
    }
}

/// The `ClientKey` of a proof, if that was computed from the password of `stored_key`, whose HMAC key is `proof_key`.
pub(crate) fn proven(
    stored_key: &ScramKey,
    proof_key: &HmacKey,
    auth_message: &[u8],
    proof: &ScramKey,
) -> Option<Zeroizing<ScramKey>> {
    let client_key = Zeroizing::new(xor(proof, &proof_key.mac(auth_message)));
    equal(&hash(&client_key), stored_key).then_some(client_key)
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

fn hash(key: &ScramKey) -> ScramKey {
    match key.digest {
        Digest::Sha1 => ScramKey::of(key.digest, &Sha1::digest(&**key)),
        Digest::Sha256 => ScramKey::of(key.digest, &Sha256::digest(&**key)),
    }
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
        let mac = HmacKey::new(&key).mac(b"Hi There");
        assert_eq!(mac[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
        key.digest = Digest::Sha1;
        let mac = HmacKey::new(&key).mac(b"Hi There");
        assert_eq!((mac.len(), &mac[..8]), (20, &[0xb6, 0x17, 0x31, 0x86, 0x55, 0x05, 0x72, 0x64][..]));
    }
}
