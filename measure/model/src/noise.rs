//! How much noise of the machine a valid trial may have.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;

/// A share of 1–100 %, with a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PercentLimit<const DEFAULT_PERCENT: u8>(u8);

/// The share of its CPU time that a trial may lose to the hypervisor. The default is below the half-width of the
/// narrowest confidence intervals.
pub type StealLimit = PercentLimit<3>;

/// The mean lateness of a link's packets, as a share of its round trip.
pub type LatenessLimit = PercentLimit<1>;

/// The limits of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoiseLimits {
    /// CPU time lost to the hypervisor.
    pub steal: StealLimit,
    /// Lateness of a link's packets.
    pub lateness: LatenessLimit,
}

/// The text is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1% to 100%")]
pub struct LimitError;

impl<const DEFAULT_PERCENT: u8> PercentLimit<DEFAULT_PERCENT> {
    /// As a fraction: 0.03 for 3 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl<const DEFAULT_PERCENT: u8> Default for PercentLimit<DEFAULT_PERCENT> {
    fn default() -> Self {
        Self(DEFAULT_PERCENT)
    }
}

impl<const DEFAULT_PERCENT: u8> fmt::Display for PercentLimit<DEFAULT_PERCENT> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.0)
    }
}

impl<const DEFAULT_PERCENT: u8> FromStr for PercentLimit<DEFAULT_PERCENT> {
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
    fn a_limit_prints_in_the_format_it_is_parsed_from() {
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
