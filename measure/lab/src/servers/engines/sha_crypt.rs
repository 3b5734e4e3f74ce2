//! SHA-crypt, the hash that `caching_sha2_password` stores (Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512",
//! version 0.6). Computed here, so that no statement contains a password.

use openssl::sha::{Sha256, sha256};

/// MySQL's default.
const ROUNDS: usize = 5_000;
/// As MySQL stores them: thousands, in three hexadecimal digits.
const STORED_ROUNDS: &str = "005";
/// Longer than SHA-crypt's own.
pub(crate) const SALT_BYTES: usize = 20;
const DIGEST_BYTES: usize = 32;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The bytes of the digest that form groups of four letters; the other two form the last three letters.
const GROUPS: [[usize; 3]; 10] = [
    [0, 10, 20],
    [21, 1, 11],
    [12, 22, 2],
    [3, 13, 23],
    [24, 4, 14],
    [15, 25, 5],
    [6, 16, 26],
    [27, 7, 17],
    [18, 28, 8],
    [9, 19, 29],
];

/// A salt that needs no quoting.
pub(crate) fn random_salt() -> Result<[u8; SALT_BYTES], openssl::error::ErrorStack> {
    let mut salt = [0; SALT_BYTES];
    openssl::rand::rand_bytes(&mut salt)?;
    Ok(salt.map(|byte| letter(u32::from(byte))))
}

/// The value of the column `authentication_string`.
pub(crate) fn hash(password: &[u8], salt: &[u8; SALT_BYTES]) -> Vec<u8> {
    let mut hash = format!("$A${STORED_ROUNDS}$").into_bytes();
    hash.extend_from_slice(salt);
    hash.extend(encoded(&digest(password, salt)));
    hash
}

fn digest(password: &[u8], salt: &[u8]) -> [u8; DIGEST_BYTES] {
    let both_ways = sha256(&[password, salt, password].concat());
    let mut first = Sha256::new();
    first.update(password);
    first.update(salt);
    first.update(&repeated(&both_ways, password.len()));
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &both_ways } else { password });
        length >>= 1;
    }
    let mut digest = first.finish();
    let long_password = repeated(&sha256(&password.repeat(password.len())), password.len());
    let long_salt = repeated(&sha256(&salt.repeat(16 + usize::from(digest[0]))), salt.len());
    for round in 0..ROUNDS {
        let is_odd = round % 2 == 1;
        let mut next = Sha256::new();
        next.update(if is_odd { &long_password } else { &digest });
        if round % 3 != 0 {
            next.update(&long_salt);
        }
        if round % 7 != 0 {
            next.update(&long_password);
        }
        next.update(if is_odd { &digest } else { &long_password });
        digest = next.finish();
    }
    digest
}

/// `length` bytes of the cyclic repetition of `bytes`.
fn repeated(bytes: &[u8], length: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(length).collect()
}

fn encoded(digest: &[u8; DIGEST_BYTES]) -> Vec<u8> {
    let byte = |index: usize| u32::from(digest[index]);
    let mut text = Vec::new();
    for [high, middle, low] in GROUPS {
        text.extend(letters(byte(high) << 16 | byte(middle) << 8 | byte(low), 4));
    }
    text.extend(letters(byte(31) << 8 | byte(30), 3));
    text
}

/// Six bits per letter, lowest first.
fn letters(bits: u32, count: u32) -> impl Iterator<Item = u8> {
    (0..count).map(move |number| letter(bits >> (6 * number)))
}

/// The letter for the lowest six bits.
fn letter(bits: u32) -> u8 {
    ALPHABET[(bits & 0x3f) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_mysql() {
        // From MySQL 8.0.33, IDENTIFIED WITH caching_sha2_password BY 'x', with its random salt.
        let salt = b"\x03\x05\x08\\m}KG\x013\x06o93'M|\r's";
        let expected = [&b"$A$005$"[..], salt, b"DdxXtHVz3Og1udpq2GwThC9bT.r4qknLgPVfeWrL7OB"].concat();
        assert_eq!(hash(b"x", salt), expected);
    }

    #[test]
    fn digests_equal_those_of_openssl() {
        // openssl passwd -5 -salt saltstring 'Hello world!'
        let digest = digest(b"Hello world!", b"saltstring");
        assert_eq!(encoded(&digest), b"5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
    }

    #[test]
    fn salts_are_random_letters() {
        let (one, other) = (random_salt().unwrap(), random_salt().unwrap());
        assert!(one != other && one.iter().all(|letter| ALPHABET.contains(letter)));
    }
}
