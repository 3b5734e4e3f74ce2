//! How much of a machine's noise a trial may have met and still count.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;

/// A share of 1–100 %, with the one that holds where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit<const DEFAULT_PERCENT: u8>(u8);

/// The share of its CPU time that a trial may lose to the hypervisor: by default less than the half-width of the
/// narrowest intervals.
pub type StealLimit = Limit<3>;

/// The share of its round trip that a link's packets may be late by, on average.
pub type LatenessLimit = Limit<1>;

/// What a trial may have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoiseLimits {
    /// Time lost to the hypervisor.
    pub steal: StealLimit,
    /// Packets of a link that were late.
    pub lateness: LatenessLimit,
}

/// A limit that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1% to 100%")]
pub struct LimitError;

impl<const DEFAULT_PERCENT: u8> Limit<DEFAULT_PERCENT> {
    /// As a fraction: 0.03 for 3 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// Whether it is the one that holds where nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl<const DEFAULT_PERCENT: u8> Default for Limit<DEFAULT_PERCENT> {
    fn default() -> Self {
        Self(DEFAULT_PERCENT)
    }
}

impl<const DEFAULT_PERCENT: u8> fmt::Display for Limit<DEFAULT_PERCENT> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.0)
    }
}

impl<const DEFAULT_PERCENT: u8> FromStr for Limit<DEFAULT_PERCENT> {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).ok_or(LimitError)?;
        if (1..=100).contains(&percent) { Ok(Self(percent)) } else { Err(LimitError) }
    }
}

as_text!(StealLimit, LatenessLimit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for text in ["1%", "3%", "100%"] {
            assert_eq!(text.parse::<StealLimit>().map(|limit| limit.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["", "3", "0%", "101%", "-1%", "2.5%", "%", "300%"] {
            assert_eq!(wrong.parse::<StealLimit>(), Err(LimitError), "{wrong}");
        }
        assert!((StealLimit::default().fraction() - 0.03).abs() < f64::EPSILON);
        assert!((LatenessLimit::default().fraction() - 0.01).abs() < f64::EPSILON);
    }
}
