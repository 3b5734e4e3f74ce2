//! Estimates, intervals and verdicts. Pure: a plan and the events of a run in, an [`Analysis`] out.
//!
//! [`RunFacts`] folds the events. [`assemble`] lists the comparisons of a plan and pairs their trials in blocks,
//! `contrast` turns the pairs of a stratum into ratios ([`interval`], [`mod@holm`], [`verdict`]), and [`analyse`] returns
//! one list of [`Comparison`]s. [`simulate`] draws runs with a known truth and judges them with the same code.
//!
//! # Where to change what
//!
//! - what is compared: `model::plan`; the comparisons of a plan, `stats::assemble` (`PlannedComparison`)
//! - what reports know of events: `stats::facts`
//! - when a run stops: `stats::stopping`; the budget, `stats::elapsed`
//! - a term of the cost model: its cells, `stats::cost::fit`, and `model::presets::calibrate`; its use,
//!   `stats::cost::predict`; then `docs/measure/method.md`
//! - a rule or a need of `advise`, settings to paste: `stats::advice`, then `docs/measure/advise.md`

pub mod advice;
mod analysis;
pub mod assemble;
pub mod compare;
mod conclude;
mod contrast;
pub mod cost;
mod elapsed;
mod estimate;
mod facts;
pub mod holm;
mod hosts;
pub mod interval;
pub mod simulate;
mod stopping;
pub mod verdict;

pub use analysis::{
    Analysis, CellAnalysis, CellRole, Comparison, PairedRatio, StratumAnalysis, UnevenCheckpoints,
    UnevenPairs, VoidedTrial,
};
pub use compare::{Change, ChangeVerdict, ComparedRun, RunComparison, compare};
pub use conclude::{analyse, analyse_trials, precise_enough};
pub use cost::CostModel;
pub use elapsed::Elapsed;
pub use estimate::{Estimate, Interval};
pub use facts::{PrimitiveTimes, RunFacts, SearchedFiles, StartedServer};
pub use holm::holm;
pub use hosts::{HostTotal, HostTotals};
pub use interval::{CONFIDENCE, LogSummary, PRECISE_HALF_WIDTH, hodges_lehmann};
pub use simulate::{Coverage, Design, Noise, coverage};
pub use verdict::{Doubt, Verdict, headline_metrics, margin};
