//! Simulates runs with a known truth: does the 95 % interval contain it 95 times in 100, even with the stopping rule of real
//! runs?

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

use ciphertoll_model::plan::LOOKS;
use ciphertoll_model::{Arm, Margins, Metric, Verdicts};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::analysis::PairedRatio;
use crate::contrast::{Contrast, Rules, judge};
use crate::stopping::is_precise_enough;
use crate::verdict::Losses;
use crate::verdict::Verdict;

/// The one metric of a simulated trial.
const METRIC: Metric = Metric::RatePerS;
/// The margins of a run at default size.
const MARGINS: Margins = Margins { rate_and_cpu: 0.03, latency: 0.05 };

/// The same design gives the same result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Seed of every random draw.
    pub seed: u64,
    /// Simulated runs.
    pub runs: u32,
    /// Paths that are compared with the baseline path.
    pub treatments: u32,
    /// Authentications that every path is measured with. Two or more are compared as well, path by path, as in a real run of
    /// paths and authentications.
    pub authentications: u32,
    /// The true ratio of every treatment: 1 is no effect.
    pub true_ratio: f64,
    /// Scatter of a trial on the log scale, as a standard deviation: 0.02 is 2 %. A paired
    /// log-ratio scatters √2 times as much.
    pub trial_sd: f64,
    /// Shape of that scatter.
    pub noise: Noise,
    /// Drift of the machine from one trial to the next on the log scale: standard deviation of the steps of a random walk
    /// through the whole run. Drift that the trials of a block share cancels.
    pub drift_sd: f64,
    /// Planned blocks; earlier looks are those of [`LOOKS`].
    pub max_blocks: u32,
}

/// How the trials of one cell scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Normal.
    Normal,
    /// Student's t with 3 degrees of freedom, scaled to the design's standard deviation: occasional outliers on either side.
    StudentT3,
    /// Normal, and one trial in ten is slowed by a lognormal amount with a median of three standard deviations: another tenant
    /// of the machine.
    Stalls,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Share of the treatments' 95 % intervals that contain the true ratio.
    pub covered: f64,
    /// Share of runs in which any treatment gets a verdict that claims a difference ("differs" or
    /// "real but negligible"): the rate of false alarms if the truth is 1, else the power.
    pub claimed: f64,
    /// Share of runs in which any treatment gets "differs".
    pub differs: f64,
    /// Share of runs in which an A/A comparison gets a verdict that claims a difference.
    pub repeat_claimed: f64,
    /// Mean number of blocks at which runs stopped.
    pub mean_blocks: f64,
}

/// Draws the runs of `design` and counts. Ratios, verdicts and the decision to stop come from the code that analyses real
/// runs. Standard error of a share s: √(s (1 − s) ÷ runs).
pub fn coverage(design: &Design) -> Coverage {
    let mut random = Pcg64Mcg::seed_from_u64(design.seed);
    let layout = Layout::of(design);
    let mut counts = Counts::default();
    for _ in 0..design.runs {
        let mut run = SimulatedRun::new(design, &layout);
        let ratios = run.until_stopped(&mut random);
        counts.add(&ratios, run.blocks, design.true_ratio);
    }
    counts.shares()
}

struct SimulatedRun<'a> {
    design: &'a Design,
    layout: &'a Layout,
    /// The random walk, on the log scale.
    machine: f64,
    blocks: u32,
    /// Of each comparison of each stratum, one log-ratio for each block.
    log_ratios: Vec<Vec<Vec<f64>>>,
}

/// The ratios of a simulated run, all strata together, by the arm of their comparison.
type SimulatedRatios = Vec<(Arm, PairedRatio)>;

/// What a block visits and compares.
struct Layout {
    /// The true effect of each visit, on the log scale: of every cell, then of every baseline again.
    effects: Vec<f64>,
    strata: Vec<Vec<SimulatedComparison>>,
}

/// Two visits, as indices into [`Layout::effects`].
struct SimulatedComparison {
    arm: Arm,
    visit: usize,
    baseline: usize,
}

impl Layout {
    /// Every path with every authentication. Paths are compared for each authentication; authentications, where there are
    /// several, for each path.
    fn of(design: &Design) -> Self {
        let (paths, auths) = (design.treatments as usize + 1, design.authentications.max(1) as usize);
        let cell = |path: usize, auth: usize| auth * paths + path;
        let effect = |cell: usize| {
            let (path, auth) = (cell % paths, cell / paths);
            design.true_ratio.ln() * f64::from(u8::from(path > 0) + u8::from(auth > 0))
        };
        let of_paths = (0..auths).map(|auth| (0..paths).map(|path| cell(path, auth)).collect());
        let of_auths = (0..paths).map(|path| (0..auths).map(|auth| cell(path, auth)).collect());
        // The first cell of a stratum is its baseline.
        let strata: Vec<Vec<usize>> =
            of_paths.chain(of_auths).filter(|cells: &Vec<_>| cells.len() > 1).collect();
        let repeated: BTreeSet<usize> = strata.iter().map(|cells| cells[0]).collect();
        let visits: Vec<usize> = (0..paths * auths).chain(repeated).collect();
        let comparisons = |cells: &Vec<usize>| {
            let baseline = cells[0];
            let treatments = cells[1..].iter().map(|&cell| (Arm::Main, cell));
            let repeat = visits.iter().rposition(|&cell| cell == baseline).map(|visit| (Arm::Repeat, visit));
            let visits = treatments.chain(repeat);
            visits.map(|(arm, visit)| SimulatedComparison { arm, visit, baseline }).collect()
        };
        let strata = strata.iter().map(comparisons).collect();
        Self { effects: visits.into_iter().map(effect).collect(), strata }
    }
}

impl<'a> SimulatedRun<'a> {
    fn new(design: &'a Design, layout: &'a Layout) -> Self {
        let log_ratios = layout.strata.iter().map(|stratum| vec![Vec::new(); stratum.len()]).collect();
        Self { design, layout, machine: 0.0, blocks: 0, log_ratios }
    }

    fn until_stopped(&mut self, random: &mut Pcg64Mcg) -> SimulatedRatios {
        loop {
            self.block(random);
            let is_last = self.blocks >= self.design.max_blocks;
            if !is_last && !LOOKS.contains(&self.blocks) {
                continue;
            }
            let strata = self.layout.strata.iter().zip(&self.log_ratios);
            let ratios: SimulatedRatios =
                strata.flat_map(|(comparisons, logs)| self.judge(comparisons, logs)).collect();
            if is_last || is_precise_enough(ratios.iter().map(|(_, ratio)| ratio)) {
                return ratios;
            }
        }
    }

    /// Visits every cell once and every baseline twice, in random order.
    fn block(&mut self, random: &mut Pcg64Mcg) {
        let Layout { effects, strata } = self.layout;
        let mut order: Vec<usize> = (0..effects.len()).collect();
        order.shuffle(random);
        let mut logs = vec![0.0; order.len()];
        for visit in order {
            self.machine += self.design.drift_sd * normal(random);
            logs[visit] =
                self.machine + effects[visit] + self.design.trial_sd * self.design.noise.draw(random);
        }
        for (comparison, ratios) in strata.iter().flatten().zip(self.log_ratios.iter_mut().flatten()) {
            ratios.push(logs[comparison.visit] - logs[comparison.baseline]);
        }
        self.blocks += 1;
    }

    fn judge(&self, comparisons: &[SimulatedComparison], log_ratios: &[Vec<f64>]) -> SimulatedRatios {
        let contrast = |(comparison, logs): (&SimulatedComparison, &Vec<f64>)| Contrast {
            arm: comparison.arm,
            log_ratios: BTreeMap::from([(METRIC, logs.clone())]),
            losses: Losses { attempted: self.blocks, lost: 0 },
        };
        let contrasts: Vec<Contrast> = comparisons.iter().zip(log_ratios).map(contrast).collect();
        let rules = Rules { headline: &[METRIC], margins: MARGINS, verdicts: Verdicts::Rendered };
        let judged = contrasts.iter().zip(judge(&contrasts, &rules).ratios);
        judged.filter_map(|(contrast, mut ratios)| Some((contrast.arm, ratios.remove(&METRIC)?))).collect()
    }
}

impl Noise {
    /// A draw with standard deviation 1 (before stalls).
    fn draw(self, random: &mut Pcg64Mcg) -> f64 {
        match self {
            Self::Normal => normal(random),
            Self::StudentT3 => {
                let chi_squared: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                // t with 3 degrees of freedom has variance 3, so its √3 cancels against the scale's.
                normal(random) / chi_squared.sqrt()
            }
            Self::Stalls => {
                let stall = if random.random::<f64>() < 0.1 { 3.0 * normal(random).exp() } else { 0.0 };
                normal(random) - stall
            }
        }
    }
}

/// A standard normal draw (Box & Muller 1958).
fn normal(random: &mut Pcg64Mcg) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (TAU * random.random::<f64>()).cos()
}

#[derive(Default)]
struct Counts {
    runs: u32,
    intervals: u32,
    covered: u32,
    claimed: u32,
    differs: u32,
    repeat_claimed: u32,
    blocks: u32,
}

impl Counts {
    fn add(&mut self, ratios: &SimulatedRatios, blocks: u32, true_ratio: f64) {
        let of = |wanted: Arm| ratios.iter().filter(move |(arm, _)| *arm == wanted).map(|(_, ratio)| ratio);
        let contains_truth =
            |PairedRatio { ratio, .. }: &&PairedRatio| (ratio.low()..=ratio.high()).contains(&true_ratio);
        self.runs += 1;
        self.blocks += blocks;
        self.intervals += of(Arm::Main).count() as u32;
        self.covered += of(Arm::Main).filter(contains_truth).count() as u32;
        self.claimed += u32::from(of(Arm::Main).any(|ratio| claims_difference(ratio.verdict)));
        self.differs += u32::from(of(Arm::Main).any(|ratio| ratio.verdict == Some(Verdict::Differs)));
        self.repeat_claimed += u32::from(of(Arm::Repeat).any(|ratio| claims_difference(ratio.verdict)));
    }

    fn shares(&self) -> Coverage {
        let share = |count: u32, of: u32| f64::from(count) / f64::from(of.max(1));
        Coverage {
            covered: share(self.covered, self.intervals),
            claimed: share(self.claimed, self.runs),
            differs: share(self.differs, self.runs),
            repeat_claimed: share(self.repeat_claimed, self.runs),
            mean_blocks: share(self.blocks, self.runs),
        }
    }
}

fn claims_difference(verdict: Option<Verdict>) -> bool {
    matches!(verdict, Some(Verdict::Differs | Verdict::RealButNegligible { .. }))
}
