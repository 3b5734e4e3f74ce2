//! AES-XTS (IEEE 1619) on whole data units, with the key schedule kept from one to the next.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

use crate::error::CipherFailed;
use crate::xts::{Way, Xts};

/// The tweak of a data unit.
pub type Tweak = [u8; 16];

/// A block of AES: the least that XTS can take.
pub(crate) const BLOCK_BYTES: usize = 16;

/// Which cipher: how long AES's keys are, of which XTS takes two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// AES-128-XTS.
    Aes128,
    /// AES-256-XTS.
    Aes256,
    /// None: what is written is what was given. For measuring what all else costs, and for nothing else.
    Null,
}

impl Strength {
    /// Every one that encrypts.
    pub const ALL: [Self; 2] = [Self::Aes128, Self::Aes256];

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes128 => "aes-128-xts",
            Self::Aes256 => "aes-256-xts",
            Self::Null => "null (not encrypted)",
        }
    }

    /// Bytes of both keys.
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128 => 32,
            Self::Aes256 => 64,
            Self::Null => 0,
        }
    }

    /// Whether what is written is anything but what was given.
    pub const fn encrypts(self) -> bool {
        !matches!(self, Self::Null)
    }
}

/// The cipher of one file: takes a key without allocating, and then only a tweak for each unit.
pub struct PageCipher(Library);

/// Whose AES it is: each with a context for either way.
enum Library {
    /// AES-256, where it is the faster.
    AwsLc { encrypt: Xts, decrypt: Xts },
    /// AES-128, which AWS-LC does not have as XTS.
    OpenSsl { encrypt: CipherCtx, decrypt: CipherCtx },
    /// Nothing is encrypted.
    None,
}

impl PageCipher {
    /// A cipher that awaits its key ([`Self::set_key`]).
    pub fn new(strength: Strength) -> Result<Self, CipherFailed> {
        Ok(Self(match strength {
            Strength::Aes256 => {
                Library::AwsLc { encrypt: Xts::new(Way::Encrypt)?, decrypt: Xts::new(Way::Decrypt)? }
            }
            Strength::Aes128 => {
                let cipher = Cipher::fetch(None, strength.label(), None)?;
                let (mut encrypt, mut decrypt) = (CipherCtx::new()?, CipherCtx::new()?);
                encrypt.encrypt_init(Some(&cipher), None, None)?;
                decrypt.decrypt_init(Some(&cipher), None, None)?;
                Library::OpenSsl { encrypt, decrypt }
            }
            Strength::Null => Library::None,
        }))
    }

    /// Takes the first [`Strength::key_bytes`] of a key.
    pub fn set_key(&mut self, key: &[u8; 64]) -> Result<(), CipherFailed> {
        match &mut self.0 {
            Library::AwsLc { encrypt, decrypt } => {
                encrypt.set_key(key)?;
                decrypt.set_key(key)
            }
            Library::OpenSsl { encrypt, decrypt } => {
                let key = &key[..Strength::Aes128.key_bytes()];
                encrypt.encrypt_init(None, Some(key), None)?;
                Ok(decrypt.decrypt_init(None, Some(key), None)?)
            }
            Library::None => Ok(()),
        }
    }

    /// Encrypts a unit of at least one block in place; what is no multiple of one steals ciphertext.
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

    /// Decrypts what [`Self::encrypt`] made.
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
    fn answers(strength: Strength, keys: &str, tweak: &str, plain: &[u8], sealed: &str) {
        let mut cipher = PageCipher::new(strength).expect("there is such a cipher");
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
    fn no_cipher_changes_nothing() {
        let mut cipher = PageCipher::new(Strength::Null).expect("nothing can fail");
        let mut unit = [7; 32];
        cipher.set_key(&[1; 64]).expect("takes any");
        cipher.encrypt(&[2; 16], &mut unit).expect("does nothing");
        assert_eq!(unit, [7; 32]);
        cipher.decrypt(&[2; 16], &mut unit).expect("does nothing");
        assert_eq!(unit, [7; 32]);
        assert!(!Strength::Null.encrypts() && Strength::ALL.into_iter().all(Strength::encrypts));
    }

    /// The system's OpenSSL is another library by other people.
    #[test]
    fn openssl_encrypts_the_same() {
        use openssl::symm::{Cipher, Crypter, Mode};
        let key: [u8; 64] = std::array::from_fn(|n| (n * 7 + 1) as u8);
        for (strength, other) in
            [(Strength::Aes128, Cipher::aes_128_xts()), (Strength::Aes256, Cipher::aes_256_xts())]
        {
            let mut cipher = PageCipher::new(strength).expect("there is such a cipher");
            cipher.set_key(&key).expect("a key");
            for length in [16, 17, 31, 32, 512, 4095, 8176, 8192] {
                let plain: Vec<u8> = (0..length).map(|n| (n * 31) as u8).collect();
                let (mut ours, mut theirs) = (plain.clone(), vec![0; length + 16]);
                let tweak = [length as u8; 16];
                cipher.encrypt(&tweak, &mut ours).expect("encrypts");
                let key = &key[..strength.key_bytes()];
                let mut crypter =
                    Crypter::new(other, Mode::Encrypt, key, Some(&tweak)).expect("a cipher of OpenSSL's");
                let written = crypter.update(&plain, &mut theirs).expect("encrypts");
                assert_eq!(ours, theirs[..written], "{} {length}", strength.label());
                cipher.decrypt(&tweak, &mut ours).expect("decrypts");
                assert_eq!(ours, plain);
            }
        }
    }

    #[test]
    fn what_is_less_than_a_block_or_more_than_a_unit_is_refused() {
        let mut cipher = PageCipher::new(Strength::Aes256).expect("there is such a cipher");
        cipher.set_key(&std::array::from_fn(|n| n as u8)).expect("a key");
        assert!(cipher.encrypt(&[0; 16], &mut [0; 15]).is_err());
        assert!(cipher.encrypt(&[0; 16], &mut vec![0; crate::UNIT_BYTES + 1]).is_err());
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
