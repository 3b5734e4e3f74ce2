//! Pages of relations: whether a page is one, and its checksum.

use crate::UNIT_BYTES;

/// `PG_PAGE_LAYOUT_VERSION` since version 8.3, with the page size.
const SIZE_AND_VERSION: u16 = UNIT_BYTES as u16 | 4;
const HEADER_BYTES: u16 = 24;
/// `PD_VALID_FLAG_BITS`.
const FLAGS: u16 = 7;
const SPECIAL_ALIGNMENT: u16 = 8;
const CHECKSUM_AT: usize = 8;

/// The checksum's 32 parallel FNV-1a sums, and their initial values (`checksum_impl.h`).
const SUMS: usize = 32;
const PRIME: u32 = 16_777_619;
const INITIAL_SUMS: [u32; SUMS] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

fn number(page: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

/// Whether bytes begin with the header of a page. Random bytes do so once in about 10^12 times.
pub(super) fn has_header(page: &[u8]) -> bool {
    if page.len() < usize::from(HEADER_BYTES) {
        return false;
    }
    let [flags, lower, upper, special, version] = [10, 12, 14, 16, 18].map(|at| number(page, at));
    version == SIZE_AND_VERSION
        && flags & !FLAGS == 0
        && (HEADER_BYTES..=upper).contains(&lower)
        && upper <= special
        && special <= UNIT_BYTES as u16
        && special.is_multiple_of(SPECIAL_ALIGNMENT)
}

/// The position in WAL of the last change.
pub(super) fn lsn(page: &[u8; UNIT_BYTES]) -> u64 {
    let half = |at| u64::from(u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]));
    half(0) << 32 | half(4)
}

/// Whether the checksum is that of a page at this block of its relation.
pub(super) fn has_checksum(page: &[u8; UNIT_BYTES], block: u64) -> bool {
    checksum(page, block as u32) == number(page, CHECKSUM_AT)
}

fn checksum(page: &[u8; UNIT_BYTES], block: u32) -> u16 {
    let round = |sum: u32, value: u32| {
        let mixed = sum ^ value;
        mixed.wrapping_mul(PRIME) ^ (mixed >> 17)
    };
    let mut sums = INITIAL_SUMS;
    let (words, _) = page.as_chunks::<4>();
    for (row, words) in words.chunks(SUMS).enumerate() {
        for (column, (sum, word)) in sums.iter_mut().zip(words).enumerate() {
            // The checksum itself counts as 0.
            let value = if (row, column) == (0, CHECKSUM_AT / 4) {
                u32::from_le_bytes([0, 0, word[2], word[3]])
            } else {
                u32::from_le_bytes(*word)
            };
            *sum = round(*sum, value);
        }
    }
    let folded = sums.iter().fold(0, |folded, &sum| folded ^ round(round(sum, 0), 0));
    ((folded ^ block) % 65_535 + 1) as u16
}
