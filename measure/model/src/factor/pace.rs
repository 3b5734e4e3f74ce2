//! The pace: closed or open loop.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_text, bounded};

/// When clients begin operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// Closed loop: each client begins its next operation when the last one has ended. Finds the capacity.
    #[default]
    Closed,
    /// Open loop: operations begin at this rate, whether or not earlier ones have ended.
    PerSecond(u32),
    /// Open loop, at this share of the baseline's capacity as found in calibration.
    OfBaselineCapacity(Percent),
}

bounded! {
    /// A share of a capacity, in percent.
    Percent(u8) up to 200, read by percent
}

impl Percent {
    /// As a fraction: 0.5 for 50 %.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl Pace {
    const MAX_PER_S: u32 = 10_000_000;

    pub fn is_closed(&self) -> bool {
        *self == Self::Closed
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "closed" {
            return Some(Self::Closed);
        }
        if let Some(percent) = text.strip_suffix('%') {
            return percent.parse().ok().and_then(Percent::new).map(Self::OfBaselineCapacity);
        }
        let rate = text.strip_suffix("/s")?.parse().ok()?;
        (1..=Self::MAX_PER_S).contains(&rate).then_some(Self::PerSecond(rate))
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => formatter.write_str("closed"),
            Self::PerSecond(rate) => write!(formatter, "{rate}/s"),
            Self::OfBaselineCapacity(share) => write!(formatter, "{}%", share.percent()),
        }
    }
}

impl FromStr for Pace {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let expected = "closed, 1/s to 10000000/s, or 1% to 200% of the baseline's capacity";
        Self::parse(text).ok_or_else(|| LevelError::out_of_range(Factor::Pace.label(), text, expected))
    }
}

as_text!(Pace);
