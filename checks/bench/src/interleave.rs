//! Alternates arms: every round runs each arm once, in random order. Results are ratios within rounds.

use anyhow::{Context, Result};
use ciphertoll_stats::{CONFIDENCE, LogSummary};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use crate::RoundArguments;
use crate::arm::{BenchArm, Sample};
use crate::setup::BenchSetup;

pub struct Rounds<S = Sample> {
    samples: Vec<Vec<S>>,
}

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Geometric mean over rounds.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Rounds {
    /// Runs every arm once per round.
    pub fn run(arms: &[BenchArm], rounds: &RoundArguments, setup: &BenchSetup<'_>) -> Result<Self> {
        Self::take(arms.len(), rounds, |arm| arms[arm].run(setup))
    }

    /// Throughput and CPU time of an arm; for all but the first, also its ratios to the first.
    pub fn line(&self, arm: usize, label: &str) -> Result<String> {
        let (rate, cpu) = (|sample: &Sample| sample.rate_per_s, |sample: &Sample| sample.cpu_us_per_op);
        let levels =
            format!("  {label:<16} {:>9.0} /s   {:>8.2} µs", self.level(arm, rate), self.level(arm, cpu));
        if arm == 0 {
            return Ok(levels);
        }
        let rate = self.ratio(0, arm, rate).context("too few rounds")?;
        let cpu = self.ratio(0, arm, cpu).context("too few rounds")?;
        Ok(format!("{levels}   rate × {rate}   CPU × {cpu}"))
    }
}

impl<S> Rounds<S> {
    pub fn of(samples: Vec<Vec<S>>) -> Self {
        Self { samples }
    }

    /// Samples `count` arms in random order in every round, after a warm-up round.
    pub fn take(
        count: usize,
        rounds: &RoundArguments,
        mut sample: impl FnMut(usize) -> Result<S>,
    ) -> Result<Self> {
        let mut random = Pcg64Mcg::seed_from_u64(rounds.seed);
        let mut samples: Vec<Vec<S>> = std::iter::repeat_with(Vec::new).take(count).collect();
        for round in 0..=rounds.rounds {
            let mut order: Vec<usize> = (0..count).collect();
            order.shuffle(&mut random);
            for arm in order {
                let taken = sample(arm)?;
                if round > 0 {
                    samples[arm].push(taken);
                }
            }
        }
        Ok(Self { samples })
    }

    /// Geometric mean of `value` over all rounds of `arm`.
    pub fn level(&self, arm: usize, value: impl Fn(&S) -> f64) -> f64 {
        let logs: Vec<f64> = self.samples[arm].iter().map(|sample| value(sample).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    }

    /// The largest of `value` over all rounds of `arm`.
    pub fn largest(&self, arm: usize, value: impl Fn(&S) -> f64) -> f64 {
        self.samples[arm].iter().map(value).fold(0.0, f64::max)
    }

    /// The ratio of `value`, `arm` ÷ `peer`, paired by round. `None` if there are too few rounds.
    pub fn ratio(&self, arm: usize, peer: usize, value: impl Fn(&S) -> f64) -> Option<Ratio> {
        let pairs = self.samples[arm].iter().zip(&self.samples[peer]);
        let logs: Vec<f64> = pairs.map(|(own, other)| (value(own) / value(other)).ln()).collect();
        let summary = LogSummary::of(&logs)?;
        let interval = summary.interval(CONFIDENCE);
        Some(Ratio { value: summary.mean().exp(), low: interval.low.exp(), high: interval.high.exp() })
    }
}

impl Ratio {
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.2} ({:.2}–{:.2})", self.value, self.low, self.high)
    }
}
