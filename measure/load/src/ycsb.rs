//! YCSB's distributions: popularity of records, and the numbers of inserted records.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ciphertoll_model::ycsb::{SCRAMBLED_RANKS, SCRAMBLED_ZETA, ZIPFIAN_CONSTANT, key_hash};

/// Ranks whose shares are summed one by one; the others by the Euler-Maclaurin formula, exact to ten digits here.
const SUMMED_RANKS: u64 = 100;

/// Zipf-distributed ranks, as YCSB's `ZipfianGenerator` draws them: by the approximation of Gray et al., "Quickly
/// generating billion-record synthetic databases" (SIGMOD 1994).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipfian {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// For a number of ranks, at least one.
    pub(crate) fn over(ranks: u64) -> Self {
        let ranks = ranks.max(1);
        Self::of(ranks, zeta(ranks))
    }

    fn of(ranks: u64, zeta_of_ranks: f64) -> Self {
        let rest = 1.0 - ZIPFIAN_CONSTANT;
        // Not used for two ranks or fewer.
        let eta = (1.0 - (2.0 / ranks as f64).powf(rest)) / (1.0 - zeta(2) / zeta_of_ranks);
        Self { ranks, zeta: zeta_of_ranks, eta }
    }

    /// The rank for `uniform` in 0 to 1; 0 is the most popular.
    pub(crate) fn rank(&self, uniform: f64) -> u64 {
        let share = uniform * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < 1.0 + 0.5_f64.powf(ZIPFIAN_CONSTANT) {
            return 1.min(self.ranks - 1);
        }
        let alpha = 1.0 / (1.0 - ZIPFIAN_CONSTANT);
        let rank = self.ranks as f64 * (self.eta * uniform - self.eta + 1.0).powf(alpha);
        (rank as u64).min(self.ranks - 1)
    }
}

/// The ranks of scrambled draws. YCSB counts from 0 up to and including their number, so there is one more.
pub(crate) fn scrambled_ranks() -> Zipfian {
    Zipfian::of(SCRAMBLED_RANKS + 1, SCRAMBLED_ZETA)
}

/// The record that `rank` is mapped to.
pub(crate) fn scrambled(rank: u64, records: u64) -> u64 {
    key_hash(rank) % records.max(1)
}

/// The generalised harmonic number: the sum of all ranks' shares.
fn zeta(ranks: u64) -> f64 {
    let share = |rank: u64| (rank as f64).powf(-ZIPFIAN_CONSTANT);
    let summed: f64 = (1..=ranks.min(SUMMED_RANKS)).map(share).sum();
    if ranks <= SUMMED_RANKS {
        return summed;
    }
    let (from, to) = (SUMMED_RANKS as f64, ranks as f64);
    let rest = 1.0 - ZIPFIAN_CONSTANT;
    let integral = (to.powf(rest) - from.powf(rest)) / rest;
    let ends = (share(ranks) - share(SUMMED_RANKS)) / 2.0;
    let slopes = ZIPFIAN_CONSTANT / 12.0 * (share(SUMMED_RANKS) / from - share(ranks) / to);
    summed + integral + ends + slopes
}

/// The numbers of the records that a trial's clients insert, over all threads.
#[derive(Debug)]
pub(crate) struct Inserts {
    first: u64,
    begun: AtomicU64,
    /// All records before this number have been acknowledged.
    acknowledged: AtomicU64,
    /// Acknowledged records after that: at most as many as there are concurrent inserts.
    beyond: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    pub(crate) fn from(first: u64) -> Self {
        Self { first, begun: AtomicU64::new(0), acknowledged: AtomicU64::new(0), beyond: Mutex::default() }
    }

    pub(crate) fn begin(&self) -> u64 {
        self.first + self.begun.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn acknowledge(&self, number: u64) {
        let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond.insert(number.saturating_sub(self.first));
        let mut acknowledged = self.acknowledged.load(Ordering::Relaxed);
        while beyond.remove(&acknowledged) {
            acknowledged += 1;
        }
        self.acknowledged.store(acknowledged, Ordering::Release);
    }

    /// A record with Zipf-distributed age, for `uniform` in 0 to 1; `loaded` records existed before all inserts.
    pub(crate) fn latest(&self, loaded: u64, uniform: f64) -> u64 {
        let records = loaded + self.acknowledged.load(Ordering::Acquire);
        let number = records.saturating_sub(Zipfian::over(records).rank(uniform) + 1);
        match number.checked_sub(loaded) {
            Some(insert) if records > 0 => self.first + insert,
            _ => number,
        }
    }
}

#[cfg(test)]
mod tests;
