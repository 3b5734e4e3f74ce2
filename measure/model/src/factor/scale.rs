//! The amount of data: a number of rows, or a size relative to a cache.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_number, as_text, bounded, deserialize_text};
use crate::labelled;

bounded! {
    /// Rows in a workload's largest table. More would be too many for a template.
    Scale(u32) up to 1_000_000_000, read by rows
}

as_number!(Scale of Factor::Scale.label(), "a number of rows from 1 to 1000000000");

/// A level of *scale*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleLevel {
    /// The same number of rows on every server.
    Rows(Scale),
    /// The number of rows depends on the server.
    Relative(RelativeScale),
}

/// The size of the tables relative to a cache: `0.5cache`, `1.2mem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativeScale {
    whole: ScaleBase,
    /// Exact, unlike a binary fraction, as levels are compared.
    ten_thousandths: u32,
}

labelled! {
    /// What a relative scale refers to. The label is the suffix of a level.
    pub enum ScaleBase {
        /// The server's buffers.
        Cache = "cache",
        /// The memory of the machine, or the limit of its control group.
        Memory = "mem",
    }
}

impl Scale {
    /// Small enough to load in a second, large enough for more than one page.
    pub const DEFAULT: Self = Self(10_000);
    /// Few enough for a quick full scan.
    pub const FEW: Self = Self(100);
    /// Accounts per pgbench branch.
    pub const ROWS_PER_BRANCH: u32 = 100_000;

    /// Rounded up to whole pgbench branches.
    #[must_use]
    pub fn in_whole_branches(self) -> Self {
        Self(self.branches() * Self::ROWS_PER_BRANCH)
    }

    /// pgbench's scale factor: the number of branches.
    pub fn branches(self) -> u32 {
        self.0.div_ceil(Self::ROWS_PER_BRANCH)
    }
}

impl RelativeScale {
    const ONE: u32 = 10_000;
    const MOST: u32 = 1_000 * Self::ONE;

    pub fn whole(self) -> ScaleBase {
        self.whole
    }

    /// The factor: 0.5 for `0.5cache`.
    pub fn times(self) -> f64 {
        f64::from(self.ten_thousandths) / f64::from(Self::ONE)
    }

    /// At most four decimals: more would be lost by rounding to whole rows.
    fn parse(text: &str) -> Option<Self> {
        let (times, whole) =
            ScaleBase::ALL.into_iter().find_map(|whole| Some((text.strip_suffix(whole.label())?, whole)))?;
        let (units, fraction) = times.split_once('.').unwrap_or((times, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(units) || !is_number(fraction) || fraction.len() > 4 {
            return None;
        }
        let units = units.parse::<u32>().ok()?.checked_mul(Self::ONE)?;
        let ten_thousandths = units.checked_add(format!("{fraction:0<4}").parse().ok()?)?;
        (1..=Self::MOST).contains(&ten_thousandths).then_some(Self { whole, ten_thousandths })
    }
}

impl ScaleLevel {
    /// The number of rows; for a relative level the minimum, until its server is known.
    pub(crate) fn rows(self) -> Scale {
        match self {
            Self::Rows(scale) => scale,
            Self::Relative(_) => Scale(1),
        }
    }

    pub fn relative(self) -> Option<RelativeScale> {
        match self {
            Self::Rows(_) => None,
            Self::Relative(relative) => Some(relative),
        }
    }
}

impl From<Scale> for ScaleLevel {
    fn from(scale: Scale) -> Self {
        Self::Rows(scale)
    }
}

impl fmt::Display for RelativeScale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, rest) = (self.ten_thousandths / Self::ONE, self.ten_thousandths % Self::ONE);
        let fraction = format!(".{rest:04}");
        write!(formatter, "{units}{}{}", fraction.trim_end_matches(['0', '.']), self.whole.label())
    }
}

impl fmt::Display for ScaleLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(scale) => scale.fmt(formatter),
            Self::Relative(relative) => relative.fmt(formatter),
        }
    }
}

impl FromStr for RelativeScale {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let expected = "0.0001 to 1000 times the server's buffers or the memory, such as 0.5cache or 1.2mem";
        Self::parse(text).ok_or_else(|| LevelError::out_of_range(Factor::Scale.label(), text, expected))
    }
}

impl FromStr for ScaleLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        if ScaleBase::ALL.into_iter().any(|whole| text.ends_with(whole.label())) {
            return text.parse().map(Self::Relative);
        }
        let expected = "a number of rows from 1 to 1000000000, or a size such as 0.5cache or 1.2mem";
        text.parse()
            .map(Self::Rows)
            .map_err(|_| LevelError::out_of_range(Factor::Scale.label(), text, expected))
    }
}

as_text!(RelativeScale);

impl serde::Serialize for ScaleLevel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rows(scale) => scale.serialize(serializer),
            Self::Relative(relative) => relative.serialize(serializer),
        }
    }
}

impl<'de> serde::Deserialize<'de> for ScaleLevel {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_text(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<String> {
        text.parse::<ScaleLevel>().ok().map(|level| level.to_string())
    }

    #[test]
    fn relative_levels_have_a_canonical_form() {
        for (text, expected) in [
            ("0.5cache", "0.5cache"),
            ("0.50cache", "0.5cache"),
            ("2.0cache", "2cache"),
            ("10mem", "10mem"),
            ("1.2mem", "1.2mem"),
            ("0.0001cache", "0.0001cache"),
            ("1000cache", "1000cache"),
            ("10000", "10000"),
        ] {
            assert_eq!(told(text).as_deref(), Some(expected), "{text}");
        }
        let times = "0.0462cache".parse::<RelativeScale>().unwrap();
        assert!((times.times() - 0.0462).abs() < 1e-12 && times.whole() == ScaleBase::Cache);
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "cache",
            "0cache",
            "0.00001cache",
            ".5cache",
            "5.cache",
            "1001cache",
            "-1cache",
            "+1cache",
            "1e3mem",
            "0.5 cache",
            "0.5caches",
            "1..2mem",
            "99999999999mem",
            "0.5",
            "0",
            "1000000001",
            "",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
