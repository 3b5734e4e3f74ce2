//! The two loops that drive a thread's clients. In the closed loop, a client's next operation begins when its last
//! one has ended, or when the rate limit permits; in the open loop, a schedule decides.

use std::time::Instant;

use ciphertoll_model::ErrorKind;
use ciphertoll_net::{Reactor, Readiness, Ready};

use crate::Error;
use crate::limit::RateLimit;
use crate::recorder::{Operation, Recorder};
use crate::schedule::Schedule;
use crate::window::MeasurementWindow;

/// A state machine that runs operations, one at a time.
pub(crate) trait LoadClient {
    /// State shared by a thread's clients.
    type Shared<'a>;

    /// Does what precedes an operation and is not part of it.
    fn prepare(&mut self, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<Turn, Error>;

    /// Begins an operation. Call this only after [`Turn::Free`].
    fn begin(&mut self, at: Instant, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<(), Error>;

    /// Continues after an event on the client's socket.
    fn ready(
        &mut self,
        readiness: Readiness,
        shared: &mut Self::Shared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error>;
}

/// The result of a call to a client.
pub(crate) enum Turn {
    /// Waits for its socket.
    Pending,
    /// Can begin an operation.
    Free,
    /// Has ended an operation and must prepare for the next.
    Ended(Operation),
}

/// Whether a thread continues after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Continuation {
    GoOn,
    /// The server has reached its connection limit: no client of the thread may begin again.
    Stop,
}

/// A thread's clients and their event loop.
pub(crate) struct EventLoop<'a, 's, C: LoadClient> {
    pub(crate) clients: Vec<C>,
    pub(crate) shared: &'a mut C::Shared<'s>,
    pub(crate) reactor: &'a mut Reactor,
    pub(crate) recorder: &'a mut Recorder,
}

impl<C: LoadClient> EventLoop<'_, '_, C> {
    /// Runs the closed loop until the window has closed. A client that fails stops; the loop ends once all have. If
    /// the server has reached its connection limit, no client begins again.
    pub(crate) fn closed(
        &mut self,
        window: MeasurementWindow,
        limit: Option<RateLimit>,
    ) -> Result<(), Error> {
        match limit {
            None => self.unlimited(window),
            Some(limit) => self.limited(window, limit),
        }
    }

    fn unlimited(&mut self, window: MeasurementWindow) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if let Err(error) = self.prepare_and_begin(key, Instant::now())
                && self.failed(&error) == Continuation::Stop
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
                    && self.failed(&error) == Continuation::Stop
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
                // Closed loop: the next operation begins where this one ended.
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

    /// The closed loop with a rate limit. An operation is timed from when it began, as in any closed loop.
    fn limited(&mut self, window: MeasurementWindow, mut limit: RateLimit) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if self.park(&mut limit, key) == Continuation::Stop {
                return Ok(());
            }
        }
        let mut batch = Vec::new();
        loop {
            if self.begin_allowed(&mut limit) == Continuation::Stop {
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
                if self.go_on_within(&mut limit, event) == Continuation::Stop
                    || self.begin_allowed(&mut limit) == Continuation::Stop
                {
                    return Ok(());
                }
            }
        }
    }

    fn begin_allowed(&mut self, limit: &mut RateLimit) -> Continuation {
        while limit.is_awaited() {
            let now = Instant::now();
            let Some(key) = limit.begin(now) else { break };
            if let Err(error) = self.begin(key, now)
                && self.failed(&error) == Continuation::Stop
            {
                return Continuation::Stop;
            }
        }
        Continuation::GoOn
    }

    fn go_on_within(&mut self, limit: &mut RateLimit, event: Ready) -> Continuation {
        match self.ready(event) {
            Ok(Turn::Pending) => Continuation::GoOn,
            Ok(Turn::Free) => {
                limit.park(event.key);
                Continuation::GoOn
            }
            Ok(Turn::Ended(operation)) => {
                self.recorder.closed(&operation);
                self.park(limit, event.key)
            }
            Err(error) => self.failed(&error),
        }
    }

    fn park(&mut self, limit: &mut RateLimit, key: usize) -> Continuation {
        match self.prepare(key) {
            Ok(Turn::Free) => {
                limit.park(key);
                Continuation::GoOn
            }
            Ok(Turn::Pending | Turn::Ended(_)) => Continuation::GoOn,
            Err(error) => self.failed(&error),
        }
    }

    /// Counts a failure; returns whether the thread continues.
    #[cold]
    fn failed(&mut self, error: &Error) -> Continuation {
        self.recorder.error(error);
        match error.kind() {
            ErrorKind::Other => Continuation::GoOn,
            ErrorKind::TooManyConnections => Continuation::Stop,
        }
    }

    /// Runs the open loop until all operations due in the window have ended or their overtime is over.
    pub(crate) fn open(&mut self, window: MeasurementWindow, mut schedule: Schedule) -> Result<(), Error> {
        self.run(window, &mut schedule)?;
        self.recorder.unfinished(schedule.unfinished());
        Ok(())
    }

    fn run(&mut self, window: MeasurementWindow, schedule: &mut Schedule) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            if self.prepare_for(schedule, key, window.starts) == Continuation::Stop {
                return Ok(());
            }
        }
        let mut batch = Vec::new();
        loop {
            if self.begin_due(schedule) == Continuation::Stop {
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
                // Begin operations after each event: otherwise due operations would wait for the rest of the batch.
                if self.go_on_with(schedule, event) == Continuation::Stop
                    || self.begin_due(schedule) == Continuation::Stop
                {
                    return Ok(());
                }
            }
        }
    }

    fn begin_due(&mut self, schedule: &mut Schedule) -> Continuation {
        loop {
            let now = Instant::now();
            let Some(due) = schedule.begin(now) else { return Continuation::GoOn };
            if let Err(error) = self.begin(due.client, now) {
                schedule.end(due.client);
                if self.failed(&error) == Continuation::Stop {
                    return Continuation::Stop;
                }
            }
        }
    }

    fn go_on_with(&mut self, schedule: &mut Schedule, event: Ready) -> Continuation {
        match self.ready(event) {
            Ok(Turn::Pending) => Continuation::GoOn,
            Ok(Turn::Free) => {
                schedule.free(event.key, Instant::now());
                Continuation::GoOn
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

    fn prepare_for(&mut self, schedule: &mut Schedule, key: usize, at: Instant) -> Continuation {
        match self.prepare(key) {
            Ok(Turn::Free) => {
                schedule.free(key, at);
                Continuation::GoOn
            }
            Ok(Turn::Pending | Turn::Ended(_)) => Continuation::GoOn,
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
