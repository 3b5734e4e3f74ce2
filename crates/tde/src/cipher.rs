//! AES-XTS (IEEE 1619) on data units, with a cached key schedule.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

use crate::error::CipherFailed;
use crate::xts::{CipherOperation, Xts};

pub type Tweak = [u8; 16];

/// The AES block size, which is the minimum size of an XTS data unit.
pub(crate) const BLOCK_BYTES: usize = 16;

/// The cipher of pages. XTS uses two AES keys of the given length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherKind {
    Aes128,
    Aes256,
    /// No encryption. Only for measuring the cost of everything but the cipher.
    Null,
}

impl CipherKind {
    /// All ciphers that encrypt.
    pub const ALL: [Self; 2] = [Self::Aes128, Self::Aes256];

    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes128 => "aes-128-xts",
            Self::Aes256 => "aes-256-xts",
            Self::Null => "null (not encrypted)",
        }
    }

    /// Total size of both keys.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128 => 32,
            Self::Aes256 => 64,
            Self::Null => 0,
        }
    }

    pub const fn encrypts(self) -> bool {
        !matches!(self, Self::Null)
    }
}

/// The cipher of one file. Setting a key does not allocate; each unit needs only a tweak.
pub struct PageCipher(Library);

/// The cryptographic library, with one context per direction.
enum Library {
    /// For AES-256, where AWS-LC is faster.
    AwsLc {
        encrypt: Xts,
        decrypt: Xts,
    },
    /// For AES-128, which AWS-LC does not support in XTS.
    OpenSsl {
        encrypt: CipherCtx,
        decrypt: CipherCtx,
    },
    None,
}

impl PageCipher {
    /// [`Self::set_key`] must be called before the cipher is used.
    pub fn new(cipher_kind: CipherKind) -> Result<Self, CipherFailed> {
        Ok(Self(match cipher_kind {
            CipherKind::Aes256 => Library::AwsLc {
                encrypt: Xts::new(CipherOperation::Encrypt)?,
                decrypt: Xts::new(CipherOperation::Decrypt)?,
            },
            CipherKind::Aes128 => {
                let cipher = Cipher::fetch(None, cipher_kind.label(), None)?;
                let (mut encrypt, mut decrypt) = (CipherCtx::new()?, CipherCtx::new()?);
                encrypt.encrypt_init(Some(&cipher), None, None)?;
                decrypt.decrypt_init(Some(&cipher), None, None)?;
                Library::OpenSsl { encrypt, decrypt }
            }
            CipherKind::Null => Library::None,
        }))
    }

    /// Uses the first [`CipherKind::key_bytes`] bytes of `key`.
    pub fn set_key(&mut self, key: &[u8; 64]) -> Result<(), CipherFailed> {
        match &mut self.0 {
            Library::AwsLc { encrypt, decrypt } => {
                encrypt.set_key(key)?;
                decrypt.set_key(key)
            }
            Library::OpenSsl { encrypt, decrypt } => {
                let key = &key[..CipherKind::Aes128.key_bytes()];
                encrypt.encrypt_init(None, Some(key), None)?;
                Ok(decrypt.decrypt_init(None, Some(key), None)?)
            }
            Library::None => Ok(()),
        }
    }

    /// Encrypts a unit of at least one block in place. A partial last block uses ciphertext stealing.
    pub fn encrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), CipherFailed> {
        match &mut self.0 {
            Library::AwsLc { encrypt, .. } => encrypt.run(tweak, unit),
            Library::OpenSsl { encrypt, .. } => {
                encrypt.encrypt_init(None, None, Some(tweak))?;
                Ok(encrypt.cipher_update_inplace(unit, unit.len()).map(drop)?)
            }
            Library::None => Ok(()),
        }
    }

    /// Reverses [`Self::encrypt`].
    pub fn decrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), CipherFailed> {
        match &mut self.0 {
            Library::AwsLc { decrypt, .. } => decrypt.run(tweak, unit),
            Library::OpenSsl { decrypt, .. } => {
                decrypt.decrypt_init(None, None, Some(tweak))?;
                Ok(decrypt.cipher_update_inplace(unit, unit.len()).map(drop)?)
            }
            Library::None => Ok(()),
        }
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
    fn assert_vector(cipher_kind: CipherKind, keys: &str, tweak: &str, plain: &[u8], sealed: &str) {
        let mut cipher = PageCipher::new(cipher_kind).expect("the cipher is supported");
        let (mut key, mut start) = ([0; 64], [0; 16]);
        key[..cipher_kind.key_bytes()].copy_from_slice(&bytes(keys));
        let given = bytes(tweak);
        start[..given.len()].copy_from_slice(&given);
        cipher.set_key(&key).expect("a key");
        let mut unit = plain.to_vec();
        // Twice: the first unit must not leave state that changes the second.
        for _ in 0..2 {
            cipher.encrypt(&start, &mut unit).expect("encrypts");
            assert_eq!(unit, bytes(sealed));
            cipher.decrypt(&start, &mut unit).expect("decrypts");
            assert_eq!(unit, plain);
        }
    }

    #[test]
    fn ieee_1619_vector_2() {
        assert_vector(
            CipherKind::Aes128,
            &("11".repeat(16) + &"22".repeat(16)),
            "3333333333",
            &[0x44; 32],
            "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0",
        );
    }

    #[test]
    fn ieee_1619_vector_10() {
        let plain: Vec<u8> = (0..512).map(|n| n as u8).collect();
        assert_vector(
            CipherKind::Aes256,
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197\
             169399375105820974944592",
            "ff",
            &plain,
            include_str!("../tests/ieee-1619-vector-10.hex"),
        );
    }

    #[test]
    fn the_null_cipher_changes_nothing() {
        let mut cipher = PageCipher::new(CipherKind::Null).expect("cannot fail");
        let mut unit = [7; 32];
        cipher.set_key(&[1; 64]).expect("cannot fail");
        cipher.encrypt(&[2; 16], &mut unit).expect("cannot fail");
        assert_eq!(unit, [7; 32]);
        cipher.decrypt(&[2; 16], &mut unit).expect("cannot fail");
        assert_eq!(unit, [7; 32]);
        assert!(!CipherKind::Null.encrypts() && CipherKind::ALL.into_iter().all(CipherKind::encrypts));
    }

    #[test]
    fn ciphertext_equals_that_of_openssl() {
        use openssl::symm::{Cipher, Crypter, Mode};
        let key: [u8; 64] = std::array::from_fn(|n| (n * 7 + 1) as u8);
        for (cipher_kind, other) in
            [(CipherKind::Aes128, Cipher::aes_128_xts()), (CipherKind::Aes256, Cipher::aes_256_xts())]
        {
            let mut cipher = PageCipher::new(cipher_kind).expect("the cipher is supported");
            cipher.set_key(&key).expect("a key");
            for length in [16, 17, 31, 32, 512, 4095, 8176, 8192] {
                let plain: Vec<u8> = (0..length).map(|n| (n * 31) as u8).collect();
                let (mut ours, mut theirs) = (plain.clone(), vec![0; length + 16]);
                let tweak = [length as u8; 16];
                cipher.encrypt(&tweak, &mut ours).expect("encrypts");
                let key = &key[..cipher_kind.key_bytes()];
                let mut crypter = Crypter::new(other, Mode::Encrypt, key, Some(&tweak))
                    .expect("OpenSSL supports the cipher");
                let written = crypter.update(&plain, &mut theirs).expect("encrypts");
                assert_eq!(ours, theirs[..written], "{} {length}", cipher_kind.label());
                cipher.decrypt(&tweak, &mut ours).expect("decrypts");
                assert_eq!(ours, plain);
            }
        }
    }

    #[test]
    fn units_of_less_than_a_block_or_more_than_a_page_are_refused() {
        let mut cipher = PageCipher::new(CipherKind::Aes256).expect("the cipher is supported");
        cipher.set_key(&std::array::from_fn(|n| n as u8)).expect("a key");
        assert!(cipher.encrypt(&[0; 16], &mut [0; 15]).is_err());
        assert!(cipher.encrypt(&[0; 16], &mut vec![0; crate::UNIT_BYTES + 1]).is_err());
    }

    #[test]
    fn ieee_1619_vector_15_steals_ciphertext() {
        let plain: Vec<u8> = (0..17).collect();
        assert_vector(
            CipherKind::Aes128,
            "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0",
            "9a78563412",
            &plain,
            "6c1625db4671522d3d7599601de7ca09ed",
        );
    }
}
