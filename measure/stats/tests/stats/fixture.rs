//! Plans and events as a run would write them.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Arm, Auth, CellId, Clients, Event, Grid, Metric, Observation, Path, Plan, ServerKey, Size, Spec,
    TimestampedEvent, TlsVersion, VoidReason, Workload,
};
use ciphertoll_stats::{Analysis, CellAnalysis, PairedRatio};

/// Metrics of one trial.
pub(crate) type Metrics = BTreeMap<Metric, f64>;

/// Plain against TLS 1.3, one stratum: `connect` at one client.
pub(crate) fn plan(blocks: u32) -> Plan {
    plan_of(blocks, Grid { path: vec![Path::Plain, tls(TlsVersion::Tls13)], ..Grid::default() })
}

/// Plain against both TLS versions over pooled connections.
pub(crate) fn pooled_plan(blocks: u32) -> Plan {
    let path = vec![Path::Plain, tls(TlsVersion::Tls13), tls(TlsVersion::Tls12)];
    let clients = Clients::new(8).into_iter().collect();
    plan_of(blocks, Grid { path, clients, workload: vec![Workload::PointSelect], ..Grid::default() })
}

/// Two strata: `connect` and `point-select`, plain against TLS 1.3.
pub(crate) fn two_strata_plan(blocks: u32) -> Plan {
    let workload = vec![Workload::Connect, Workload::PointSelect];
    plan_of(blocks, Grid { workload, ..Grid::default() })
}

/// Plain against TLS 1.3, each with two logins: both are compared.
pub(crate) fn paths_and_auths_plan(blocks: u32) -> Plan {
    let auth = Some(vec![Auth::Native, Auth::Trust]);
    plan_of(blocks, Grid { path: vec![Path::Plain, tls(TlsVersion::Tls13)], auth, ..Grid::default() })
}

/// Plain against TLS 1.3 under a load that writes.
pub(crate) fn writing_plan(blocks: u32) -> Plan {
    let path = vec![Path::Plain, tls(TlsVersion::Tls13)];
    let clients = Clients::new(8).into_iter().collect();
    plan_of(blocks, Grid { path, clients, workload: vec![Workload::OltpReadWrite], ..Grid::default() })
}

fn tls(version: TlsVersion) -> Path {
    Path::tls(version, ServerKey::P256)
}

fn plan_of(blocks: u32, grid: Grid) -> Plan {
    let spec = Spec {
        name: "test".to_owned(),
        size: Size::Standard,
        blocks: Some(blocks),
        grids: vec![grid],
        ..Spec::quick(&[])
    };
    Plan::new(&spec, 1).expect("the grid can be planned")
}

/// One trial of a plan: which block, which cell, which copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) block: u32,
    pub(crate) cell: usize,
    pub(crate) arm: Arm,
}

impl Trial {
    /// Number of the arm within the stratum of a one-stratum plan: 0 is the second copy.
    fn number(self) -> u32 {
        if self.arm == Arm::Repeat { 0 } else { self.cell as u32 + 1 }
    }
}

/// The events of every planned trial, calibration included; `metrics` gives the observation of each.
pub(crate) fn run(plan: &Plan, metrics: impl Fn(Trial) -> Metrics) -> Vec<TimestampedEvent> {
    let mut events = Vec::new();
    for block in &plan.blocks {
        events.push(stamped(Event::BlockStarted { block: block.number }));
        for visit in &block.visits {
            let trial = Trial { block: block.number, cell: visit.cell, arm: visit.arm };
            events.push(finished(plan, trial, observation(metrics(trial))));
        }
        events.push(stamped(Event::BlockFinished { block: block.number }));
    }
    events
}

pub(crate) fn stamped(event: Event) -> TimestampedEvent {
    TimestampedEvent { at_unix_ms: 0, event }
}

pub(crate) fn observation(metrics: Metrics) -> Observation {
    let (operations, window_ns, absent) = (1_000, 2_000_000_000, BTreeMap::new());
    Observation { metrics, operations, window_ns, legs: vec![], flags: vec![], absent, hosts: None }
}

pub(crate) fn finished(plan: &Plan, trial: Trial, observation: Observation) -> TimestampedEvent {
    stamped(Event::TrialFinished {
        block: trial.block,
        cell: id(plan, trial.cell),
        arm: trial.arm,
        observation: Box::new(observation),
    })
}

pub(crate) fn voided(plan: &Plan, trial: Trial, attempt: u32) -> TimestampedEvent {
    stamped(Event::TrialVoided {
        block: trial.block,
        cell: id(plan, trial.cell),
        arm: trial.arm,
        attempt,
        reason: VoidReason::NoOperations,
    })
}

/// Replaces each trial that `lost` names by its two voided attempts.
pub(crate) fn void_trials(
    plan: &Plan,
    events: Vec<TimestampedEvent>,
    lost: impl Fn(Trial) -> bool,
) -> Vec<TimestampedEvent> {
    let replaced = events.into_iter().flat_map(|event| match trial_of(plan, &event) {
        Some(trial) if lost(trial) => vec![voided(plan, trial, 1), voided(plan, trial, 2)],
        _ => vec![event],
    });
    replaced.collect()
}

/// The trial whose observation `event` is.
pub(crate) fn trial_of(plan: &Plan, event: &TimestampedEvent) -> Option<Trial> {
    let Event::TrialFinished { block, cell, arm, .. } = &event.event else { return None };
    let cell = plan.cells.iter().position(|planned| planned.id() == *cell)?;
    Some(Trial { block: *block, cell, arm: *arm })
}

pub(crate) fn id(plan: &Plan, cell: usize) -> CellId {
    plan.cells[cell].id()
}

/// A pseudorandom number in ±1 that is the same on every run: the scatter of a block.
pub(crate) fn scatter(trial: Trial) -> f64 {
    let seed = f64::from(trial.block * 7 + trial.number() * 131 + 1);
    (seed * 12.9898).sin()
}

/// The value of every metric of a trial: 100 on the baseline, times `ratio` elsewhere, scattered by ±`spread`.
pub(crate) fn level(trial: Trial, ratio: f64, spread: f64) -> f64 {
    let effect = if trial.cell == 0 { 1.0 } else { ratio };
    100.0 * effect * (spread * scatter(trial)).exp()
}

/// The headline metrics of `connect` at one client, all at `value`.
pub(crate) fn connect_metrics(value: f64) -> Metrics {
    Metrics::from([(Metric::LatencyNsMean, value), (Metric::CpuUsPerOpTotal, value)])
}

/// The first treatment of the first stratum.
pub(crate) fn treatment(analysis: &Analysis) -> &CellAnalysis {
    &analysis.comparisons[0].cell
}

/// The ratios of [`treatment`].
pub(crate) fn ratios(analysis: &Analysis) -> &BTreeMap<Metric, PairedRatio> {
    &analysis.comparisons[0].ratios
}

/// The A/A ratios of a stratum.
pub(crate) fn repeat(analysis: &Analysis, stratum: usize) -> &BTreeMap<Metric, PairedRatio> {
    &analysis.repeat(stratum).expect("every stratum has an A/A comparison").ratios
}
