//! Arms side by side: every round runs each once in random order; what counts are the ratios within
//! a round.

use anyhow::Result;
use ciphertoll_stats::{CONFIDENCE, LogSummary};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::arm::{Arm, Place, Sample};

/// The samples of some arms, by round.
pub struct Rounds<S = Sample> {
    samples: Vec<Vec<S>>,
}

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The geometric mean over rounds.
    pub value: f64,
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

impl Rounds {
    /// Runs every arm `rounds` times, after one round that counts for nothing.
    pub fn run(
        arms: &[Arm],
        rounds: u32,
        seed: u64,
        place: &Place<'_>,
        progress: impl FnMut(u32),
    ) -> Result<Self> {
        Self::take(arms.len(), rounds, seed, |arm| arms[arm].run(place), progress)
    }
}

impl<S> Rounds<S> {
    /// Samples by arm, each arm's by round.
    pub fn of(samples: Vec<Vec<S>>) -> Self {
        Self { samples }
    }

    /// Takes a sample of each of `count` arms in every round, in random order, after one round that counts for nothing.
    pub fn take(
        count: usize,
        rounds: u32,
        seed: u64,
        mut sample: impl FnMut(usize) -> Result<S>,
        mut progress: impl FnMut(u32),
    ) -> Result<Self> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut samples: Vec<Vec<S>> = std::iter::repeat_with(Vec::new).take(count).collect();
        for round in 0..=rounds {
            let mut order: Vec<usize> = (0..count).collect();
            order.shuffle(&mut random);
            for arm in order {
                let taken = sample(arm)?;
                if round > 0 {
                    samples[arm].push(taken);
                }
            }
            progress(round);
        }
        Ok(Self { samples })
    }

    /// Geometric mean over rounds of what `value` takes from the samples of `arm`.
    pub fn level(&self, arm: usize, value: impl Fn(&S) -> f64) -> f64 {
        let logs: Vec<f64> = self.samples[arm].iter().map(|sample| value(sample).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    }

    /// `arm` ÷ `peer` in `value`, paired in rounds.
    pub fn ratio(&self, arm: usize, peer: usize, value: impl Fn(&S) -> f64) -> Option<Ratio> {
        let pairs = self.samples[arm].iter().zip(&self.samples[peer]);
        let logs: Vec<f64> = pairs.map(|(own, other)| (value(own) / value(other)).ln()).collect();
        let summary = LogSummary::of(&logs)?;
        let interval = summary.interval(CONFIDENCE);
        Some(Ratio { value: summary.mean().exp(), low: interval.low.exp(), high: interval.high.exp() })
    }
}

impl Ratio {
    /// Whether the interval holds this value.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.2} ({:.2}–{:.2})", self.value, self.low, self.high)
    }
}
