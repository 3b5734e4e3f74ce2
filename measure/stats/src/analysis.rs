//! The result of a run: the types that [`crate::analyse`] fills and reports only read.

use std::collections::BTreeMap;

use ciphertoll_model::{Absence, Arm, Cell, CellId, Flag, LegCount, Metric, VoidReason};
use schemars::JsonSchema;
use serde::Serialize;

use crate::estimate::Estimate;
use crate::verdict::{Verdict, headline_metrics};

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Of every printed interval: 0.95.
    pub confidence_level: f64,
    /// Completed blocks, calibration excluded.
    pub blocks_completed: u32,
    /// One for each planned stratum, in the plan's order.
    pub strata: Vec<StratumAnalysis>,
    /// Every comparison of every stratum, in the plan's order: first the treatments, then the A/A comparison.
    pub comparisons: Vec<Comparison>,
}

impl Analysis {
    /// Every planned cell once, in the plan's order, as measured in the first stratum that has it.
    pub fn cells(&self) -> Vec<&CellAnalysis> {
        let mut cells: BTreeMap<usize, &CellAnalysis> = BTreeMap::new();
        for (number, stratum) in self.strata.iter().enumerate() {
            let treatments = self.treatments(number).map(|comparison| &comparison.cell);
            for cell in std::iter::once(&stratum.baseline).chain(treatments) {
                cells.entry(cell.index).or_insert(cell);
            }
        }
        cells.into_values().collect()
    }

    /// The comparisons of one stratum without its A/A comparison.
    pub fn treatments(&self, stratum: usize) -> impl Iterator<Item = &Comparison> {
        self.of_stratum(stratum, Arm::Main)
    }

    /// The A/A comparison of one stratum: its baseline's second copy ÷ the first.
    pub fn repeat(&self, stratum: usize) -> Option<&Comparison> {
        self.of_stratum(stratum, Arm::Repeat).next()
    }

    /// The comparison that [`Analysis::cells`] shows `cell` from; absent for a baseline.
    pub fn comparison_of(&self, cell: &CellAnalysis) -> Option<&Comparison> {
        let mut all = self.comparisons.iter().filter(|_| cell.role == CellRole::Treatment);
        all.find(|comparison| comparison.arm == Arm::Main && comparison.cell.index == cell.index)
    }

    fn of_stratum(&self, stratum: usize, arm: Arm) -> impl Iterator<Item = &Comparison> {
        self.comparisons.iter().filter(move |found| found.stratum == stratum && found.arm == arm)
    }
}

/// A cell ÷ the baseline of one stratum, paired in blocks. A cell can be compared in several strata, for example with
/// the baseline path and with the baseline authentication.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Index into [`ciphertoll_model::Plan::strata`] and [`Analysis::strata`].
    pub stratum: usize,
    /// [`Arm::Repeat`] for the A/A comparison: its ratios differ from 1 by noise alone.
    pub arm: Arm,
    /// The compared cell in the blocks that count for this comparison.
    pub cell: CellAnalysis,
    /// By metric; metrics with fewer than two pairs are absent.
    pub ratios: BTreeMap<Metric, PairedRatio>,
    /// Headline metrics of the cell and of its baseline: geometric means over the pairs, whose quotient is the ratio.
    pub levels: BTreeMap<Metric, [Estimate; 2]>,
}

impl Comparison {
    /// The ratios that verdicts are given on, the most important first.
    pub fn headline(&self) -> impl Iterator<Item = (Metric, &PairedRatio)> {
        let metrics = headline_metrics(&self.cell.cell).iter();
        metrics.filter_map(|metric| Some((*metric, self.ratios.get(metric)?)))
    }
}

/// One cell in the blocks that count.
#[derive(Clone, Debug, PartialEq)]
pub struct CellAnalysis {
    /// Index into [`ciphertoll_model::Plan::cells`].
    pub index: usize,
    pub id: CellId,
    pub cell: Cell,
    pub role: CellRole,
    pub blocks_planned: u32,
    /// Blocks in which both its own trial and its baseline's count.
    pub blocks_used: u32,
    /// Dropped trials of either copy.
    pub voided: Vec<VoidedTrial>,
    /// Flags of the valid trials of either copy, and the number of trials that carry each kind.
    pub flags: Vec<(u32, Flag)>,
    /// Pairs with its baseline in which one trial had more checkpoints; empty on the baseline.
    pub checkpoints: UnevenCheckpoints,
    /// The negotiated parameters, summed over its trials.
    pub legs: Vec<LegCount>,
    /// Its level: geometric mean over blocks.
    pub metrics: BTreeMap<Metric, Estimate>,
    /// Why applicable metrics are absent, from the trial that was farthest from having them.
    pub absent: BTreeMap<Metric, Absence>,
}

/// Whether a cell is compared or is what others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRole {
    Baseline,
    Treatment,
}

/// A dropped trial.
#[derive(Clone, Debug, PartialEq)]
pub struct VoidedTrial {
    pub block: u32,
    pub reason: VoidReason,
}

/// Pairs of trials in which one trial had more checkpoints than the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnevenCheckpoints {
    /// Their blocks.
    pub blocks: Vec<u32>,
    /// Whether they count.
    pub pairs: UnevenPairs,
}

/// Whether pairs with uneven checkpoints count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnevenPairs {
    /// They do not count: so few are chance.
    #[default]
    Dropped,
    /// They count: so many are typical of the load.
    Counted,
}

/// A cell ÷ its baseline in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedRatio {
    /// Ratio with its 95 % interval: Student t on paired log-ratios.
    pub ratio: Estimate,
    /// Hodges–Lehmann estimate of the same ratio: checks that no single block dominates it.
    pub hodges_lehmann: f64,
    /// Paired blocks.
    pub pairs: u32,
    /// Holm-adjusted p; only for headline metrics.
    pub p_adjusted: Option<f64>,
    /// Only for headline metrics of a run that renders verdicts.
    pub verdict: Option<Verdict>,
}

/// The baseline of a stratum and its noise.
#[derive(Clone, Debug, PartialEq)]
pub struct StratumAnalysis {
    /// In the blocks in which its first copy counts.
    pub baseline: CellAnalysis,
    /// Upper 95 % limit of |A/A|, as a share, by metric: smaller differences are not claimed. Absent below six blocks.
    pub noise_floor: BTreeMap<Metric, f64>,
}
