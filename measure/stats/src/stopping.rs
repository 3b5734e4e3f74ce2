//! When a run may stop before its last block. Real and simulated runs use the same rule.

use crate::analysis::PairedRatio;
use crate::interval::is_precise;

/// Whether the 95 % interval of every headline ratio, A/A comparisons included, is at most ±2 % wide. False if there is no
/// ratio. The rule looks only at widths: stopping on significance would find differences where there are none. The A/A
/// comparison is included because a single ratio would now and then stop on a luckily small scatter (92–93 % coverage
/// simulated without it, see [`crate::simulate`]).
pub(crate) fn is_precise_enough<'a>(headline: impl Iterator<Item = &'a PairedRatio>) -> bool {
    let mut headline = headline.peekable();
    headline.peek().is_some() && headline.all(|ratio| is_precise(&ratio.ratio))
}
