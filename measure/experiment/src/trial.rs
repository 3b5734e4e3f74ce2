//! What is requested of a trial, and why there is no result.

use ciphertoll_model::{Arm, Cell, Event, ExitCode, Timing, TrialPace, VoidReason};

pub type Emit<'a> = dyn FnMut(Event) + 'a;

#[derive(Clone, Copy, Debug)]
pub struct TrialRequest<'a> {
    pub cell: &'a Cell,
    /// Which copy of the cell. Only the truth experiment treats the copies differently.
    pub arm: Arm,
    /// When operations begin. A share of the capacity is already a rate.
    pub pace: TrialPace,
    pub timing: Timing,
    pub seed: u64,
    pub max_per_s: Option<u32>,
    pub query: Option<&'a str>,
}

/// Why a trial yielded nothing.
#[derive(Debug)]
pub enum TrialError {
    Void(VoidReason),
    Interrupted,
    Fatal(TestbedError),
}

/// Why a bench cannot continue, in one line, with the exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TestbedError {
    pub message: String,
    pub exit_code: ExitCode,
}
