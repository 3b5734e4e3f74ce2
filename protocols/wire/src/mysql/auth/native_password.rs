//! `mysql_native_password`: SHA-1 challenge and response ("Native Authentication").

use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

pub const NAME: &[u8] = b"mysql_native_password";
pub const NONCE_BYTES: usize = 20;
const HASH_BYTES: usize = 20;

/// What a server stores of a password: SHA-1 of its SHA-1.
#[derive(Clone)]
pub struct StoredPassword([u8; HASH_BYTES]);

impl StoredPassword {
    pub fn of(password: &[u8]) -> Self {
        Self(sha1(&[&sha1(&[password])[..]]))
    }

    /// Whether `response` to `nonce` was computed from the password.
    pub fn accepts(&self, nonce: &[u8; NONCE_BYTES], response: &[u8]) -> bool {
        let Ok(response) = <&[u8; HASH_BYTES]>::try_from(response) else {
            return false;
        };
        let mask = sha1(&[nonce, &self.0]);
        let candidate = sha1(&[&xor(response, &mask)[..]]);
        // All bytes are compared, so that the duration reveals nothing.
        candidate.iter().zip(&self.0).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// The response to `nonce`. The response for an empty password is empty and not computed here.
pub(crate) fn response(password: &[u8], nonce: &[u8; NONCE_BYTES]) -> [u8; HASH_BYTES] {
    let once = Zeroizing::new(sha1(&[password]));
    let twice = Zeroizing::new(sha1(&[&once[..]]));
    xor(&once, &sha1(&[nonce, &twice[..]]))
}

fn sha1(parts: &[&[u8]]) -> [u8; HASH_BYTES] {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn xor(a: &[u8; HASH_BYTES], b: &[u8; HASH_BYTES]) -> [u8; HASH_BYTES] {
    std::array::from_fn(|index| a[index] ^ b[index])
}
