//! AES-XTS (IEEE 1619) on whole data units, with the key schedule kept from one to the next.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;

/// The tweak of a data unit.
pub type Tweak = [u8; 16];

/// A block of AES: the least that XTS can take.
pub(crate) const BLOCK_BYTES: usize = 16;

/// How long AES's keys are. XTS takes two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// AES-128-XTS.
    Aes128,
    /// AES-256-XTS.
    Aes256,
}

impl Strength {
    /// Every strength.
    pub const ALL: [Self; 2] = [Self::Aes128, Self::Aes256];

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes128 => "aes-128-xts",
            Self::Aes256 => "aes-256-xts",
        }
    }

    /// Bytes of both keys.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128 => 32,
            Self::Aes256 => 64,
        }
    }
}

/// The cipher of one file: takes a key without allocating, and then only a tweak for each unit.
pub struct PageCipher {
    strength: Strength,
    encrypt: CipherCtx,
    decrypt: CipherCtx,
}

impl PageCipher {
    /// A cipher that awaits its key ([`Self::set_key`]).
    pub fn new(strength: Strength) -> Result<Self, ErrorStack> {
        let cipher = Cipher::fetch(None, strength.label(), None)?;
        let (mut encrypt, mut decrypt) = (CipherCtx::new()?, CipherCtx::new()?);
        encrypt.encrypt_init(Some(&cipher), None, None)?;
        decrypt.decrypt_init(Some(&cipher), None, None)?;
        Ok(Self { strength, encrypt, decrypt })
    }

    /// Takes the first [`Strength::key_bytes`] of a key.
    pub fn set_key(&mut self, key: &[u8; 64]) -> Result<(), ErrorStack> {
        let key = &key[..self.strength.key_bytes()];
        self.encrypt.encrypt_init(None, Some(key), None)?;
        self.decrypt.decrypt_init(None, Some(key), None)
    }

    /// Encrypts a unit of at least one block in place; what is no multiple of one steals ciphertext.
    pub fn encrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), ErrorStack> {
        self.encrypt.encrypt_init(None, None, Some(tweak))?;
        self.encrypt.cipher_update_inplace(unit, unit.len()).map(drop)
    }

    /// Decrypts what [`Self::encrypt`] made.
    pub fn decrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), ErrorStack> {
        self.decrypt.decrypt_init(None, None, Some(tweak))?;
        self.decrypt.cipher_update_inplace(unit, unit.len()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[track_caller]
    fn answers(strength: Strength, keys: &str, tweak: &str, plain: &[u8], sealed: &str) {
        let mut cipher = PageCipher::new(strength).expect("OpenSSL has XTS");
        let (mut key, mut start) = ([0; 64], [0; 16]);
        key[..strength.key_bytes()].copy_from_slice(&bytes(keys));
        let given = bytes(tweak);
        start[..given.len()].copy_from_slice(&given);
        cipher.set_key(&key).expect("a key");
        let mut unit = plain.to_vec();
        // Twice: the first unit must leave nothing behind that the second would notice.
        for _ in 0..2 {
            cipher.encrypt(&start, &mut unit).expect("encrypts");
            assert_eq!(unit, bytes(sealed));
            cipher.decrypt(&start, &mut unit).expect("decrypts");
            assert_eq!(unit, plain);
        }
    }

    #[test]
    fn ieee_1619_vector_2() {
        answers(
            Strength::Aes128,
            &("11".repeat(16) + &"22".repeat(16)),
            "3333333333",
            &[0x44; 32],
            "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0",
        );
    }

    #[test]
    fn ieee_1619_vector_10() {
        let plain: Vec<u8> = (0..512).map(|n| n as u8).collect();
        answers(
            Strength::Aes256,
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197\
             169399375105820974944592",
            "ff",
            &plain,
            include_str!("../tests/ieee-1619-vector-10.hex"),
        );
    }

    #[test]
    fn ieee_1619_vector_15_steals_ciphertext() {
        let plain: Vec<u8> = (0..17).collect();
        answers(
            Strength::Aes128,
            "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0",
            "9a78563412",
            &plain,
            "6c1625db4671522d3d7599601de7ca09ed",
        );
    }
}
