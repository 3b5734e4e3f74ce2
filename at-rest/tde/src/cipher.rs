//! AES-256-XTS (IEEE 1619) on data units, with a cached key schedule.

use crate::error::CipherFailed;
use crate::xts::{CipherOperation, Xts};

pub type Tweak = [u8; 16];

/// The cipher of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherKind {
    Aes256,
    /// No encryption. Only for measuring the cost of everything but the cipher.
    Null,
}

impl CipherKind {
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes256 => "aes-256-xts",
            Self::Null => "null (not encrypted)",
        }
    }

    pub const fn encrypts(self) -> bool {
        !matches!(self, Self::Null)
    }
}

/// The cipher of one file. Setting a key does not allocate; each unit needs only a tweak.
pub struct PageCipher(Option<Contexts>);

/// One per direction.
struct Contexts {
    encrypt: Xts,
    decrypt: Xts,
}

impl PageCipher {
    /// [`Self::set_key`] must be called before the cipher is used.
    pub fn new(cipher_kind: CipherKind) -> Result<Self, CipherFailed> {
        Ok(Self(match cipher_kind {
            CipherKind::Aes256 => Some(Contexts {
                encrypt: Xts::new(CipherOperation::Encrypt)?,
                decrypt: Xts::new(CipherOperation::Decrypt)?,
            }),
            CipherKind::Null => None,
        }))
    }

    /// Sets both keys of XTS.
    pub fn set_key(&mut self, key: &[u8; 64]) -> Result<(), CipherFailed> {
        let Some(Contexts { encrypt, decrypt }) = &mut self.0 else { return Ok(()) };
        encrypt.set_key(key)?;
        decrypt.set_key(key)
    }

    /// Encrypts a unit of at least one block in place. A partial last block uses ciphertext stealing.
    pub fn encrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), CipherFailed> {
        self.0.as_mut().map_or(Ok(()), |contexts| contexts.encrypt.run(tweak, unit))
    }

    /// Reverses [`Self::encrypt`].
    pub fn decrypt(&mut self, tweak: &Tweak, unit: &mut [u8]) -> Result<(), CipherFailed> {
        self.0.as_mut().map_or(Ok(()), |contexts| contexts.decrypt.run(tweak, unit))
    }
}

#[cfg(test)]
mod tests;
