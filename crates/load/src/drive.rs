//! The two loops that drive a thread's clients: closed, where each begins when it has ended or a limit lets it, and
//! open, where a schedule says when.

use std::time::Instant;

use ciphertoll_model::ErrorKind;
use ciphertoll_net::{Reactor, Readiness, Ready};

use crate::Error;
use crate::limit::Limit;
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

/// Whether a thread goes on after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Outlook {
    GoOn,
    /// The server has no room: none of the thread's clients may begin again.
    Stop,
}

/// A thread's clients, and what drives them.
pub(crate) struct Drive<'a, 's, C: Client> {
    pub(crate) clients: Vec<C>,
    pub(crate) shared: &'a mut C::Shared<'s>,
    pub(crate) reactor: &'a mut Reactor,
    pub(crate) recorder: &'a mut Recorder,
}

impl<C: Client> Drive<'_, '_, C> {
    /// Until the window has closed. A client that fails stops; once all have, there is nothing to wait for. Where the
    /// server has no room for one, none begins again.
    pub(crate) fn closed(&mut self, window: Window, limit: Option<Limit>) -> Result<(), Error> {
        match limit {
            None => self.unlimited(window),
            Some(limit) => self.limited(window, limit),
        }
    }

    fn unlimited(&mut self, window: Window) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if let Err(error) = self.prepare_and_begin(key, Instant::now())
                && self.failed(&error) == Outlook::Stop
            {
                return Ok(());
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
                if let Err(error) = self.go_on(event)
                    && self.failed(&error) == Outlook::Stop
                {
                    return Ok(());
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

    /// No operation begins before `limit` lets it. It is timed from when it did, as in any closed loop.
    fn limited(&mut self, window: Window, mut limit: Limit) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if self.park(&mut limit, key) == Outlook::Stop {
                return Ok(());
            }
        }
        let mut batch = Vec::new();
        loop {
            if self.begin_allowed(&mut limit) == Outlook::Stop {
                return Ok(());
            }
            let left = window.closes.saturating_duration_since(Instant::now());
            if left.is_zero() || self.all_failed() {
                return Ok(());
            }
            if let Some(at) = limit.wake_at() {
                self.reactor.wake_at(at)?;
            }
            batch.extend(self.reactor.wait(left)?);
            for event in batch.drain(..) {
                if self.go_on_within(&mut limit, event) == Outlook::Stop
                    || self.begin_allowed(&mut limit) == Outlook::Stop
                {
                    return Ok(());
                }
            }
        }
    }

    fn begin_allowed(&mut self, limit: &mut Limit) -> Outlook {
        while limit.is_awaited() {
            let now = Instant::now();
            let Some(key) = limit.begin(now) else { break };
            if let Err(error) = self.begin(key, now)
                && self.failed(&error) == Outlook::Stop
            {
                return Outlook::Stop;
            }
        }
        Outlook::GoOn
    }

    fn go_on_within(&mut self, limit: &mut Limit, event: Ready) -> Outlook {
        match self.ready(event) {
            Ok(Turn::Pending) => Outlook::GoOn,
            Ok(Turn::Free) => {
                limit.park(event.key);
                Outlook::GoOn
            }
            Ok(Turn::Ended(operation)) => {
                self.recorder.closed(&operation);
                self.park(limit, event.key)
            }
            Err(error) => self.failed(&error),
        }
    }

    fn park(&mut self, limit: &mut Limit, key: usize) -> Outlook {
        match self.prepare(key) {
            Ok(Turn::Free) => {
                limit.park(key);
                Outlook::GoOn
            }
            Ok(Turn::Pending | Turn::Ended(_)) => Outlook::GoOn,
            Err(error) => self.failed(&error),
        }
    }

    /// Counts a failure; whether the thread goes on.
    #[cold]
    fn failed(&mut self, error: &Error) -> Outlook {
        self.recorder.error(error);
        match error.kind() {
            ErrorKind::Other => Outlook::GoOn,
            ErrorKind::TooManyConnections => Outlook::Stop,
        }
    }

    /// As `schedule` says, until all that was due in the window is done or has had its time.
    pub(crate) fn open(&mut self, window: Window, mut schedule: Schedule) -> Result<(), Error> {
        self.run(window, &mut schedule)?;
        self.recorder.unfinished(schedule.unfinished());
        Ok(())
    }

    fn run(&mut self, window: Window, schedule: &mut Schedule) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if self.prepare_for(schedule, key, window.starts) == Outlook::Stop {
                return Ok(());
            }
        }
        let mut batch = Vec::new();
        loop {
            if self.begin_due(schedule) == Outlook::Stop {
                return Ok(());
            }
            let now = Instant::now();
            if schedule.is_over(now) || self.all_failed() {
                return Ok(());
            }
            if let Some(at) = schedule.wake_at() {
                self.reactor.wake_at(at)?;
            }
            let end = if now < window.closes { window.closes } else { schedule.ends() };
            batch.extend(self.reactor.wait(end.saturating_duration_since(now))?);
            for event in batch.drain(..) {
                // Begun not after the batch: what is due would wait for other clients' answers.
                if self.go_on_with(schedule, event) == Outlook::Stop
                    || self.begin_due(schedule) == Outlook::Stop
                {
                    return Ok(());
                }
            }
        }
    }

    fn begin_due(&mut self, schedule: &mut Schedule) -> Outlook {
        loop {
            let now = Instant::now();
            let Some(due) = schedule.begin(now) else { return Outlook::GoOn };
            if let Err(error) = self.begin(due.client, now) {
                schedule.end(due.client);
                if self.failed(&error) == Outlook::Stop {
                    return Outlook::Stop;
                }
            }
        }
    }

    fn go_on_with(&mut self, schedule: &mut Schedule, event: Ready) -> Outlook {
        match self.ready(event) {
            Ok(Turn::Pending) => Outlook::GoOn,
            Ok(Turn::Free) => {
                schedule.free(event.key, Instant::now());
                Outlook::GoOn
            }
            Ok(Turn::Ended(operation)) => {
                if let Some(due) = schedule.end(event.key) {
                    self.recorder.open(&operation, &due);
                }
                self.prepare_for(schedule, event.key, operation.ended)
            }
            Err(error) => {
                schedule.end(event.key);
                self.failed(&error)
            }
        }
    }

    fn prepare_for(&mut self, schedule: &mut Schedule, key: usize, at: Instant) -> Outlook {
        match self.prepare(key) {
            Ok(Turn::Free) => {
                schedule.free(key, at);
                Outlook::GoOn
            }
            Ok(Turn::Pending | Turn::Ended(_)) => Outlook::GoOn,
            Err(error) => self.failed(&error),
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
