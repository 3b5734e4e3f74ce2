//! Tells ciphertext from other data. Ciphertext of XTS looks like random bytes: none of these signs occurs in it by chance.

use crate::UNIT_BYTES;
use crate::xts::BLOCK_BYTES;

/// From this size on, the frequencies of bytes are examined.
const LEAST_COUNTED_BYTES: usize = 4096;
/// The chi-squared statistic of random bytes has a mean of 255 and a standard deviation of 22.6.
const MOST_CHI_SQUARED: u64 = 700;
/// Consecutive blocks of text. By chance, one in 10^20 positions has that many.
const TEXT_BLOCKS: usize = 3;

/// Whether bytes cannot be ciphertext: a block of zeros, two equal blocks, a text, or frequencies that are not random.
pub(super) fn is_not_random(bytes: &[u8]) -> bool {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    has_equal_blocks(blocks) || has_text(blocks) || has_frequent_bytes(bytes)
}

/// Zeros are equal to a block that is added. Does not allocate, because it also runs in the server.
fn has_equal_blocks(blocks: &[[u8; BLOCK_BYTES]]) -> bool {
    let mut sorted = [0; UNIT_BYTES / BLOCK_BYTES + 1];
    blocks.chunks(sorted.len() - 1).any(|blocks| {
        for (number, block) in sorted.iter_mut().zip(blocks) {
            *number = u128::from_ne_bytes(*block);
        }
        sorted[blocks.len()] = 0;
        let sorted = &mut sorted[..=blocks.len()];
        sorted.sort_unstable();
        sorted.array_windows().any(|[one, next]| one == next)
    })
}

fn has_text(blocks: &[[u8; BLOCK_BYTES]]) -> bool {
    let is_text = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r');
    let mut run = 0;
    blocks.iter().any(|block| {
        run = if block.iter().all(is_text) { run + 1 } else { 0 };
        run >= TEXT_BLOCKS
    })
}

fn has_frequent_bytes(bytes: &[u8]) -> bool {
    if bytes.len() < LEAST_COUNTED_BYTES {
        return false;
    }
    let mut counts = [0_u64; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    // The statistic is the sum of (count - n/256)^2 / (n/256), which is 256/n * (sum of squares) - n.
    let total = bytes.len() as u64;
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    256 * squares > total * (total + MOST_CHI_SQUARED)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn random_bytes_are_random_and_pieces_of_plaintext_are_not() {
        let mut bytes = vec![0; 8192];
        for _ in 0..2000 {
            rand::rng().fill(&mut bytes[..]);
            assert!(!is_not_random(&bytes));
            assert!(!is_not_random(&bytes[..512]));
        }
        let with = |at: usize, piece: &[u8]| {
            let mut changed = bytes.clone();
            changed[at..at + piece.len()].copy_from_slice(piece);
            is_not_random(&changed)
        };
        assert!(with(4096, &[0; 16]));
        assert!(with(4096, &[7; 32]));
        assert!(with(4096, &[b'a'; 48]));
        assert!(with(1, &[9; 1000]));
        assert!(!with(1, b"short"));
        let few: Vec<u8> =
            (0..8192_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x7F).collect();
        assert!(is_not_random(&few));
    }
}
