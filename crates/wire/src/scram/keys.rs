//! The keys of RFC 5802, section 3, and the functions that they are made with.

use openssl::{hash::MessageDigest, memcmp, pkcs5, pkey::PKey, rand, sha, sign::Signer};
use zeroize::Zeroizing;

use super::Error;

/// The length of SHA-256, thus of every key, proof and signature.
pub(super) const KEY_BYTES: usize = 32;

/// A key, a proof or a signature.
pub(super) type Key = [u8; KEY_BYTES];

/// What is derived from a password for one salt and number of iterations.
#[derive(Clone)]
pub(super) struct Keys {
    client: Zeroizing<Key>,
    server: Zeroizing<Key>,
}

impl Keys {
    /// Does the iterations: the expensive part.
    pub(super) fn derive(password: &[u8], salt: &[u8], iterations: u32) -> Result<Self, Error> {
        let mut salted = Zeroizing::new([0; KEY_BYTES]);
        pkcs5::pbkdf2_hmac(password, salt, iterations as usize, MessageDigest::sha256(), &mut salted[..])
            .map_err(|_| Error::Crypto { operation: "PBKDF2" })?;
        Ok(Self {
            client: Zeroizing::new(hmac(&salted, b"Client Key")?),
            server: Zeroizing::new(hmac(&salted, b"Server Key")?),
        })
    }

    /// `StoredKey`: what a server checks proofs with.
    pub(super) fn stored(&self) -> Key {
        sha::sha256(&self.client[..])
    }

    /// `ServerKey`: what a server signs with.
    pub(super) fn server(&self) -> &Key {
        &self.server
    }

    /// `ClientProof`.
    pub(super) fn proof(&self, auth_message: &[u8]) -> Result<Key, Error> {
        Ok(xor(&self.client, &hmac(&self.stored(), auth_message)?))
    }
}

/// `ServerSignature`.
pub(super) fn server_signature(server_key: &Key, auth_message: &[u8]) -> Result<Key, Error> {
    hmac(server_key, auth_message)
}

/// Whether a proof came from one who knows the password that `stored_key` was made from.
pub(super) fn proves(stored_key: &Key, auth_message: &[u8], proof: &Key) -> Result<bool, Error> {
    let client_key = Zeroizing::new(xor(proof, &hmac(stored_key, auth_message)?));
    Ok(equal(&sha::sha256(&client_key[..]), stored_key))
}

/// Compares in a time that does not depend on where the two differ.
pub(super) fn equal(one: &Key, other: &Key) -> bool {
    memcmp::eq(one, other)
}

/// Fresh random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rand::rand_bytes(&mut bytes).map_err(|_| Error::Crypto { operation: "random bytes" })?;
    Ok(bytes)
}

fn hmac(key: &Key, data: &[u8]) -> Result<Key, Error> {
    let hmac = || {
        let key = PKey::hmac(key)?;
        let mut mac = [0; KEY_BYTES];
        Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot(&mut mac, data)?;
        Ok(mac)
    };
    hmac().map_err(|_: openssl::error::ErrorStack| Error::Crypto { operation: "HMAC" })
}

fn xor(one: &Key, other: &Key) -> Key {
    std::array::from_fn(|index| one[index] ^ other[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_of_rfc_4231() {
        // Test case 1 has a key of 20 bytes, which HMAC fills up with zeros.
        let mut key = [0; KEY_BYTES];
        key[..20].fill(0x0b);
        let mac = hmac(&key, b"Hi There").unwrap();
        assert_eq!(mac[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }
}
