//! The two loops that drive a thread's clients: closed, where each begins when it has ended, and open, where a
//! schedule says when.

use std::time::Instant;

use ciphertoll_net::{Reactor, Readiness, Ready};

use crate::Error;
use crate::recorder::{Operation, Recorder};
use crate::schedule::Schedule;
use crate::window::Window;

/// A small machine that does operations, one at a time.
pub(crate) trait Client {
    /// What the clients of a thread have in common.
    type Shared<'a>;

    /// Does what comes before an operation and is no part of it.
    fn prepare(&mut self, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<Turn, Error>;

    /// Begins an operation; only after [`Turn::Free`].
    fn begin(&mut self, at: Instant, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<(), Error>;

    /// Goes on.
    fn ready(
        &mut self,
        readiness: Readiness,
        shared: &mut Self::Shared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error>;
}

/// What became of a call.
pub(crate) enum Turn {
    /// It waits for its socket.
    Pending,
    /// It can begin an operation.
    Free,
    /// It has ended one, and is to prepare for the next.
    Ended(Operation),
}

/// A thread's clients, and what drives them.
pub(crate) struct Drive<'a, 's, C: Client> {
    pub(crate) clients: Vec<C>,
    pub(crate) shared: &'a mut C::Shared<'s>,
    pub(crate) reactor: &'a mut Reactor,
    pub(crate) recorder: &'a mut Recorder,
}

impl<C: Client> Drive<'_, '_, C> {
    /// Until the window has closed. A client that fails stops; once all have, there is nothing to wait for.
    pub(crate) fn closed(&mut self, window: Window) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if let Err(error) = self.prepare_and_begin(key, Instant::now()) {
                self.recorder.error(&error);
            }
        }
        let mut batch = Vec::new();
        loop {
            let left = window.closes.saturating_duration_since(Instant::now());
            if left.is_zero() || self.all_failed() {
                return Ok(());
            }
            batch.extend(self.reactor.wait(left)?);
            for event in batch.drain(..) {
                if let Err(error) = self.go_on(event) {
                    self.recorder.error(&error);
                }
            }
        }
    }

    fn go_on(&mut self, event: Ready) -> Result<(), Error> {
        match self.ready(event)? {
            Turn::Pending => Ok(()),
            Turn::Free => self.begin(event.key, Instant::now()),
            Turn::Ended(operation) => {
                self.recorder.closed(&operation);
                // A closed loop: the next operation begins where this one ended.
                self.prepare_and_begin(event.key, operation.ended)
            }
        }
    }

    fn prepare_and_begin(&mut self, key: usize, at: Instant) -> Result<(), Error> {
        match self.prepare(key)? {
            Turn::Free => self.begin(key, at),
            Turn::Pending | Turn::Ended(_) => Ok(()),
        }
    }

    /// As `schedule` says, until all that was due in the window is done or has had its time.
    pub(crate) fn open(&mut self, window: Window, mut schedule: Schedule) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            self.prepare_for(&mut schedule, key, window.starts);
        }
        let mut batch = Vec::new();
        loop {
            self.begin_due(&mut schedule);
            let now = Instant::now();
            if schedule.is_over(now) || self.all_failed() {
                break;
            }
            if let Some(at) = schedule.wake_at() {
                self.reactor.wake_at(at)?;
            }
            let end = if now < window.closes { window.closes } else { schedule.ends() };
            batch.extend(self.reactor.wait(end.saturating_duration_since(now))?);
            for event in batch.drain(..) {
                self.go_on_with(&mut schedule, event);
                // Not after the batch: what is due would wait for other clients' answers.
                self.begin_due(&mut schedule);
            }
        }
        self.recorder.unfinished(schedule.unfinished());
        Ok(())
    }

    fn begin_due(&mut self, schedule: &mut Schedule) {
        loop {
            let now = Instant::now();
            let Some(due) = schedule.begin(now) else { return };
            if let Err(error) = self.begin(due.client, now) {
                schedule.end(due.client);
                self.recorder.error(&error);
            }
        }
    }

    fn go_on_with(&mut self, schedule: &mut Schedule, event: Ready) {
        match self.ready(event) {
            Ok(Turn::Pending) => {}
            Ok(Turn::Free) => schedule.free(event.key, Instant::now()),
            Ok(Turn::Ended(operation)) => {
                if let Some(due) = schedule.end(event.key) {
                    self.recorder.open(&operation, &due);
                }
                self.prepare_for(schedule, event.key, operation.ended);
            }
            Err(error) => {
                schedule.end(event.key);
                self.recorder.error(&error);
            }
        }
    }

    fn prepare_for(&mut self, schedule: &mut Schedule, key: usize, at: Instant) {
        match self.prepare(key) {
            Ok(Turn::Free) => schedule.free(key, at),
            Ok(Turn::Pending | Turn::Ended(_)) => {}
            Err(error) => self.recorder.error(&error),
        }
    }

    #[inline]
    fn prepare(&mut self, key: usize) -> Result<Turn, Error> {
        self.clients[key].prepare(self.shared, self.reactor)
    }

    #[inline]
    fn begin(&mut self, key: usize, at: Instant) -> Result<(), Error> {
        self.clients[key].begin(at, self.shared, self.reactor)
    }

    #[inline]
    fn ready(&mut self, event: Ready) -> Result<Turn, Error> {
        self.clients[event.key].ready(event.readiness, self.shared, self.recorder)
    }

    fn all_failed(&self) -> bool {
        self.recorder.failed_operations() >= self.clients.len() as u64
    }
}
