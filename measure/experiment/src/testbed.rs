//! What a plan is carried out on: the lab with its real servers, or a mock that runs the whole
//! pipeline in tests.

use ciphertoll_model::{Cell, Environment, Plan, Profile};

use crate::measured::Measured;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// What a plan is carried out on, before anything runs on it.
pub trait Testbed {
    /// What trials run on.
    type Ready<'a>: ReadyTestbed
    where
        Self: 'a;

    /// Clears what killed runs left behind: first of all, and where nothing else is left to do.
    fn sweep(&mut self, emit: &mut Emit<'_>) -> Result<(), TestbedError>;

    /// Does what takes long before the clock starts: servers found, templates built, servers up.
    /// Says by events what it did, and which cells cannot be measured and why.
    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<Self::Ready<'_>, TestbedError>;
}

/// Brings a treatment up, runs one trial, takes it down.
pub trait ReadyTestbed {
    /// The machine, and what the servers' CPU is read from.
    fn environment(&self) -> Environment;

    /// Times the cryptographic primitives that connects among `cells` rest on, and says by an event what they take;
    /// once in a run, before the first block.
    fn time_primitives(&mut self, cells: &[&Cell], emit: &mut Emit<'_>) -> Result<(), TestbedError>;

    /// Called once per block before its first trial: restores what takes too long to restore before every trial.
    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), TestbedError>;

    /// Brings the cell's treatment up. A treatment that is up costs nothing.
    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError>;

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError>;

    /// Whether this machine can profile anything.
    fn can_profile(&self) -> bool;

    /// Runs a trial for its samples only: sampling takes CPU time, so that its numbers do not count. The inner error
    /// is why this configuration has no profile.
    fn profile(&mut self, request: &TrialRequest<'_>) -> Result<Result<Profile, String>, TrialError>;

    fn down(&mut self) -> Result<(), TestbedError>;
}

impl<B: ReadyTestbed> ReadyTestbed for &mut B {
    fn environment(&self) -> Environment {
        (**self).environment()
    }

    fn time_primitives(&mut self, cells: &[&Cell], emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        (**self).time_primitives(cells, emit)
    }

    fn begin_block(&mut self, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        (**self).begin_block(emit)
    }

    fn up(&mut self, cell: &Cell, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        (**self).up(cell, emit)
    }

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        (**self).trial(request)
    }

    fn can_profile(&self) -> bool {
        (**self).can_profile()
    }

    fn profile(&mut self, request: &TrialRequest<'_>) -> Result<Result<Profile, String>, TrialError> {
        (**self).profile(request)
    }

    fn down(&mut self) -> Result<(), TestbedError> {
        (**self).down()
    }
}
