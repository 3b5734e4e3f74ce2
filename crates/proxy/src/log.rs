//! What the operator is told: a line for each event, as `key=value` pairs. Never a statement, a parameter or a secret.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};

use jiff::Timestamp;

/// How much an operator cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each client.
    Debug,
    /// Beginning and end, and each connection to the server.
    Info,
    /// What somebody should look at.
    Warn,
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

/// Writes events from a level on to stderr.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    least: Level,
}

impl Log {
    /// A log that leaves out what is below `least`.
    pub fn new(least: Level) -> Self {
        Self { least }
    }

    /// Writes an event.
    pub fn event(self, level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
        if level < self.least {
            return;
        }
        let line = line(&Timestamp::now(), level, event, fields);
        // Whoever closed stderr does not want to know.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
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
            // Escapes line ends and whatever else could pass for another line.
            write!(line, " {name}={value:?}")
        };
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let fields: [(&str, &dyn Display); 3] =
            [("client", &7), ("server", &"unix:/run/x"), ("reason", &"a \"b\"\nlevel=info event=forged")];
        let line = line(&"NOW", Level::Warn, "lost", &fields);
        let rest = r#"client=7 server=unix:/run/x reason="a \"b\"\nlevel=info event=forged""#;
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with(&format!("level=warn event=lost {rest}\n")), "{line}");
    }
}
