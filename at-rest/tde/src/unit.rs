//! Encryption of one unit: a page, or a shorter unit at the end of a file.
//!
//! A unit of zeros is stored as zeros, so that holes of sparse files and pages that were never written need no special
//! case. A file shorter than an AES block is `XOR`ed with a key stream, and its zeros are encrypted.

use std::ops::RangeInclusive;

use crate::cipher::{PageCipher, Tweak};
use crate::error::Errno;
use crate::xts::{BLOCK_BYTES, CipherOperation};
use crate::{FileClass, UNIT_BYTES};

/// The start of a WAL page header, which stays unencrypted: magic, flags, timeline, address.
const WAL_HEADER_BYTES: usize = 16;
/// High byte of a WAL page's magic: 0xD1 since version 14, 0xD0 before.
const WAL_MAGICS: [u8; 2] = [0xD0, 0xD1];

/// How much of a WAL segment [`is_plain_segment`] examines.
pub const SEGMENT_START_BYTES: usize = 40;
/// The segment sizes that `initdb --wal-segsize` permits.
const SEGMENT_BYTES: RangeInclusive<u32> = 1 << 20..=1 << 30;

/// Encrypts or decrypts unit `number` of a file.
pub(crate) fn transform(
    cipher: &mut PageCipher,
    class: FileClass,
    operation: CipherOperation,
    number: u64,
    unit: &mut [u8],
) -> Result<(), Errno> {
    if unit.len() >= BLOCK_BYTES && is_zero(unit) {
        return Ok(());
    }
    if matches!(class, FileClass::Wal | FileClass::XlogTemp) {
        return transform_wal(cipher, class, operation, unit);
    }
    let mut tweak = [0; BLOCK_BYTES];
    tweak[..8].copy_from_slice(&(class.first_page() + number).to_le_bytes());
    if unit.len() != class.unit_bytes() {
        tweak[8..10].copy_from_slice(&(unit.len() as u16).to_le_bytes());
    }
    transform_bytes(cipher, class, operation, tweak, unit)
}

fn transform_wal(
    cipher: &mut PageCipher,
    class: FileClass,
    operation: CipherOperation,
    unit: &mut [u8],
) -> Result<(), Errno> {
    let is_page = unit.get(1).is_some_and(|magic| WAL_MAGICS.contains(magic));
    let Some((header, rest)) = unit.split_at_mut_checked(WAL_HEADER_BYTES).filter(|_| is_page) else {
        // xlogtemp.PID may become a history file, which is text. In a segment, such bytes would be unencrypted data.
        let refused = operation == CipherOperation::Encrypt && class == FileClass::Wal;
        return if refused { Err(Errno::IO) } else { Ok(()) };
    };
    let mut tweak = [0; BLOCK_BYTES];
    tweak[..12].copy_from_slice(&header[4..]);
    if rest.is_empty() { Ok(()) } else { transform_bytes(cipher, class, operation, tweak, rest) }
}

fn transform_bytes(
    cipher: &mut PageCipher,
    class: FileClass,
    operation: CipherOperation,
    mut tweak: Tweak,
    bytes: &mut [u8],
) -> Result<(), Errno> {
    if bytes.len() < BLOCK_BYTES {
        // Pages are written as a whole. A shorter end would use the same key stream in every copy of the cluster.
        if class.is_paged() && operation == CipherOperation::Encrypt {
            return Err(Errno::IO);
        }
        tweak[15] ^= 0x80 | bytes.len() as u8;
        let mut stream = [0; BLOCK_BYTES];
        cipher.encrypt(&tweak, &mut stream)?;
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
        return Ok(());
    }
    match operation {
        CipherOperation::Encrypt => cipher.encrypt(&tweak, bytes)?,
        CipherOperation::Decrypt => cipher.decrypt(&tweak, bytes)?,
    }
    Ok(())
}

/// Whether a file that begins like this, `xlogtemp.PID`, becomes a history file: text, which is not encrypted. It may contain
/// any bytes where a page would have its magic, so only its beginning tells.
pub fn begins_history(start: [u8; 2]) -> bool {
    start != [0; 2] && !WAL_MAGICS.contains(&start[1])
}

/// Whether the WAL segment that begins with these bytes is unencrypted. Its long header contains the segment size and
/// the page size, after the bytes that are unencrypted in every segment.
pub fn is_plain_segment(start: &[u8; SEGMENT_START_BYTES]) -> bool {
    let number = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let (segment_bytes, page_bytes) = (number(32), number(36));
    let is_size = segment_bytes.is_power_of_two() && SEGMENT_BYTES.contains(&segment_bytes);
    WAL_MAGICS.contains(&start[1]) && is_size && page_bytes as usize == UNIT_BYTES
}

/// Whether all bytes are zero. For most pages, the first word decides.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<16>();
    chunks.iter().all(|chunk| u128::from_ne_bytes(*chunk) == 0) && rest.iter().all(|&byte| byte == 0)
}
