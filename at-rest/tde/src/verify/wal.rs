//! Pages of WAL: each begins with a header that names its place.

use std::cmp::Ordering;

use crate::UNIT_BYTES;

use super::finding::FindingKind;
use super::randomness::is_not_random;

/// The part of the header that is not encrypted: magic, flags, timeline, address.
pub(super) const CLEAR_BYTES: usize = 16;
/// High byte of the magic, since version 14 and before.
const MAGICS: [u8; 2] = [0xD0, 0xD1];
/// Flags: the page begins with the rest of a record; the header is long; no page begins a full-page image; a record was
/// overwritten.
const CONTINUES: u16 = 1;
const IS_LONG: u16 = 2;
const FLAGS: u16 = 15;
const SEGMENT_NAME_DIGITS: usize = 24;

/// The first page of a segment, as its name says. `None` for files that get their final name later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedPlace {
    timeline: u32,
    address: u64,
}

/// How a page is related to the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageAge {
    Current,
    /// From before the file was recycled for another segment.
    Older,
}

impl NamedPlace {
    /// `None` also if `pg_control`, which has the size of segments, cannot be read.
    pub(super) fn of(name: &[u8], segment_bytes: u64) -> Option<Self> {
        if segment_bytes == 0 {
            return None;
        }
        let digits = std::str::from_utf8(name.get(..SEGMENT_NAME_DIGITS)?).ok()?;
        let number = |at: usize| u32::from_str_radix(&digits[at..at + 8], 16).ok();
        let (timeline, high, low) = (number(0)?, number(8)?, number(16)?);
        let address = u64::from(high) << 32 | u64::from(low).checked_mul(segment_bytes)?;
        Some(Self { timeline, address })
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn has_magic(stored: &[u8]) -> bool {
    stored.get(1).is_some_and(|high| MAGICS.contains(high))
}

/// Checks the part of a page that is not encrypted, at an offset of a file with this size.
pub(super) fn check_place(
    stored: &[u8],
    place: Option<NamedPlace>,
    offset: u64,
    file_bytes: u64,
) -> Result<PageAge, FindingKind> {
    let address = u64::from(number(stored, 8)) | u64::from(number(stored, 12)) << 32;
    let timeline = number(stored, 4);
    let is_header = has_magic(stored)
        && flags(stored) & !FLAGS == 0
        && timeline > 0
        && address.is_multiple_of(UNIT_BYTES as u64);
    if !is_header {
        return Err(if is_not_random(stored) { FindingKind::Plaintext } else { FindingKind::Misplaced });
    }
    let is_aligned = address % file_bytes.max(1) == offset;
    let Some(place) = place else {
        return if is_aligned { Ok(PageAge::Older) } else { Err(FindingKind::Misplaced) };
    };
    match (timeline.cmp(&place.timeline), address.cmp(&(place.address + offset))) {
        (Ordering::Greater, _) => Err(FindingKind::Misplaced),
        (_, Ordering::Equal) => Ok(PageAge::Current),
        // The first segment of a timeline is a copy of the one in which the timeline before ends, up to there. PostgreSQL
        // fills the rest with copies of the last page.
        (Ordering::Less, _) => Ok(PageAge::Older),
        // A recycled segment gets a later name.
        (Ordering::Equal, Ordering::Less) if is_aligned => Ok(PageAge::Older),
        (Ordering::Equal, _) => Err(FindingKind::Misplaced),
    }
}

fn flags(page: &[u8]) -> u16 {
    u16::from_le_bytes([page[2], page[3]])
}

/// Whether a page, decrypted, has the rest of its header: the length of a continued record, zeros, and in a long header the
/// sizes. Random bytes look like that once in 10^9 times.
pub(super) fn has_header(page: &[u8], file_bytes: u64) -> bool {
    let continued = number(page, 16);
    let is_continued = flags(page) & CONTINUES != 0;
    let is_short = (continued != 0) == is_continued && number(page, 20) == 0;
    let is_long = || u64::from(number(page, 32)) == file_bytes && number(page, 36) as usize == UNIT_BYTES;
    is_short && (flags(page) & IS_LONG == 0 || is_long())
}

/// Whether a text is a history of timelines, which the server also writes as `xlogtemp.PID` first.
pub(super) fn is_history(text: &[u8]) -> bool {
    let is_line = |line: &[u8]| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#") || {
            let mut parts = line.split(|&byte| byte == b'\t');
            let is_number = |part: Option<&[u8]>| {
                part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
            };
            let is_address = |part: Option<&[u8]>| {
                part.is_some_and(|part| {
                    part.contains(&b'/') && part.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'/')
                })
            };
            is_number(parts.next()) && is_address(parts.next())
        }
    };
    text.iter().all(|byte| byte.is_ascii() && *byte != 0) && text.split(|&byte| byte == b'\n').all(is_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    fn page(timeline: u32, address: u64) -> Vec<u8> {
        let mut page = vec![0x10, 0xD1, 0, 0];
        page.extend_from_slice(&timeline.to_le_bytes());
        page.extend_from_slice(&address.to_le_bytes());
        page
    }

    #[test]
    fn a_page_is_of_its_place_or_of_a_recycled_one() {
        let place = NamedPlace::of(b"000000020000000000000010", SEGMENT);
        let offset = 5 * UNIT_BYTES as u64;
        let at = |segment: u64| segment * SEGMENT + offset;
        for (timeline, address, expected) in [
            (2, at(0x10), Ok(PageAge::Current)),
            // A new timeline begins with a copy of the segment in which the old one ends.
            (1, at(0x10), Ok(PageAge::Current)),
            (2, at(0xf), Ok(PageAge::Older)),
            (1, at(0xf), Ok(PageAge::Older)),
            (1, at(0x10) - 2 * UNIT_BYTES as u64, Ok(PageAge::Older)),
            (2, at(0x11), Err(FindingKind::Misplaced)),
            (3, at(0x10), Err(FindingKind::Misplaced)),
            (3, at(0xf), Err(FindingKind::Misplaced)),
            (2, at(0x10) - UNIT_BYTES as u64, Err(FindingKind::Misplaced)),
            (2, at(0x10) + UNIT_BYTES as u64, Err(FindingKind::Misplaced)),
        ] {
            let age = check_place(&page(timeline, address), place, offset, SEGMENT);
            assert_eq!(age, expected, "{timeline} {address:x}");
        }
    }
}
