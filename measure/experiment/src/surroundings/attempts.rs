//! Attempts at a tunnel or proxy before the run, and the check that it has survived a trial.

use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Cell, Event};

use crate::surroundings::instance::skip;
use crate::trial::Emit;

/// Time in which a process that was killed during a trial has ended.
const DYING: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Call it if the load has failed: a killed process closes its connections some milliseconds before it exits.
pub(crate) fn check_for_a_while(
    mut check: impl FnMut() -> Result<(), ciphertoll_lab::Error>,
) -> Result<(), ciphertoll_lab::Error> {
    let deadline = Instant::now() + DYING;
    while Instant::now() < deadline {
        check()?;
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// What was tried before the run, each once, and whether it works.
pub(crate) struct Attempts<K>(Vec<(K, Result<(), String>)>);

impl<K: PartialEq> Attempts<K> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Tries `key` unless it was tried before. If it does not work, `cell` is skipped with the reason.
    pub(crate) fn require(
        &mut self,
        key: K,
        cell: &Cell,
        emit: &mut Emit<'_>,
        attempt: impl FnOnce(&mut Emit<'_>) -> Result<(), String>,
    ) {
        let known = self.0.iter().position(|(before, _)| *before == key);
        let at = known.unwrap_or_else(|| {
            emit(Event::Preparing { what: format!("trying {}", cell.treatment.path) });
            let works = attempt(emit);
            self.0.push((key, works));
            self.0.len() - 1
        });
        if let Err(reason) = &self.0[at].1 {
            skip(cell, reason, emit);
        }
    }
}
