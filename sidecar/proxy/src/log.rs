//! The log: one line per event, as `key=value` pairs or JSON. Statements, parameters and secrets are never
//! logged.

mod format;
mod writer;

use std::fmt::Display;
use std::time::Duration;

pub use format::{Format, Level};

/// How long the end of the process waits for stderr to take the last lines.
const FLUSH_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Writes events to stderr on a separate thread, so that a pipe that is not read does not block callers.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    min_level: Level,
    format: Format,
}

impl Log {
    pub fn new(min_level: Level, format: Format) -> Self {
        Self { min_level, format }
    }

    /// Queues an event for the writer thread. If the queue is full, the event is dropped and counted.
    pub fn event(self, level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
        if level < self.min_level {
            return;
        }
        writer::write(self.format.write(level, event, fields), self.format);
    }

    /// Waits at most two seconds until all lines are written. Called around the last line of the process.
    pub fn flush() {
        writer::flush(FLUSH_TIME_LIMIT);
    }

    /// Lines dropped since the start because stderr was not read in time.
    pub fn dropped() -> u64 {
        writer::dropped()
    }
}
