//! From what happened to what counts: events in, paired blocks out.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{
    Absence, Arm, CellId, Event, Flag, LegCount, Metric, Observation, Plan, TimestampedEvent, VoidReason,
};

use crate::analysis::{UnevenCheckpoints, UnevenPairs, VoidedTrial};
use crate::verdict::Losses;

/// The trials of all completed blocks, calibration excluded.
#[derive(Debug)]
pub struct Trials<'a> {
    blocks: BTreeMap<u32, Block<'a>>,
    /// The cells whose loads write: checkpoints are their own doing.
    writing: BTreeSet<usize>,
}

/// One copy of one cell: what a block visits once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visited {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    /// Which copy.
    pub arm: Arm,
}

/// Two cells over the blocks in which both have a valid trial.
#[derive(Debug, Default)]
pub struct Pairs<'a> {
    /// By block: the cell's own observation and that of what it is compared with.
    pub observations: Vec<[&'a Observation; 2]>,
    /// The number of the block that each of `observations` is from.
    pub blocks: Vec<u32>,
    /// What was tried and lost.
    pub losses: Losses,
    /// Where one of the two had more checkpoints.
    pub checkpoints: UnevenCheckpoints,
}

/// What must be alike in both trials of a pair.
const CHECKPOINTS: [Metric; 2] = [Metric::CheckpointsBegun, Metric::CheckpointsCompleted];

#[derive(Debug, Default)]
struct Block<'a> {
    outcomes: BTreeMap<Visited, Outcome<'a>>,
    voided: Vec<(usize, VoidedTrial)>,
}

#[derive(Clone, Copy, Debug)]
enum Outcome<'a> {
    Observed(&'a Observation),
    Voided,
}

impl<'a> Trials<'a> {
    /// Reads the events of a run. A block that did not finish is dropped; one that begins again
    /// (after a resume) forgets what it had.
    pub fn of(plan: &Plan, events: &'a [TimestampedEvent]) -> Self {
        let index: BTreeMap<CellId, usize> =
            plan.cells.iter().enumerate().map(|(index, cell)| (cell.id(), index)).collect();
        let mut open: BTreeMap<u32, Block<'a>> = BTreeMap::new();
        let mut blocks = BTreeMap::new();
        for TimestampedEvent { event, .. } in events {
            match event {
                Event::BlockStarted { block } => {
                    open.insert(*block, Block::default());
                }
                Event::TrialFinished { block, cell, arm, observation } => {
                    if let Some(&cell) = index.get(cell) {
                        open.entry(*block).or_default().observe(Visited { cell, arm: *arm }, observation);
                    }
                }
                Event::TrialVoided { block, cell, arm, reason, .. } => {
                    if let Some(&cell) = index.get(cell) {
                        open.entry(*block).or_default().void(Visited { cell, arm: *arm }, *block, reason);
                    }
                }
                Event::BlockFinished { block } if *block > 0 => {
                    blocks.insert(*block, open.remove(block).unwrap_or_default());
                }
                _ => {}
            }
        }
        let writing = plan.cells.iter().enumerate().filter(|(_, cell)| cell.workload.writes());
        Self { blocks, writing: writing.map(|(index, _)| index).collect() }
    }

    /// Number of completed blocks.
    pub fn blocks_completed(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Pairs `visited` with `against`, block by block.
    pub fn pairs(&self, visited: Visited, against: Visited) -> Pairs<'a> {
        let mut pairs = Pairs::default();
        for (&number, block) in &self.blocks {
            let (Some(own), Some(other)) = (block.outcomes.get(&visited), block.outcomes.get(&against))
            else {
                continue; // never tried: the block was cut short for this cell, nothing was voided
            };
            pairs.losses.attempted += 1;
            match (own, other) {
                (Outcome::Observed(own), Outcome::Observed(other)) => {
                    pairs.observations.push([own, other]);
                    pairs.blocks.push(number);
                }
                _ => pairs.losses.lost += 1,
            }
        }
        if self.writing.contains(&visited.cell) {
            pairs.see_to_checkpoints();
        }
        pairs
    }

    /// Every voided trial of a cell, of either copy, also where its repetition then succeeded.
    pub fn voided(&self, cell: usize) -> Vec<VoidedTrial> {
        let of_all = self.blocks.values().flat_map(|block| &block.voided);
        of_all.filter(|(of, _)| *of == cell).map(|(_, voided)| voided.clone()).collect()
    }
}

impl<'a> Block<'a> {
    fn observe(&mut self, visited: Visited, observation: &'a Observation) {
        self.outcomes.insert(visited, Outcome::Observed(observation));
    }

    /// A trial that succeeded stays, whichever of the two was told first.
    fn void(&mut self, visited: Visited, block: u32, reason: &VoidReason) {
        self.outcomes.entry(visited).or_insert(Outcome::Voided);
        self.voided.push((visited.cell, VoidedTrial { block, reason: reason.clone() }));
    }
}

impl<'a> Pairs<'a> {
    /// Where one trial of a pair had more checkpoints than the other, their ratio is that of the checkpoints. A few such pairs
    /// are dropped; where they are too many to be dropped, checkpoints are a part of the load, and all of them stay.
    fn see_to_checkpoints(&mut self) {
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

    /// Own ÷ other in one metric, block by block: `(block, ratio)`, in the order of blocks. What the tolls
    /// are means of, so that a drift over the run can be seen.
    pub fn ratios_by_block(&self, metric: Metric) -> Vec<(u32, f64)> {
        let ratio = |(&block, &[own, other]): (&u32, &[&Observation; 2])| {
            Some((block, (log_of(own, metric)? - log_of(other, metric)?).exp()))
        };
        self.blocks.iter().zip(&self.observations).filter_map(ratio).collect()
    }

    /// The cell's own values by metric, over the paired blocks; all of them have a logarithm, unless they may be 0.
    pub fn values(&self) -> BTreeMap<Metric, Vec<f64>> {
        collect_by_metric(&self.observations, |[own, _], metric| {
            let value = own.metrics.get(&metric).copied().filter(|value| value.is_finite());
            value.filter(|_| metric.may_be_zero() || log_of(own, metric).is_some())
        })
    }

    /// What the cell negotiated, summed, in order of first appearance.
    pub fn legs(&self) -> Vec<LegCount> {
        let mut sums: Vec<LegCount> = Vec::new();
        for seen in self.own().flat_map(|observation| &observation.legs) {
            match sums.iter_mut().find(|sum| sum.leg == seen.leg) {
                Some(sum) => sum.connections += seen.connections,
                None => sums.push(seen.clone()),
            }
        }
        sums
    }

    /// Each kind of flag of the cell's trials: on how many trials, and the first as example.
    pub fn flags(&self) -> Vec<(u32, Flag)> {
        let mut counts: Vec<(u32, Flag)> = Vec::new();
        for observation in self.own() {
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

    /// Why numbers of the cell are absent, as in the trial that was farthest from having them.
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

/// What is not a positive number has no logarithm and counts as not measured.
fn log_of(observation: &Observation, metric: Metric) -> Option<f64> {
    observation.metrics.get(&metric).map(|value| value.ln()).filter(|log| log.is_finite())
}
