//! Constants of YCSB's core workloads, and the keys of its records.

/// Fields of a record.
pub const FIELDS: u8 = 10;
/// Bytes of a field's value.
pub const FIELD_BYTES: u32 = 100;
/// The collection's name.
pub const COLLECTION: &str = "usertable";
/// The beginning of a key; the hash of the record's number follows as decimal digits.
pub const KEY_PREFIX: &str = "user";
/// The maximum number of documents of a scan; all lengths from 1 are equally likely.
pub const LONGEST_SCAN: u8 = 100;
/// The skew: the record of rank *n* has a share of *n* to the power of minus this.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;
/// Ranks of the scrambled distribution, independent of the number of records, so that YCSB need not sum them.
pub const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// The sum of these ranks' shares, as YCSB states it.
pub const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;

/// The number in the key of record `number`: FNV-1a of its eight bytes, the lowest first, as the absolute value of a
/// signed integer, as in YCSB's `Utils.hash`. Neighbouring records get distant keys.
pub fn key_hash(number: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    let hash = number.to_le_bytes().into_iter().fold(FNV_OFFSET_BASIS, mix);
    hash.cast_signed().unsigned_abs()
}

/// The key of record `number`.
pub fn key(number: u64) -> String {
    format!("{KEY_PREFIX}{}", key_hash(number))
}

/// The number of the first record that a trial inserts, from its seed and start time, as a repeated trial has the
/// same seed. Above all loaded records, of which there are fewer than 2^32, and anywhere in 2^62 numbers: two trials
/// that insert a million records each collide with a probability of 10^-12.
pub fn first_insert(seed: u64, began_unix_ns: u64) -> u64 {
    (1 << 32) + key_hash(key_hash(seed) ^ began_unix_ns) % (1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known keys from YCSB's own loads.
    #[test]
    fn the_first_keys_equal_ycsbs() {
        assert_eq!(key_hash(0), 6_284_781_860_667_377_211);
        assert_eq!(key_hash(1), 8_517_097_267_634_966_620);
        assert_eq!(key(0), "user6284781860667377211");
    }

    #[test]
    fn inserts_are_far_from_loaded_records() {
        let mut firsts: Vec<u64> =
            (0..100).flat_map(|seed| (0..100).map(move |began| first_insert(seed, began))).collect();
        firsts.sort_unstable();
        assert!(firsts[0] > u64::from(u32::MAX));
        assert!(*firsts.last().unwrap() < i64::MAX.unsigned_abs() / 2 + (1 << 33));
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] > 100_000_000));
    }
}
