//! What a published study says: its story, its numbers as printed, and its conclusions.

use super::published::Published;

/// The words and numbers of a study.
#[derive(Debug)]
pub struct Study {
    /// Who, on what machine, what was asked, what was found and what was advised, in this order.
    pub sentences: [&'static str; 5],
    pub conclusions: &'static [Conclusion],
    pub(super) numbers: fn() -> Vec<PublishedNumber>,
}

/// A number of the study's tables.
#[derive(Clone, Debug)]
pub struct PublishedNumber {
    /// The configuration in the study's words.
    pub subject: String,
    /// With its standard deviation, if published, and its unit.
    pub printed: String,
    /// Where it is measured here, and its ratio to the study's baseline; absent if it is measured nowhere.
    pub place: Option<Published>,
    /// Why it is not compared; absent if it is.
    pub unlike: Option<&'static str>,
}

/// A conclusion or finding of the authors.
#[derive(Debug)]
pub struct Conclusion {
    pub said: &'static str,
    pub claim: Claim,
}

/// Published numbers that a claim is about.
pub type Which = fn(&Published) -> bool;

/// What a conclusion means for the numbers here. A cost is the time or CPU time per operation ÷ that of the baseline.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// Each cost is in the range.
    Costs { which: Which, least: f64, most: f64 },
    /// Each cost of `more` is above each of `less`.
    Dearer { more: Which, less: Which },
    /// The costs differ at most by this factor.
    Alike { which: Which, within: f64 },
    /// Each value of `more`, not its ratio, is above each of `less`.
    Higher { more: Which, less: Which },
    /// The reason.
    NotTested(&'static str),
}

/// The study's own baseline.
pub(super) const BASELINE: &str = "baseline of the ratios: absolute values depend on the machine";

impl PublishedNumber {
    /// A number that is compared as a ratio, or the baseline of such.
    pub(super) fn new(subject: String, printed: String, place: Published, is_baseline: bool) -> Self {
        Self { subject, printed, place: Some(place), unlike: is_baseline.then_some(BASELINE) }
    }
}
