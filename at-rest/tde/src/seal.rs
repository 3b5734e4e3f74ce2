//! The sealed forms of `global/pg_control` and `PG_VERSION`, which keep stock PostgreSQL programs from using a cluster.
//!
//! Every stock program reads one of these files before it changes anything. `PG_VERSION` is not secret: its sealed form
//! only has to be invalid for stock programs. `pg_control` is encrypted and authenticated.
//!
//! ```text
//! pg_control on disk, 8192 bytes          PG_VERSION on disk
//!     0   16  magic                       `e` and the major version: `e15` for `15` and a newline
//!    16  464  ciphertext (AES-XTS)
//!   480   32  HMAC-SHA-256 of the first 480 bytes
//!   512       zeros
//! ```
//! Both keep their size. The content of `pg_control` is in its first 512 bytes, which a disk writes atomically; PostgreSQL
//! also relies on this.

use openssl::memcmp;

use crate::cipher::{PageCipher, Tweak};
use crate::error::Errno;
use crate::kdf::mac;

/// The size of `pg_control`, `PG_CONTROL_FILE_SIZE` in every version.
pub const CONTROL_BYTES: usize = 8192;
/// The part of `pg_control` that is read and written atomically.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Replaces the system identifier and the version of `pg_control`; no PostgreSQL version has these values.
const MAGIC: &[u8; 16] = b"ciphertoll tde 1";
/// How a seal of every version begins.
const ANY_MAGIC: &[u8] = b"ciphertoll tde";
const TAG_BYTES: usize = 32;
const TAG_AT: usize = SECTOR_BYTES - TAG_BYTES;
/// How much of `pg_control` can be sealed. PostgreSQL 18 uses less than 320 bytes.
const CONTENT_BYTES: usize = TAG_AT - MAGIC.len();
const TWEAK: Tweak = *b"global/pg_contro";

/// The maximum size of `PG_VERSION` in any version.
const VERSION_BYTES: usize = 8;
const VERSION_MARK: u8 = b'e';

/// The first sector of `pg_control` on disk.
pub(crate) type Sector = [u8; SECTOR_BYTES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealState {
    /// The file does not exist or is empty.
    Absent,
    /// In sealed form; for `pg_control`, also authentic.
    Sealed,
    /// In the form that PostgreSQL writes.
    Unsealed,
    /// Sealed with other keys, or changed afterwards.
    Forged,
    /// Sealed in the form of another version.
    OtherVersion,
}

/// Seals the plaintext of `pg_control`.
pub(crate) fn seal_control(
    cipher: &mut PageCipher,
    key: &[u8; 32],
    plaintext: &[u8; CONTROL_BYTES],
) -> Result<Sector, Errno> {
    let (content, rest) = plaintext.split_at(CONTENT_BYTES);
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Errno::IO);
    }
    let mut sector = [0; SECTOR_BYTES];
    sector[..MAGIC.len()].copy_from_slice(MAGIC);
    sector[MAGIC.len()..TAG_AT].copy_from_slice(content);
    cipher.encrypt(&TWEAK, &mut sector[MAGIC.len()..TAG_AT])?;
    let tag = mac(key, &[&sector[..TAG_AT]]);
    sector[TAG_AT..].copy_from_slice(&tag);
    Ok(sector)
}

pub(crate) fn control_seal(key: &[u8; 32], sector: &Sector) -> SealState {
    if !sector.starts_with(MAGIC) {
        let is_sealed = sector.starts_with(ANY_MAGIC);
        return if is_sealed { SealState::OtherVersion } else { SealState::Unsealed };
    }
    let tag = mac(key, &[&sector[..TAG_AT]]);
    if memcmp::eq(&tag, &sector[TAG_AT..]) { SealState::Sealed } else { SealState::Forged }
}

/// Decrypts an authentic sector. The result lacks the zeros at the end.
pub(crate) fn open_control<'a>(cipher: &mut PageCipher, sector: &'a mut Sector) -> Result<&'a [u8], Errno> {
    let content = &mut sector[MAGIC.len()..TAG_AT];
    cipher.decrypt(&TWEAK, content)?;
    Ok(content)
}

/// Whether `pg_control` looks sealed. Only the keys can authenticate it.
pub fn looks_sealed(beginning_of_control: &[u8]) -> bool {
    beginning_of_control.starts_with(MAGIC)
}

/// The content of `PG_VERSION`, sealed or as PostgreSQL writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionText {
    bytes: [u8; VERSION_BYTES],
    length: usize,
}

impl VersionText {
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = Self { bytes: [0; VERSION_BYTES], length: 0 };
        for part in parts {
            let end = text.length + part.len();
            text.bytes.get_mut(text.length..end)?.copy_from_slice(part);
            text.length = end;
        }
        Some(text)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Seals `15` and a newline. `None` if `plaintext` is not a major version.
    pub fn sealed(plaintext: &[u8]) -> Option<Self> {
        let digits = plaintext.strip_suffix(b"\n")?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if is_number { Self::of(&[&[VERSION_MARK], digits]) } else { None }
    }

    /// Reverses [`Self::sealed`]. `None` if `stored` is not sealed.
    pub fn opened(stored: &[u8]) -> Option<Self> {
        let digits = stored.strip_prefix(&[VERSION_MARK])?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if is_number { Self::of(&[digits, b"\n"]) } else { None }
    }
}

pub fn version_seal(stored: &[u8]) -> SealState {
    match stored {
        b"" => SealState::Absent,
        _ if VersionText::opened(stored).is_some() => SealState::Sealed,
        _ => SealState::Unsealed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CipherKind;

    fn cipher() -> PageCipher {
        let mut cipher = PageCipher::new(CipherKind::Aes256).expect("AES-256 is supported");
        cipher.set_key(&std::array::from_fn(|n| n as u8)).expect("two different keys");
        cipher
    }

    fn control() -> [u8; CONTROL_BYTES] {
        std::array::from_fn(|n| if n < 300 { (n * 7) as u8 } else { 0 })
    }

    #[test]
    fn a_sealed_control_file_can_be_opened_and_no_bit_can_change() {
        let key = [7; 32];
        let sealed = seal_control(&mut cipher(), &key, &control()).expect("sealed");
        assert_eq!(control_seal(&key, &sealed), SealState::Sealed);
        assert_eq!(open_control(&mut cipher(), &mut sealed.clone()), Ok(&control()[..CONTENT_BYTES]));
        assert_eq!(control_seal(&[8; 32], &sealed), SealState::Forged);
        for bit in 0..SECTOR_BYTES * 8 {
            let mut changed = sealed;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(control_seal(&key, &changed), SealState::Sealed, "bit {bit}");
        }
        assert!(!sealed.windows(8).any(|window| {
            control()[..CONTENT_BYTES]
                .windows(8)
                .any(|other| window == other && window.iter().any(|&byte| byte != 0))
        }));
    }

    #[test]
    fn a_seal_of_another_version_is_no_seal_and_no_plaintext() {
        let mut sealed = seal_control(&mut cipher(), &[7; 32], &control()).expect("sealed");
        sealed[..MAGIC.len()].copy_from_slice(b"ciphertoll tde 2");
        assert_eq!(control_seal(&[7; 32], &sealed), SealState::OtherVersion);
    }

    #[test]
    fn a_control_file_with_too_much_content_is_refused() {
        let mut large = control();
        large[CONTENT_BYTES] = 1;
        assert_eq!(seal_control(&mut cipher(), &[7; 32], &large), Err(Errno::IO));
    }

    #[test]
    fn a_sealed_version_keeps_its_length_and_is_not_a_number() {
        for plain in ["9\n", "15\n", "18\n", "100\n"] {
            let sealed = VersionText::sealed(plain.as_bytes()).expect("a version");
            assert_eq!(sealed.as_bytes().len(), plain.len());
            assert!(!sealed.as_bytes()[0].is_ascii_digit());
            assert_eq!(version_seal(sealed.as_bytes()), SealState::Sealed);
            let opened = VersionText::opened(sealed.as_bytes()).expect("a version");
            assert_eq!(opened.as_bytes(), plain.as_bytes());
        }
        for other in ["", "\n", "15", "x\n", "e15\n", "1234567890\n"] {
            assert_eq!(VersionText::sealed(other.as_bytes()), None, "{other:?}");
        }
        for other in ["15\n", "e", "e15\n", "x15", "e15x", "e1234567890"] {
            assert_eq!(VersionText::opened(other.as_bytes()), None, "{other:?}");
            assert_eq!(version_seal(other.as_bytes()), SealState::Unsealed, "{other:?}");
        }
    }
}
