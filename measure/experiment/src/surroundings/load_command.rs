//! The process that generates the load of a trial.

use std::process::Command;
use std::time::Duration;

pub(crate) struct LoadCommand {
    pub(crate) command: Command,
    /// How long it may take to end, in addition to set-up, warm-up and window.
    pub(crate) grace: Duration,
}
