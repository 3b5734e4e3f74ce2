//! Files with a structure of their own: maps, prepared transactions, replication slots, logical decoding.

use crate::MAP_MAGIC;
use crate::cluster::crc32c;

use super::finding::FindingKind;
use super::randomness::is_not_random;

const SLOT_MAGIC: u32 = 0x0105_1CA1;
const PREPARED_MAGIC: u32 = 0x57F9_4534;
const SNAPSHOT_MAGIC: u32 = 0x51A1_E001;
const ORIGINS_MAGIC: u32 = 0x1257_DADE;
/// `LogicalRewriteMappingData`: two relations, with the database's OID at 4 and 16, and two row positions.
const MAPPING_BYTES: usize = 36;
/// The least and the most bytes of a spilled change.
const CHANGES: std::ops::RangeInclusive<u64> = 32..=1 << 31;

/// What a file of state should hold, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Map,
    Prepared,
    Slot,
    Snapshot,
    Mappings,
    Origins,
    Spilled,
    Unknown,
}

impl StateKind {
    /// For a path relative to the data directory.
    pub(super) fn of(below: &[u8]) -> Self {
        let mut parts = below.split(|&byte| byte == b'/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let name = below.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        match (first, second) {
            (b"pg_twophase", _) => Self::Prepared,
            (b"pg_replslot", _) if name == b"state" || name == b"state.tmp" => Self::Slot,
            (b"pg_replslot", _) if name.starts_with(b"xid-") => Self::Spilled,
            (b"pg_logical", b"snapshots") => Self::Snapshot,
            (b"pg_logical", b"mappings") => Self::Mappings,
            (b"pg_logical", _) if name.starts_with(b"replorigin_checkpoint") => Self::Origins,
            (b"pg_replslot" | b"pg_logical", _) => Self::Unknown,
            _ => Self::Map,
        }
    }

    /// Checks the decrypted content of a whole file.
    pub(super) fn check(self, content: &[u8]) -> Result<(), FindingKind> {
        let is_sound = match self {
            Self::Map => return check_sum(content, MAP_MAGIC, map_sum(content)),
            Self::Prepared => {
                if number(content, 4) != Some(content.len() as u32) {
                    return Err(FindingKind::Misplaced);
                }
                return check_sum(content, PREPARED_MAGIC.to_le_bytes(), at_end(content));
            }
            Self::Slot => return check_sum(content, SLOT_MAGIC.to_le_bytes(), after_sum(content)),
            Self::Snapshot => return check_sum(content, SNAPSHOT_MAGIC.to_le_bytes(), after_sum(content)),
            Self::Origins => return check_sum(content, ORIGINS_MAGIC.to_le_bytes(), at_end(content)),
            Self::Mappings => {
                let (entries, rest) = content.as_chunks::<MAPPING_BYTES>();
                rest.is_empty() && entries.iter().all(|entry| entry[4..8] == entry[16..20])
            }
            Self::Spilled => is_chain(content),
            Self::Unknown => is_not_random(content),
        };
        if is_sound { Ok(()) } else { Err(FindingKind::Misplaced) }
    }
}

fn number(content: &[u8], at: usize) -> Option<u32> {
    content.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
}

/// Checks the magic number, and whether both checksums are equal. `None` if the file is too short to have one.
fn check_sum(content: &[u8], magic: [u8; 4], sums: Option<(u32, u32)>) -> Result<(), FindingKind> {
    if !content.starts_with(&magic) {
        return Err(FindingKind::Misplaced);
    }
    match sums {
        Some((stored, computed)) if stored == computed => Ok(()),
        _ => Err(FindingKind::Damaged),
    }
}

/// The checksum of everything before, in the last 4 bytes.
fn at_end(content: &[u8]) -> Option<(u32, u32)> {
    let at = content.len().checked_sub(4)?;
    Some((number(content, at)?, crc32c(&content[..at])))
}

/// The checksum at 4, of everything from 8 on.
fn after_sum(content: &[u8]) -> Option<(u32, u32)> {
    Some((number(content, 4)?, crc32c(content.get(8..)?)))
}

/// The checksum of a map: at the end, or before version 16 with 4 bytes after it.
fn map_sum(content: &[u8]) -> Option<(u32, u32)> {
    let at = match content.len() {
        512 => 504,
        length => length.checked_sub(4)?,
    };
    Some((number(content, at)?, crc32c(&content[..at])))
}

/// Whether changes, each of which begins with its size, fill a file.
fn is_chain(content: &[u8]) -> bool {
    let mut rest = content;
    while let Some((size, _)) = rest.split_first_chunk::<8>() {
        let size = u64::from_le_bytes(*size);
        let next = usize::try_from(size).ok().and_then(|size| rest.get(size..));
        let Some(next) = next.filter(|_| CHANGES.contains(&size)) else { return false };
        rest = next;
    }
    rest.is_empty()
}
