//! Durations as users write them: `500ms`, `1s`, `2m`; a bare number is in seconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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
        const LONGEST_S: f64 = 86_400.0;
        let (number, unit_s) = match text.find(|c: char| c.is_ascii_alphabetic()) {
            Some(at) => match &text[at..] {
                "ms" => (&text[..at], 1e-3),
                "s" => (&text[..at], 1.0),
                "m" => (&text[..at], 60.0),
                _ => return Err(SpanError { text: text.to_owned() }),
            },
            None => (text, 1.0),
        };
        let millis = number.parse::<f64>().map(|value| (value * unit_s * 1e3).round());
        match millis {
            // A duration that rounds to 0 ms would not parse again.
            Ok(millis) if (1.0..=LONGEST_S * 1e3).contains(&millis) => Ok(Self::from_millis(millis as u64)),
            _ => Err(SpanError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(60_000) {
            write!(formatter, "{}m", millis / 60_000)
        } else if millis.is_multiple_of(1_000) {
            write!(formatter, "{}s", millis / 1_000)
        } else {
            write!(formatter, "{millis}ms")
        }
    }
}

as_text!(Span);
