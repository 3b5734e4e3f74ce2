//! How much of its CPU time a trial may lose to the hypervisor.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;

/// The share of its CPU time that a trial may lose to the hypervisor and still count: 1–100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StealLimit(u8);

/// A limit that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1% to 100% of a trial's CPU time")]
pub struct StealLimitError;

impl StealLimit {
    /// As a fraction: 0.03 for 3 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// Whether it is the one that holds where nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for StealLimit {
    /// 3 %: less than the half-width of the narrowest intervals.
    fn default() -> Self {
        Self(3)
    }
}

impl fmt::Display for StealLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.0)
    }
}

impl FromStr for StealLimit {
    type Err = StealLimitError;

    fn from_str(text: &str) -> Result<Self, StealLimitError> {
        let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).ok_or(StealLimitError)?;
        if (1..=100).contains(&percent) { Ok(Self(percent)) } else { Err(StealLimitError) }
    }
}

as_text!(StealLimit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for text in ["1%", "3%", "100%"] {
            assert_eq!(text.parse::<StealLimit>().map(|limit| limit.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["", "3", "0%", "101%", "-1%", "2.5%", "%", "300%"] {
            assert_eq!(wrong.parse::<StealLimit>(), Err(StealLimitError), "{wrong}");
        }
        assert!((StealLimit::default().fraction() - 0.03).abs() < f64::EPSILON);
    }
}
