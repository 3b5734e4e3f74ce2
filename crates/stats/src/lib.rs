//! Estimates, intervals and verdicts. Pure: a plan and the events of a run in, an [`Analysis`] out.
//!
//! The way through: [`assemble`] turns events into paired blocks, `contrast` turns the pairs of a
//! stratum into tolls ([`interval`], [`mod@holm`], [`verdict`]), [`analyse`] puts them in their places.
//! [`simulate`] draws runs with a known truth and sends them through the same contrast.

mod analysis;
pub mod assemble;
pub mod compare;
mod conclude;
mod contrast;
pub mod holm;
pub mod interval;
pub mod simulate;
mod stopping;
pub mod verdict;

pub use analysis::{
    Analysis, CellAnalysis, Doubt, Estimate, Role, StratumAnalysis, Toll, UnevenCheckpoints, UnevenPairs,
    Verdict, VoidedTrial,
};
pub use compare::{Change, ChangeVerdict, Comparison, Run, compare};
pub use conclude::{analyse, precise_enough};
pub use holm::holm;
pub use interval::{CONFIDENCE, Interval, PRECISE_HALF_WIDTH, Summary, hodges_lehmann};
pub use simulate::{Coverage, Design, Noise, coverage};
pub use verdict::{headline_metrics, margin};
