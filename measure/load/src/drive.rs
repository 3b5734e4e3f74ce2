//! The loop that drives a thread's clients. In a closed loop, a client's next operation begins when its last one has
//! ended, or when the rate limit permits; in an open loop, a schedule decides.

use std::ops::ControlFlow;
use std::time::Instant;

use ciphertoll_model::ErrorKind;
use ciphertoll_net::{Reactor, Readiness, Ready};

use crate::Error;
use crate::limit::RateLimit;
use crate::operation::Operation;
use crate::recorder::Recorder;

/// A state machine that runs operations, one at a time.
pub(crate) trait LoadClient {
    type Shared<'a>;

    /// Does what precedes an operation and is not part of it.
    fn prepare(&mut self, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<Turn, Error>;

    /// Begins an operation. Call this only after [`Turn::Free`].
    fn begin(&mut self, at: Instant, shared: &mut Self::Shared<'_>, reactor: &Reactor) -> Result<(), Error>;

    fn ready(
        &mut self,
        readiness: Readiness,
        shared: &mut Self::Shared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error>;
}

pub(crate) enum Turn {
    Pending,
    Free,
    /// Has ended an operation and must prepare for the next.
    Ended(Operation),
}

/// Decides which free client begins an operation, and when.
pub(crate) trait Pacer {
    /// A client is free from `at` on.
    fn free(&mut self, client: usize, at: Instant);

    /// A client that begins an operation now, and the operation's start.
    fn begin(&mut self) -> Option<(usize, Instant)>;

    /// Records an operation of the client that has ended.
    fn ended(&mut self, client: usize, operation: &Operation, recorder: &mut Recorder);

    /// The client's operation, if it has begun one, has failed.
    fn failed(&mut self, client: usize);

    /// When to try [`Self::begin`] again, unless a client becomes free before.
    fn wake_at(&self) -> Option<Instant>;

    /// How long to wait for events at most; `None` once the loop is over.
    fn wait_until(&self, now: Instant) -> Option<Instant>;
}

/// A closed loop, which is over when the window closes.
pub(crate) struct ClosedLoop {
    pub(crate) closes: Instant,
    /// An operation is timed from when it began, with a limit as without.
    pub(crate) limit: Option<RateLimit>,
    /// Without a limit, a free client begins at once, where its last operation ended.
    pub(crate) next: Option<(usize, Instant)>,
}

impl Pacer for ClosedLoop {
    #[inline]
    fn free(&mut self, client: usize, at: Instant) {
        match &mut self.limit {
            None => self.next = Some((client, at)),
            Some(limit) => limit.park(client),
        }
    }

    #[inline]
    fn begin(&mut self) -> Option<(usize, Instant)> {
        match &mut self.limit {
            None => self.next.take(),
            Some(limit) if limit.is_awaited() => {
                let now = Instant::now();
                Some((limit.begin(now)?, now))
            }
            Some(_) => None,
        }
    }

    #[inline]
    fn ended(&mut self, _: usize, operation: &Operation, recorder: &mut Recorder) {
        recorder.closed(operation);
    }

    fn failed(&mut self, _: usize) {}

    fn wake_at(&self) -> Option<Instant> {
        self.limit.as_ref()?.wake_at()
    }

    fn wait_until(&self, now: Instant) -> Option<Instant> {
        (now < self.closes).then_some(self.closes)
    }
}

pub(crate) struct EventLoop<'a, 's, C: LoadClient> {
    pub(crate) clients: Vec<C>,
    pub(crate) shared: &'a mut C::Shared<'s>,
    pub(crate) reactor: Reactor,
    pub(crate) recorder: Recorder,
}

impl<C: LoadClient> EventLoop<'_, '_, C> {
    /// Runs until the pacer ends the loop. A client that fails stops; the loop ends once all have. If the server has
    /// reached its connection limit, no client begins again.
    pub(crate) fn run(&mut self, pacer: &mut impl Pacer) -> Result<(), Error> {
        for key in 0..self.clients.len() {
            let prepared = self.prepare(pacer, key, Instant::now());
            if prepared.is_break() || self.begin_due(pacer).is_break() {
                return Ok(());
            }
        }
        let mut batch = Vec::new();
        loop {
            if self.begin_due(pacer).is_break() {
                return Ok(());
            }
            let now = Instant::now();
            let Some(until) = pacer.wait_until(now).filter(|_| !self.all_failed()) else { return Ok(()) };
            if let Some(at) = pacer.wake_at() {
                self.reactor.wake_at(at)?;
            }
            batch.extend(self.reactor.wait(until - now)?);
            for event in batch.drain(..) {
                // Begin operations after each event: otherwise due operations would wait for the rest of the batch.
                if self.handle_ready(pacer, event).is_break() || self.begin_due(pacer).is_break() {
                    return Ok(());
                }
            }
        }
    }

    #[inline]
    fn begin_due(&mut self, pacer: &mut impl Pacer) -> ControlFlow<()> {
        while let Some((key, at)) = pacer.begin() {
            if let Err(error) = self.clients[key].begin(at, self.shared, &self.reactor) {
                self.failed(pacer, key, &error)?;
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn handle_ready(&mut self, pacer: &mut impl Pacer, event: Ready) -> ControlFlow<()> {
        match self.clients[event.key].ready(event.readiness, self.shared, &mut self.recorder) {
            Ok(Turn::Pending) => {}
            Ok(Turn::Free) => pacer.free(event.key, Instant::now()),
            Ok(Turn::Ended(operation)) => {
                pacer.ended(event.key, &operation, &mut self.recorder);
                return self.prepare(pacer, event.key, operation.ended);
            }
            Err(error) => return self.failed(pacer, event.key, &error),
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn prepare(&mut self, pacer: &mut impl Pacer, key: usize, at: Instant) -> ControlFlow<()> {
        match self.clients[key].prepare(self.shared, &self.reactor) {
            Ok(Turn::Free) => pacer.free(key, at),
            Ok(Turn::Pending | Turn::Ended(_)) => {}
            Err(error) => return self.failed(pacer, key, &error),
        }
        ControlFlow::Continue(())
    }

    /// Counts a failure. Breaks if no client of the thread may begin again.
    #[cold]
    fn failed(&mut self, pacer: &mut impl Pacer, key: usize, error: &Error) -> ControlFlow<()> {
        pacer.failed(key);
        self.recorder.error(error);
        match error.kind() {
            ErrorKind::Other => ControlFlow::Continue(()),
            ErrorKind::TooManyConnections => ControlFlow::Break(()),
        }
    }

    fn all_failed(&self) -> bool {
        self.recorder.failed_operations() >= self.clients.len() as u64
    }
}
