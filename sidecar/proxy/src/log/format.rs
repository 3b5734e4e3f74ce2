//! Events as lines: `key=value` pairs or JSON.

use std::fmt::{Display, Write as _};

use clap::ValueEnum;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How important an event is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Each client.
    Debug,
    /// Start, stop, and each server connection.
    #[default]
    Info,
    /// Events that need attention.
    Warn,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `name=value` pairs after the time.
    #[default]
    Text,
    /// One object per line: `ts`, `level`, `event` and the event's own fields.
    Json,
}

impl Level {
    fn label(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
        }
    }
}

impl Format {
    pub(super) fn write(self, level: Level, event: &str, fields: &[(&str, &dyn Display)]) -> String {
        let now = Timestamp::now();
        match self {
            Self::Text => line(&now, level, event, fields),
            Self::Json => json(&now, level, event, fields),
        }
    }
}

pub(super) fn report(format: Format, dropped: u64) -> String {
    let reason = format!("{dropped} log lines were dropped: stderr was not read in time");
    format.write(Level::Warn, "log-lines-dropped", &[("count", &dropped), ("reason", &reason)])
}

fn line(time: &dyn Display, level: Level, event: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = format!("{time:.3} level={} event={event}", level.label());
    for (name, value) in fields {
        let value = value.to_string();
        let plain = |c: char| c.is_alphanumeric() || "-_./:@%+".contains(c);
        // Writing to a string cannot fail.
        let _ = if !value.is_empty() && value.chars().all(plain) {
            write!(line, " {name}={value}")
        } else {
            // Escapes line ends, which could otherwise forge a line.
            write!(line, " {name}={value:?}")
        };
    }
    line.push('\n');
    line
}

fn json(time: &dyn Display, level: Level, event: &str, fields: &[(&str, &dyn Display)]) -> String {
    let time = format!("{time:.3}");
    let own: [(&str, &dyn Display); 3] = [("ts", &time), ("level", &level.label()), ("event", &event)];
    let members = own.iter().chain(fields).map(|(name, value)| {
        let text = value.to_string();
        // Numbers stay numbers for programs that add them up.
        let value = text.parse::<u64>().map_or(Value::String(text), Value::from);
        format!("{}:{value}", Value::from(*name))
    });
    format!("{{{}}}\n", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, &dyn Display); 3] =
        [("client", &7), ("server", &"unix:/run/x"), ("reason", &"a \"b\"\nlevel=info event=forged")];

    #[test]
    fn an_event_is_one_line_or_object_whatever_it_contains() {
        let line = line(&"NOW", Level::Warn, "lost", &FIELDS);
        let rest = r#"client=7 server=unix:/run/x reason="a \"b\"\nlevel=info event=forged""#;
        assert!(line.ends_with(&format!("level=warn event=lost {rest}\n")), "{line}");
        let json = json(&"NOW", Level::Warn, "lost", &FIELDS);
        assert_eq!((line.matches('\n').count(), json.matches('\n').count()), (1, 1));
        let expected = serde_json::json!({
            "ts": "NOW", "level": "warn", "event": "lost", "client": 7, "server": "unix:/run/x",
            "reason": "a \"b\"\nlevel=info event=forged",
        });
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected);
    }
}
