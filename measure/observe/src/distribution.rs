//! How often each value was seen, in little memory: a sorted map, since most pairs have few different values.

use std::collections::BTreeMap;

/// Counts of values, which are rounded to `BITS` significant bits: smaller ones are exact, larger ones are wrong by at most one
/// part in 2^`BITS`.
pub(crate) struct Distribution<const BITS: u32>(BTreeMap<u64, u64>);

impl<const BITS: u32> Distribution<BITS> {
    pub(crate) fn add(&mut self, value: u64) {
        *self.0.entry(Self::rounded(value)).or_default() += 1;
    }

    /// The value at this rank; `None` if there is none.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.0.values().sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut below = 0;
        self.0.iter().find_map(|(value, times)| {
            below += times;
            (below >= rank).then_some(*value)
        })
    }

    /// Each value, and how often it was seen.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(value, times)| (*value, *times))
    }

    fn rounded(value: u64) -> u64 {
        let cut = (u64::BITS - value.leading_zeros()).saturating_sub(BITS);
        if cut == 0 {
            return value;
        }
        (value.saturating_add(1 << (cut - 1)) >> cut) << cut
    }
}

impl<const BITS: u32> Default for Distribution<BITS> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact_and_large_ones_are_near() {
        let mut times = Distribution::<8>::default();
        assert_eq!(times.percentile(50), None);
        for value in [1, 2, 255, 1_000_000] {
            times.add(value);
        }
        assert_eq!([25, 50, 75].map(|percent| times.percentile(percent)), [Some(1), Some(2), Some(255)]);
        assert!(times.percentile(100).unwrap().abs_diff(1_000_000) <= 1_000_000 / 256);
        times.add(u64::MAX);
        assert!(times.percentile(100).unwrap() >= u64::MAX / 256 * 255);
    }

    #[test]
    fn many_different_values_take_little_memory() {
        let mut times = Distribution::<8>::default();
        for value in 0..1_000_000 {
            times.add(value * 3_600);
        }
        assert!(times.iter().count() < 4_000);
    }
}
