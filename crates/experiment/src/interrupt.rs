//! Ctrl-C and SIGTERM, seen between steps and inside waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ciphertoll_model::Ending;

/// Whether the user, or the system, wants the run to end. The number is the signal's; 0: go on.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

const SIGINT: usize = 2;

impl Interrupt {
    /// Where a signal handler leaves the signal's number.
    pub fn flag(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    /// How the run is to end, if it is to.
    pub fn ending(&self) -> Option<Ending> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            SIGINT => Some(Ending::Interrupted),
            _ => Some(Ending::Terminated),
        }
    }
}
