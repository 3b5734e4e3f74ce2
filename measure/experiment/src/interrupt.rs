//! Ctrl-C and SIGTERM, checked between steps and during waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ciphertoll_model::Ending;

/// Whether the user or the system wants the run to end: the number of the signal, or 0.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

const SIGINT: usize = 2;

impl Interrupt {
    /// Where the signal handler stores the signal's number.
    pub fn flag(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    /// How the run should end, if it should.
    pub fn ending(&self) -> Option<Ending> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            SIGINT => Some(Ending::Interrupted),
            _ => Some(Ending::Terminated),
        }
    }
}
