//! AES-XTS (IEEE 1619) on data units, with a cached key schedule.

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

use crate::UNIT_BYTES;
use crate::error::CipherFailed;
use crate::xts::{CipherOperation, Xts};

pub type Tweak = [u8; 16];

/// The AES block size, which is the minimum size of an XTS data unit.
pub(crate) const BLOCK_BYTES: usize = 16;
/// The longest unit, which a tail has joined.
pub(crate) const MOST_UNIT_BYTES: usize = UNIT_BYTES + BLOCK_BYTES - 1;

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
mod tests;
