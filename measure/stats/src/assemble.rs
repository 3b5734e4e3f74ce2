//! Pairs the trials of a run: events in, paired blocks out.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{
    Absence, Arm, CellId, Event, Flag, LegCount, Metric, Observation, Plan, TimestampedEvent, VoidReason,
};

use crate::analysis::{CellRole, Comparison, UnevenCheckpoints, UnevenPairs, VoidedTrial};
use crate::verdict::Losses;

/// The trials of all completed blocks, calibration excluded.
#[derive(Debug, Default)]
pub struct Trials<'a> {
    cells: BTreeMap<CellId, usize>,
    /// The cells whose loads write: their checkpoints are part of the load.
    writing: BTreeSet<usize>,
    unfinished: BTreeMap<u32, BlockTrials<'a>>,
    completed: BTreeMap<u32, BlockTrials<'a>>,
}

/// One copy of one cell: a block visits each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visited {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    pub arm: Arm,
}

/// A visit that is compared with the first copy of its stratum's baseline. [`PlannedComparison::of_stratum`] is the only
/// place that decides what a plan compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedComparison {
    /// Index into [`Plan::strata`].
    pub stratum: usize,
    pub visited: Visited,
    /// Index into [`Plan::cells`].
    pub baseline: usize,
}

/// Two cells over the blocks in which both have a valid trial.
#[derive(Debug, Default)]
pub struct Pairs<'a> {
    /// By block: the cell's own observation and that of its baseline.
    pub observations: Vec<[&'a Observation; 2]>,
    /// The block number of each of `observations`.
    pub blocks: Vec<u32>,
    pub losses: Losses,
    /// Pairs in which one trial had more checkpoints.
    pub checkpoints: UnevenCheckpoints,
}

/// Metrics that must be equal in both trials of a pair.
const CHECKPOINTS: [Metric; 2] = [Metric::CheckpointsBegun, Metric::CheckpointsCompleted];

/// The trials of all completed blocks by their quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialCounts {
    /// All attempts.
    pub attempts: u32,
    /// Attempts that were voided.
    pub voided: u32,
    /// Valid trials with at least one flag.
    pub flagged: u32,
}

impl TrialCounts {
    /// Attempts that something disturbed: voided, or valid with a flag.
    pub fn disturbed(self) -> u32 {
        self.voided + self.flagged
    }
}

#[derive(Debug, Default)]
struct BlockTrials<'a> {
    /// `None` if the trial was voided.
    outcomes: BTreeMap<Visited, Option<&'a Observation>>,
    voided: Vec<(usize, VoidedTrial)>,
}

impl PlannedComparison {
    /// Every comparison of a plan, stratum by stratum.
    pub fn all(plan: &Plan) -> Vec<Self> {
        (0..plan.strata.len()).flat_map(|stratum| Self::of_stratum(plan, stratum)).collect()
    }

    /// The treatments of one stratum in the plan's order, then its A/A comparison.
    pub fn of_stratum(plan: &Plan, stratum: usize) -> Vec<Self> {
        let members = &plan.strata[stratum];
        let treatments = members.treatments.iter().map(|&cell| Visited { cell, arm: Arm::Main });
        let repeat = Visited { cell: members.baseline, arm: Arm::Repeat };
        let visits = treatments.chain([repeat]);
        visits.map(|visited| Self { stratum, visited, baseline: members.baseline }).collect()
    }

    /// The plan behind a comparison of an analysis.
    pub fn of(plan: &Plan, comparison: &Comparison) -> Self {
        let Comparison { stratum, arm, ref cell, .. } = *comparison;
        let visited = Visited { cell: cell.index, arm };
        Self { stratum, visited, baseline: plan.strata[stratum].baseline }
    }

    pub fn pairs<'a>(&self, trials: &Trials<'a>) -> Pairs<'a> {
        trials.pairs(self.visited, Visited { cell: self.baseline, arm: Arm::Main })
    }

    pub(crate) fn role(&self) -> CellRole {
        if self.visited.cell == self.baseline { CellRole::Baseline } else { CellRole::Treatment }
    }
}

impl<'a> Trials<'a> {
    /// Folds the events of a run.
    pub fn of(plan: &Plan, events: &'a [TimestampedEvent]) -> Self {
        let mut trials = Self::new(plan);
        for TimestampedEvent { event, .. } in events {
            trials.add(event);
        }
        trials
    }

    pub(crate) fn new(plan: &Plan) -> Self {
        let writing = plan.cells.iter().enumerate().filter(|(_, cell)| cell.workload.writes());
        Self {
            cells: plan.cells.iter().enumerate().map(|(index, cell)| (cell.id(), index)).collect(),
            writing: writing.map(|(index, _)| index).collect(),
            ..Self::default()
        }
    }

    /// Folds one event. A block that does not finish is dropped; one that begins again after a resume starts empty.
    pub(crate) fn add(&mut self, event: &'a Event) {
        match event {
            Event::BlockStarted { block } => {
                self.unfinished.insert(*block, BlockTrials::default());
            }
            Event::TrialFinished { block, cell, arm, observation } => {
                if let Some(&cell) = self.cells.get(cell) {
                    self.block(*block).outcomes.insert(Visited { cell, arm: *arm }, Some(observation));
                }
            }
            Event::TrialVoided { block, cell, arm, reason, .. } => {
                if let Some(&cell) = self.cells.get(cell) {
                    self.block(*block).void(Visited { cell, arm: *arm }, *block, reason);
                }
            }
            Event::BlockFinished { block } if *block > 0 => {
                self.completed.insert(*block, self.unfinished.remove(block).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn block(&mut self, number: u32) -> &mut BlockTrials<'a> {
        self.unfinished.entry(number).or_default()
    }

    /// Number of completed blocks.
    pub fn blocks_completed(&self) -> u32 {
        self.completed.len() as u32
    }

    /// Pairs `visited` with `against`, block by block.
    pub fn pairs(&self, visited: Visited, against: Visited) -> Pairs<'a> {
        let mut pairs = Pairs::default();
        for (&number, block) in &self.completed {
            let (Some(own), Some(other)) = (block.outcomes.get(&visited), block.outcomes.get(&against))
            else {
                continue; // never tried: the block was cut short for this cell, nothing was voided
            };
            pairs.losses.attempted += 1;
            match (own, other) {
                (Some(own), Some(other)) => {
                    pairs.observations.push([*own, *other]);
                    pairs.blocks.push(number);
                }
                _ => pairs.losses.lost += 1,
            }
        }
        if self.writing.contains(&visited.cell) {
            pairs.sort_out_checkpoints();
        }
        pairs
    }

    /// The valid trials of a copy of a cell, in the order of blocks.
    pub fn observations(&self, visited: Visited) -> impl Iterator<Item = &'a Observation> {
        self.completed.values().filter_map(move |block| *block.outcomes.get(&visited)?)
    }

    pub fn counts(&self) -> TrialCounts {
        let mut counts = TrialCounts::default();
        for block in self.completed.values() {
            let valid = block.outcomes.values().flatten();
            counts.voided += block.voided.len() as u32;
            counts.attempts += (block.voided.len() + valid.clone().count()) as u32;
            counts.flagged += valid.filter(|observation| !observation.flags.is_empty()).count() as u32;
        }
        counts
    }

    /// Each kind of flag of the valid trials of either copy of a cell: the number of trials, and the first flag as an
    /// example.
    pub fn flags(&self, cell: usize) -> Vec<(u32, Flag)> {
        let mut counts: Vec<(u32, Flag)> = Vec::new();
        let outcomes = self.completed.values().flat_map(|block| &block.outcomes);
        for observation in outcomes.filter(|(of, _)| of.cell == cell).filter_map(|(_, outcome)| *outcome) {
            for (position, flag) in observation.flags.iter().enumerate() {
                let is_same = |other: &Flag| discriminant(other) == discriminant(flag);
                if observation.flags[..position].iter().any(is_same) {
                    continue; // trials are counted, not flags
                }
                match counts.iter_mut().find(|(_, counted)| is_same(counted)) {
                    Some((trials, _)) => *trials += 1,
                    None => counts.push((1, flag.clone())),
                }
            }
        }
        counts
    }

    /// Every voided trial of either copy of a cell, including those whose repetition succeeded.
    pub fn voided(&self, cell: usize) -> Vec<VoidedTrial> {
        let of_all = self.completed.values().flat_map(|block| &block.voided);
        of_all.filter(|(of, _)| *of == cell).map(|(_, voided)| voided.clone()).collect()
    }
}

impl BlockTrials<'_> {
    /// A successful trial stays, whichever of the two events comes first.
    fn void(&mut self, visited: Visited, block: u32, reason: &VoidReason) {
        self.outcomes.entry(visited).or_insert(None);
        self.voided.push((visited.cell, VoidedTrial { block, reason: reason.clone() }));
    }
}

impl<'a> Pairs<'a> {
    /// If one trial of a pair had more checkpoints than the other, their ratio shows the checkpoints. A few such pairs are
    /// dropped. If there are too many to drop, checkpoints are part of the load and all pairs stay.
    fn sort_out_checkpoints(&mut self) {
        let is_uneven = |[own, other]: [&Observation; 2]| {
            CHECKPOINTS.iter().any(|metric| {
                let counts = own.metrics.get(metric).zip(other.metrics.get(metric));
                counts.is_some_and(|(own, other)| own.total_cmp(other).is_ne())
            })
        };
        let uneven: Vec<bool> = self.observations.iter().map(|pair| is_uneven(*pair)).collect();
        let of_blocks = self.blocks.iter().zip(&uneven).filter(|(_, is_uneven)| **is_uneven);
        self.checkpoints.blocks = of_blocks.map(|(block, _)| *block).collect();
        let dropped = self.checkpoints.blocks.len() as u32;
        let left = self.blocks.len() as u32 - dropped;
        let losses = Losses { lost: self.losses.lost + dropped, ..self.losses };
        if losses.are_too_many() || left < MIN_BLOCKS_FOR_VERDICTS {
            self.checkpoints.pairs = UnevenPairs::Counted;
            return;
        }
        self.losses = losses;
        let mut keep = uneven.iter().map(|is_uneven| !is_uneven);
        self.observations.retain(|_| keep.next().unwrap_or(true));
        let mut keep = uneven.iter().map(|is_uneven| !is_uneven);
        self.blocks.retain(|_| keep.next().unwrap_or(true));
    }

    /// Log of own ÷ other by metric, one for each block in which both have it.
    pub fn log_ratios(&self) -> BTreeMap<Metric, Vec<f64>> {
        collect_by_metric(&self.observations, |[own, other], metric| {
            Some(log_of(own, metric)? - log_of(other, metric)?)
        })
    }

    /// The logs of both trials of each pair that has them.
    pub fn logs(&self, metric: Metric) -> Vec<(f64, f64)> {
        let both = |[own, other]: &[&Observation; 2]| Some((log_of(own, metric)?, log_of(other, metric)?));
        self.observations.iter().filter_map(both).collect()
    }

    /// Own ÷ other in one metric, block by block: `(block, ratio)`, in the order of blocks. They show a drift over the run.
    pub fn ratios_by_block(&self, metric: Metric) -> Vec<(u32, f64)> {
        let ratio = |(&block, &[own, other]): (&u32, &[&Observation; 2])| {
            Some((block, (log_of(own, metric)? - log_of(other, metric)?).exp()))
        };
        self.blocks.iter().zip(&self.observations).filter_map(ratio).collect()
    }

    /// The cell's own values by metric in the paired blocks. Values without a logarithm are left out, unless the metric may
    /// be 0.
    pub fn values(&self) -> BTreeMap<Metric, Vec<f64>> {
        collect_by_metric(&self.observations, |[own, _], metric| {
            let value = own.metrics.get(&metric).copied().filter(|value| value.is_finite());
            value.filter(|_| metric.may_be_zero() || log_of(own, metric).is_some())
        })
    }

    /// The negotiated parameters, summed, in order of first appearance.
    pub fn legs(&self) -> Vec<LegCount> {
        let mut sums: Vec<LegCount> = Vec::new();
        for seen in self.own().flat_map(|observation| &observation.legs) {
            match sums.iter_mut().find(|sum| sum.leg == seen.leg) {
                Some(sum) => sum.add(seen),
                None => sums.push(seen.clone()),
            }
        }
        sums
    }

    /// Why metrics of the cell are absent, from the trial that was farthest from having them.
    pub fn absences(&self) -> BTreeMap<Metric, Absence> {
        let mut all: BTreeMap<Metric, Absence> = BTreeMap::new();
        for (metric, absence) in self.own().flat_map(|observation| &observation.absent) {
            all.entry(*metric).and_modify(|known| *known = known.worse(*absence)).or_insert(*absence);
        }
        all
    }

    fn own(&self) -> impl Iterator<Item = &'a Observation> {
        self.observations.iter().map(|[own, _]| *own)
    }
}

fn collect_by_metric<'a>(
    observations: &[[&'a Observation; 2]],
    value: impl Fn([&'a Observation; 2], Metric) -> Option<f64>,
) -> BTreeMap<Metric, Vec<f64>> {
    let mut by_metric: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for &pair in observations {
        for &metric in Metric::ALL {
            if let Some(value) = value(pair, metric) {
                by_metric.entry(metric).or_default().push(value);
            }
        }
    }
    by_metric
}

/// A value that is not a positive number has no logarithm and counts as not measured.
fn log_of(observation: &Observation, metric: Metric) -> Option<f64> {
    observation.metrics.get(&metric).map(|value| value.ln()).filter(|log| log.is_finite())
}
