//! Durations such as `500ms`, `30s`, `2m` or `1h`; a number without a unit is seconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_vocabulary::{parse_with_unit, print_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longer ones could overflow clock arithmetic.
const LONGEST_MS: f64 = 366.0 * 86_400_000.0;

/// A duration in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(Duration);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a duration: write 500ms, 30s, 2m, 1h or a number of seconds, at most 366 days")]
pub struct DurationError {
    text: String,
}

impl HumanDuration {
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        const UNITS_MS: [(&str, f64); 5] =
            [("ms", 1.0), ("s", 1e3), ("", 1e3), ("m", 60_000.0), ("h", 3_600_000.0)];
        let valid = parse_with_unit(text, &UNITS_MS).filter(|millis| (0.0..=LONGEST_MS).contains(millis));
        let millis = valid.ok_or_else(|| DurationError { text: text.to_owned() })?;
        Ok(Self(Duration::from_millis(millis.round() as u64)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
        formatter.write_str(&print_duration(self.0, &units))
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<P: Deserializer<'de>>(deserializer: P) -> Result<Self, P::Error> {
        deserializer.deserialize_any(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = HumanDuration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"500ms\" or \"30s\", or a number of seconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<HumanDuration, E> {
        self.visit_str(&seconds.to_string())
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<HumanDuration, E> {
        self.visit_str(&seconds.to_string())
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<HumanDuration, E> {
        self.visit_str(&seconds.to_string())
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: 500ms, 30s, 2m, 1h; a bare number is seconds.",
            "type": ["string", "number"],
            "pattern": "^[0-9]+(\\.[0-9]+)?(ms|s|m|h)?$",
            "minimum": 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_printed_as_it_is_read() {
        for (text, millis, printed) in [
            ("500ms", 500, "500ms"),
            ("0.5", 500, "500ms"),
            ("30", 30_000, "30s"),
            ("90s", 90_000, "90s"),
            ("2m", 120_000, "2m"),
            ("1.5h", 5_400_000, "90m"),
            ("0", 0, "0s"),
        ] {
            let span: HumanDuration = text.parse().unwrap();
            assert_eq!(span.duration(), Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string(), printed);
            assert_eq!(printed.parse(), Ok(span));
        }
        for text in ["", "s", "-1", "1d", "1 day", "nan", "inf", "1e9h", "1m30s"] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
    }
}
