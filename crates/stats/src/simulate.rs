//! Runs with a known truth: does the 95 % interval hold it 95 times in 100, the stopping rule of real runs included?

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use ciphertoll_model::plan::LOOKS;
use ciphertoll_model::{Margins, Metric, Verdicts};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::analysis::Verdict;
use crate::contrast::{Contrast, Judged, Rules, judge};
use crate::stopping::is_precise_enough;
use crate::verdict::Losses;

/// The one metric of a simulated trial.
const METRIC: Metric = Metric::RatePerS;
/// As a run at default size has them.
const MARGINS: Margins = Margins { rate_and_cpu: 0.03, latency: 0.05 };

/// What to simulate. The same design gives the same answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Simulated runs.
    pub runs: u32,
    /// Paths that are compared with the baseline's, each.
    pub treatments: u32,
    /// Authentications that every path is measured with; from two on, they are compared, too, path by path, as in a real
    /// run of paths and authentications.
    pub authentications: u32,
    /// The true toll of every treatment, of either kind: 1 is no effect.
    pub true_ratio: f64,
    /// Scatter of a trial on the log scale, as a standard deviation: 0.02 is 2 %. A paired
    /// log-ratio scatters √2 times as much.
    pub trial_sd: f64,
    /// Shape of that scatter.
    pub noise: Noise,
    /// Drift of the machine from one trial to the next on the log scale: standard deviation of the
    /// steps of a random walk through the whole run. What trials of a block share cancels.
    pub drift_sd: f64,
    /// Blocks planned; looks before that are those of [`LOOKS`].
    pub max_blocks: u32,
}

/// How the trials of one cell scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Normal.
    Normal,
    /// Student's t with 3 degrees of freedom, scaled to the design's standard deviation: now and
    /// then a trial far out, on either side.
    StudentT3,
    /// Normal, and one trial in ten is slowed besides by a lognormal amount of which the median is
    /// three standard deviations: another tenant of the machine.
    Stalls,
}

/// What became of the simulated runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Share of the treatments' 95 % intervals that hold the true ratio.
    pub covered: f64,
    /// Share of runs in which any treatment gets a verdict that claims a difference ("differs" or
    /// "real but negligible"): the rate of false alarms where the truth is 1, else the power.
    pub claimed: f64,
    /// Share of runs in which any treatment gets "differs".
    pub differs: f64,
    /// Share of runs in which the A/A arm gets a verdict that claims a difference.
    pub repeat_claimed: f64,
    /// Mean number of blocks at which runs stopped.
    pub mean_blocks: f64,
}

/// Draws the runs of `design` and counts. Tolls, verdicts and the decision to stop are made by the
/// code that analyses real runs. Standard error of a share s: √(s (1 − s) ÷ runs).
pub fn coverage(design: &Design) -> Coverage {
    let mut random = Pcg64Mcg::seed_from_u64(design.seed);
    let layout = Layout::of(design);
    let mut counts = Counts::default();
    for _ in 0..design.runs {
        let mut run = Run::new(design, &layout);
        let judged = run.until_stopped(&mut random);
        counts.add(&judged, run.blocks, design.true_ratio);
    }
    counts.shares()
}

struct Run<'a> {
    design: &'a Design,
    layout: &'a Layout,
    /// The random walk, on the log scale.
    machine: f64,
    blocks: u32,
    /// Log-ratios by stratum.
    ratios: Vec<Ratios>,
}

/// What a block visits, and what of it is compared.
struct Layout {
    /// The true effect of each cell, on the log scale.
    effects: Vec<f64>,
    /// Cells that are visited twice: baselines.
    repeated: Vec<usize>,
    strata: Vec<SimulatedStratum>,
}

struct SimulatedStratum {
    baseline: usize,
    treatments: Vec<usize>,
}

/// Log-ratios to a stratum's baseline, block by block.
#[derive(Clone)]
struct Ratios {
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

impl<'a> Run<'a> {
    fn new(design: &'a Design, layout: &'a Layout) -> Self {
        let empty = |stratum: &SimulatedStratum| Ratios {
            repeat: Vec::new(),
            treatments: vec![Vec::new(); stratum.treatments.len()],
        };
        let ratios = layout.strata.iter().map(empty).collect();
        Self { design, layout, machine: 0.0, blocks: 0, ratios }
    }

    fn until_stopped(&mut self, random: &mut Pcg64Mcg) -> Vec<Judged> {
        loop {
            self.block(random);
            let is_last = self.blocks >= self.design.max_blocks;
            if !is_last && !LOOKS.contains(&self.blocks) {
                continue;
            }
            let judged: Vec<Judged> = self.ratios.iter().map(|ratios| self.judge(ratios)).collect();
            if is_last || is_precise_enough(&judged) {
                return judged;
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
        for (stratum, ratios) in strata.iter().zip(&mut self.ratios) {
            let baseline = main[stratum.baseline];
            let copies = repeated.iter().zip(repeats).filter(|(cell, _)| **cell == stratum.baseline);
            ratios.repeat.extend(copies.map(|(_, log)| log - baseline));
            for (logs, cell) in ratios.treatments.iter_mut().zip(&stratum.treatments) {
                logs.push(main[*cell] - baseline);
            }
        }
        self.blocks += 1;
    }

    fn judge(&self, ratios: &Ratios) -> Judged {
        let contrast = |ratios: &Vec<f64>| Contrast {
            log_ratios: BTreeMap::from([(METRIC, ratios.clone())]),
            losses: Losses { attempted: self.blocks, lost: 0 },
        };
        let treatments: Vec<_> = ratios.treatments.iter().map(contrast).collect();
        let rules = Rules { headline: &[METRIC], margins: MARGINS, verdicts: Verdicts::Rendered };
        judge(&contrast(&ratios.repeat), &treatments, &rules)
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
    fn add(&mut self, judged: &[Judged], blocks: u32, true_ratio: f64) {
        let tolls: Vec<_> =
            judged.iter().flat_map(|stratum| &stratum.treatments).flat_map(BTreeMap::values).collect();
        let holds_truth = |ratio: &crate::Estimate| (ratio.low()..=ratio.high()).contains(&true_ratio);
        self.runs += 1;
        self.blocks += blocks;
        self.intervals += tolls.len() as u32;
        self.covered += tolls.iter().filter(|toll| holds_truth(&toll.ratio)).count() as u32;
        self.claimed += u32::from(tolls.iter().any(|toll| claims_difference(toll.verdict)));
        self.differs += u32::from(tolls.iter().any(|toll| toll.verdict == Some(Verdict::Differs)));
        self.repeat_claimed += u32::from(
            judged
                .iter()
                .flat_map(|stratum| stratum.repeat.values())
                .any(|toll| claims_difference(toll.verdict)),
        );
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
