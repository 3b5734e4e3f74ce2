//! Durations as users write them: `500ms`, `1s`, `2m`; a bare number is in seconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_vocabulary::{parse_with_unit, print_duration};

use crate::factor::as_text;

/// A duration that prints in the format it is parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a duration; write 500ms, 1s, 2m or a number of seconds, from 1 ms to 24 hours")]
pub struct SpanError {
    text: String,
}

impl Span {
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        const LONGEST_MS: f64 = 86_400_000.0;
        const UNITS_MS: [(&str, f64); 4] = [("ms", 1.0), ("s", 1e3), ("", 1e3), ("m", 60_000.0)];
        let millis = parse_with_unit(text, &UNITS_MS).map(f64::round);
        // A duration that rounds to 0 ms would not parse again.
        let valid = millis.filter(|millis| (1.0..=LONGEST_MS).contains(millis) && !text.contains(' '));
        valid
            .map(|millis| Self::from_millis(millis as u64))
            .ok_or_else(|| SpanError { text: text.to_owned() })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&print_duration(self.0, &[("m", 60_000), ("s", 1_000), ("ms", 1)]))
    }
}

as_text!(Span);
