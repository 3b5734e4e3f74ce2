//! The log: one line per event, as `key=value` pairs or JSON. Statements, parameters and secrets are never
//! logged.

mod format;
mod writer;

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

pub use format::{Format, Level};

/// How long the end of the process waits for stderr to take the last lines.
const FLUSH_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Writes events to stderr on a separate thread, so that a pipe that is not read does not block callers.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    min_level: Level,
    format: Format,
    /// The name of the server that the events are about, if the process has several servers.
    server: Option<&'static str>,
}

/// The names of servers, each stored once however often the settings are read. A log is copied with each
/// event, so it refers to a name here instead of owning one.
static SERVERS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

impl Log {
    pub fn new(min_level: Level, format: Format) -> Self {
        Self { min_level, format, server: None }
    }

    /// The log of one of several servers.
    pub(crate) fn of_server(self, name: &str) -> Self {
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.get(name).copied();
        let name = known.unwrap_or_else(|| Box::leak(name.to_owned().into_boxed_str()));
        servers.insert(name);
        Self { server: Some(name), ..self }
    }

    /// Whether it is the log of one of several servers.
    pub(crate) fn has_server(self) -> bool {
        self.server.is_some()
    }

    /// Queues an event for the writer thread. If the queue is full, the event is dropped and counted.
    pub fn event(self, level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
        if level < self.min_level {
            return;
        }
        let line = match &self.server {
            Some(name) => {
                let name: (&str, &dyn Display) = ("server_name", name);
                self.format.write(level, event, &[&[name], fields].concat())
            }
            None => self.format.write(level, event, fields),
        };
        writer::write(line, self.format);
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
