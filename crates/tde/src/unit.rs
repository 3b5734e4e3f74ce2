//! One unit: a page, or the shorter rest at a file's end.
//!
//! A unit of zeros is a unit of zeros on disk, too: holes of sparse files and pages that were never written mean the
//! same on both sides. Where less than a block is left there is no room for that: a key stream is added to such a rest,
//! and zeros of it are written like anything else.

use std::ops::RangeInclusive;

use crate::cipher::{BLOCK_BYTES, PageCipher, Tweak};
use crate::error::Errno;
use crate::{Place, UNIT_BYTES};

/// What a page of the write-ahead log begins with, in clear: magic, flags, timeline, address.
const WAL_HEADER_BYTES: usize = 16;
/// The higher byte of a log page's magic: 0xD1 of every version since 14, 0xD0 before.
const WAL_MAGICS: [u8; 2] = [0xD0, 0xD1];

/// The bytes at the start of a segment by which [`is_plain_segment`] decides.
pub const SEGMENT_START_BYTES: usize = 40;
/// What `initdb --wal-segsize` permits.
const SEGMENT_BYTES: RangeInclusive<u32> = 1 << 20..=1 << 30;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

/// Encrypts or decrypts the unit that is the `number`th of its file.
pub(crate) fn transform(
    cipher: &mut PageCipher,
    place: Place,
    direction: Direction,
    number: u64,
    unit: &mut [u8],
) -> Result<(), Errno> {
    if unit.len() >= BLOCK_BYTES && is_zero(unit) {
        return Ok(());
    }
    if matches!(place, Place::Wal | Place::WalDraft) {
        return transform_wal(cipher, place, direction, unit);
    }
    let mut tweak = [0; BLOCK_BYTES];
    tweak[..8].copy_from_slice(&(place.first_page() + number).to_le_bytes());
    if unit.len() != place.unit_bytes() {
        tweak[8..10].copy_from_slice(&(unit.len() as u16).to_le_bytes());
    }
    transform_bytes(cipher, direction, tweak, unit)
}

fn transform_wal(
    cipher: &mut PageCipher,
    place: Place,
    direction: Direction,
    unit: &mut [u8],
) -> Result<(), Errno> {
    let is_page = unit.get(1).is_some_and(|magic| WAL_MAGICS.contains(magic));
    let Some((header, rest)) = unit.split_at_mut_checked(WAL_HEADER_BYTES).filter(|_| is_page) else {
        // A history file is drafted under a segment's name. In a segment such bytes would be data in clear.
        let refused = direction == Direction::Encrypt && place == Place::Wal;
        return if refused { Err(Errno::IO) } else { Ok(()) };
    };
    let mut tweak = [0; BLOCK_BYTES];
    tweak[..12].copy_from_slice(&header[4..]);
    if rest.is_empty() { Ok(()) } else { transform_bytes(cipher, direction, tweak, rest) }
}

fn transform_bytes(
    cipher: &mut PageCipher,
    direction: Direction,
    mut tweak: Tweak,
    bytes: &mut [u8],
) -> Result<(), Errno> {
    if bytes.len() < BLOCK_BYTES {
        tweak[15] ^= 0x80 | bytes.len() as u8;
        let mut stream = [0; BLOCK_BYTES];
        cipher.encrypt(&tweak, &mut stream)?;
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
        return Ok(());
    }
    match direction {
        Direction::Encrypt => cipher.encrypt(&tweak, bytes)?,
        Direction::Decrypt => cipher.decrypt(&tweak, bytes)?,
    }
    Ok(())
}

/// Whether a WAL segment that begins with these bytes is not encrypted: its long header says how large segments and pages
/// are, after the bytes that are clear in every segment.
pub fn is_plain_segment(start: &[u8; SEGMENT_START_BYTES]) -> bool {
    let number = |at: usize| u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]);
    let (segment_bytes, page_bytes) = (number(32), number(36));
    let is_size = segment_bytes.is_power_of_two() && SEGMENT_BYTES.contains(&segment_bytes);
    WAL_MAGICS.contains(&start[1]) && is_size && page_bytes as usize == UNIT_BYTES
}

/// Whether all bytes are zero. Almost every page shows in its first word that they are not.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<16>();
    chunks.iter().all(|chunk| u128::from_ne_bytes(*chunk) == 0) && rest.iter().all(|&byte| byte == 0)
}
