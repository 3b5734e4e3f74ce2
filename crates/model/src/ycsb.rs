//! What YCSB's core workloads have in common: how a record's number becomes its key, and what a record is.

/// Fields of a record.
pub const FIELDS: u8 = 10;
/// Bytes of a field's value.
pub const FIELD_BYTES: u32 = 100;
/// The collection's name.
pub const COLLECTION: &str = "usertable";
/// What a key begins with; the hash of the record's number follows in decimal digits.
pub const KEY_PREFIX: &str = "user";
/// The greatest number of documents that a scan asks for; each from 1 on is equally likely.
pub const LONGEST_SCAN: u8 = 100;
/// How unequal popularities are: the record of rank *n* has a share of *n* to the power of minus this.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;
/// As many ranks has a scrambled distribution, whatever the number of records, so that YCSB need not add them up.
pub const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// The sum of the shares of that many ranks, as YCSB writes it.
pub const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;

/// The number in the key of record `number`, so that neighbours lie far apart: FNV-1a of its eight bytes, the lowest first,
/// taken as signed and without its sign, as YCSB's `Utils.hash` has it.
pub fn key_hash(number: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    let hash = number.to_le_bytes().into_iter().fold(FNV_OFFSET_BASIS, mix);
    hash.cast_signed().unsigned_abs()
}

/// The key of record `number`.
pub fn key(number: u64) -> String {
    format!("{KEY_PREFIX}{}", key_hash(number))
}

/// The number of the first record that a trial inserts, by its seed and the time at which it begins: one that is done again
/// on the same server has the same seed. Beyond all that are loaded, of which there are fewer than 2^32, and anywhere in 2^62
/// numbers, so that two trials that insert a million each meet with a probability of 10^-12.
pub fn first_insert(seed: u64, began_unix_ns: u64) -> u64 {
    (1 << 32) + key_hash(key_hash(seed) ^ began_unix_ns) % (1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that are well known from YCSB's own loads.
    #[test]
    fn first_keys_are_ycsbs() {
        assert_eq!(key_hash(0), 6_284_781_860_667_377_211);
        assert_eq!(key_hash(1), 8_517_097_267_634_966_620);
        assert_eq!(key(0), "user6284781860667377211");
    }

    #[test]
    fn inserts_are_beyond_what_is_loaded_and_apart() {
        let mut firsts: Vec<u64> =
            (0..100).flat_map(|seed| (0..100).map(move |began| first_insert(seed, began))).collect();
        firsts.sort_unstable();
        assert!(firsts[0] > u64::from(u32::MAX));
        assert!(*firsts.last().unwrap() < i64::MAX.unsigned_abs() / 2 + (1 << 33));
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] > 100_000_000));
    }
}
