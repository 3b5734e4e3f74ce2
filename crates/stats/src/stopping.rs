//! When a run may stop before its last block. Real runs and simulated ones ask the same function.

use crate::contrast::Judged;
use crate::interval::is_precise;

/// Whether the run has said enough: the 95 % interval of every headline toll of every stratum, and of every A/A arm, is at
/// most ±2 % wide. False where there is no toll. It looks at widths alone: stopping on significance would find differences
/// where there are none. The A/A arm is asked too, because a single toll would now and then stop on a luckily small scatter
/// (92–93 % coverage simulated without it, see [`crate::simulate`]).
pub(crate) fn is_precise_enough(strata: &[Judged]) -> bool {
    let mut tolls = strata.iter().flat_map(Judged::headline_tolls).peekable();
    tolls.peek().is_some() && tolls.all(|toll| is_precise(&toll.ratio))
}
