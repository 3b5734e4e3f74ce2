//! Simulates runs with a known truth: does the 95 % interval contain it 95 times in 100, even with the stopping rule of real
//! runs?

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use ciphertoll_model::plan::LOOKS;
use ciphertoll_model::{Arm, Margins, Metric, Verdicts};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::analysis::{PairedRatio, Verdict};
use crate::contrast::{Contrast, Rules, judge};
use crate::stopping::is_precise_enough;
use crate::verdict::Losses;

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
    /// By stratum.
    log_ratios: Vec<StratumLogRatios>,
}

/// The ratios of a simulated run, all strata together, by the arm of their comparison.
type SimulatedRatios = Vec<(Arm, PairedRatio)>;

/// What a block visits and compares.
struct Layout {
    /// The true effect of each cell, on the log scale.
    effects: Vec<f64>,
    /// The baselines, which are visited twice.
    repeated: Vec<usize>,
    strata: Vec<SimulatedStratum>,
}

struct SimulatedStratum {
    baseline: usize,
    treatments: Vec<usize>,
}

/// Log-ratios to a stratum's baseline, block by block.
#[derive(Clone)]
struct StratumLogRatios {
    repeat: Vec<f64>,
    treatments: Vec<Vec<f64>>,
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
        let of_paths = (0..auths).map(|auth| SimulatedStratum {
            baseline: cell(0, auth),
            treatments: (1..paths).map(|path| cell(path, auth)).collect(),
        });
        let of_auths = (0..paths).map(|path| SimulatedStratum {
            baseline: cell(path, 0),
            treatments: (1..auths).map(|auth| cell(path, auth)).collect(),
        });
        let strata: Vec<_> =
            of_paths.chain(of_auths).filter(|stratum| !stratum.treatments.is_empty()).collect();
        let mut repeated: Vec<usize> = strata.iter().map(|stratum| stratum.baseline).collect();
        repeated.sort_unstable();
        repeated.dedup();
        Self { effects: (0..paths * auths).map(effect).collect(), repeated, strata }
    }
}

impl<'a> SimulatedRun<'a> {
    fn new(design: &'a Design, layout: &'a Layout) -> Self {
        let empty = |stratum: &SimulatedStratum| StratumLogRatios {
            repeat: Vec::new(),
            treatments: vec![Vec::new(); stratum.treatments.len()],
        };
        let log_ratios = layout.strata.iter().map(empty).collect();
        Self { design, layout, machine: 0.0, blocks: 0, log_ratios }
    }

    fn until_stopped(&mut self, random: &mut Pcg64Mcg) -> SimulatedRatios {
        loop {
            self.block(random);
            let is_last = self.blocks >= self.design.max_blocks;
            if !is_last && !LOOKS.contains(&self.blocks) {
                continue;
            }
            let ratios: SimulatedRatios = self.log_ratios.iter().flat_map(|logs| self.judge(logs)).collect();
            if is_last || is_precise_enough(ratios.iter().map(|(_, ratio)| ratio)) {
                return ratios;
            }
        }
    }

    /// Visits every cell once and every baseline twice, in random order.
    fn block(&mut self, random: &mut Pcg64Mcg) {
        let Layout { effects, repeated, strata } = self.layout;
        let mut order: Vec<usize> = (0..effects.len() + repeated.len()).collect();
        order.shuffle(random);
        let mut logs = vec![0.0; order.len()];
        for visit in order {
            let cell = visit.checked_sub(effects.len()).map_or(visit, |repeat| repeated[repeat]);
            self.machine += self.design.drift_sd * normal(random);
            logs[visit] =
                self.machine + effects[cell] + self.design.trial_sd * self.design.noise.draw(random);
        }
        let (main, repeats) = logs.split_at(effects.len());
        for (stratum, ratios) in strata.iter().zip(&mut self.log_ratios) {
            let baseline = main[stratum.baseline];
            let copies = repeated.iter().zip(repeats).filter(|(cell, _)| **cell == stratum.baseline);
            ratios.repeat.extend(copies.map(|(_, log)| log - baseline));
            for (logs, cell) in ratios.treatments.iter_mut().zip(&stratum.treatments) {
                logs.push(main[*cell] - baseline);
            }
        }
        self.blocks += 1;
    }

    fn judge(&self, log_ratios: &StratumLogRatios) -> SimulatedRatios {
        let contrast = |(arm, logs): (Arm, &Vec<f64>)| Contrast {
            arm,
            log_ratios: BTreeMap::from([(METRIC, logs.clone())]),
            losses: Losses { attempted: self.blocks, lost: 0 },
        };
        let treatments = log_ratios.treatments.iter().map(|logs| (Arm::Main, logs));
        let contrasts: Vec<Contrast> =
            treatments.chain([(Arm::Repeat, &log_ratios.repeat)]).map(contrast).collect();
        let rules = Rules { headline: &[METRIC], margins: MARGINS, verdicts: Verdicts::Rendered };
        let judged = judge(&contrasts, &rules).ratios;
        let of_comparison = |(contrast, ratios): (&Contrast, BTreeMap<Metric, PairedRatio>)| {
            let arm = contrast.arm;
            ratios.into_values().map(move |ratio| (arm, ratio))
        };
        contrasts.iter().zip(judged).flat_map(of_comparison).collect()
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
