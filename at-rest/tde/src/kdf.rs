//! Key derivation: HKDF with SHA-256 (RFC 5869).

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::secret::wipe_stack;

/// Large enough for both keys of AES-256-XTS.
pub(crate) type DerivedKey = Zeroizing<[u8; 64]>;

/// Derives 64 bytes for one purpose (`salt`) and one subject (`info`).
pub(crate) fn derive(key: &[u8; 32], salt: &[u8], info: &[u8]) -> DerivedKey {
    let derived = extract_and_expand(key, salt, info);
    // HMAC and SHA-256 left copies of the key on the stack.
    wipe_stack();
    derived
}

#[inline(never)]
fn extract_and_expand(key: &[u8; 32], salt: &[u8], info: &[u8]) -> DerivedKey {
    expand(&extract(salt, key), info)
}

fn extract(salt: &[u8], key: &[u8]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(mac(salt, &[key]))
}

fn expand(prk: &[u8; 32], info: &[u8]) -> DerivedKey {
    let mut derived = Zeroizing::new([0; 64]);
    let first = Zeroizing::new(mac(prk, &[info, &[1]]));
    let second = Zeroizing::new(mac(prk, &[&*first, info, &[2]]));
    derived[..32].copy_from_slice(&*first);
    derived[32..].copy_from_slice(&*second);
    derived
}

/// HMAC-SHA-256 of the concatenated parts.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    let mut output: Output<Sha256> = mac.finalize().into_bytes();
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&output);
    output.zeroize();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_5869_test_case_1() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let derived = expand(&extract(&salt, &[0x0b; 22]), &info);
        let known = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        let pairs = known.as_bytes().as_chunks::<2>().0;
        let known = pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16));
        assert!(known.eq(derived[..42].iter().map(|&byte| Ok(byte))));
    }

    #[test]
    fn keys_differ_by_purpose_and_subject() {
        let key = [7; 32];
        assert_ne!(derive(&key, b"a", b"x"), derive(&key, b"b", b"x"));
        assert_ne!(derive(&key, b"a", b"x"), derive(&key, b"a", b"y"));
        assert_ne!(derive(&key, b"a", b"x")[..32], derive(&key, b"a", b"x")[32..]);
    }
}
