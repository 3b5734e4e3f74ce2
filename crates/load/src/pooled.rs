//! A client that keeps its connection and repeats one prepared statement.

use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Connected, Connecting, Dialer, Error, Progress, Reactor, Readiness};
use ciphertoll_wire::session::{PrepareReader, Prepared, ResponseKind, ResponseReader, ServerInfo, Value};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::injection::spin;
use crate::recorder::{Legs, Recorder};

/// The number of a connection's one prepared statement.
const STATEMENT: u32 = 1;

/// A client that keeps its connection and repeats one prepared statement.
pub(crate) struct PooledClient {
    key: usize,
    state: State,
}

enum State {
    /// Not begun; also while a step is being moved through a call.
    Idle,
    Connecting(Box<Connecting>),
    Preparing(Box<Preparing>),
    /// Prepared, and waiting for the others.
    Waiting(Box<Selecting>),
    Selecting(Box<Selecting>),
}

struct Preparing {
    connected: Connected,
    reader: PrepareReader,
}

struct Selecting {
    channel: Channel,
    server: ServerInfo,
    reader: ResponseReader,
    prepared: Prepared,
    began: Instant,
}

/// What the pooled clients of a thread have in common.
pub(crate) struct Pool<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) sql: String,
    pub(crate) rows: u32,
    pub(crate) random: Pcg64Mcg,
    pub(crate) legs: Legs,
    pub(crate) injected_delay: Duration,
}

impl PooledClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle }
    }

    /// Begins to connect.
    pub(crate) fn begin(&mut self, pool: &Pool<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = pool.dialer.dial(None)?;
        reactor.register(connecting.channel(), self.key)?;
        self.state = State::Connecting(Box::new(connecting));
        Ok(())
    }

    /// Whether its statement is prepared.
    pub(crate) fn is_prepared(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::Selecting(_))
    }

    /// Sends the first statement.
    pub(crate) fn start(&mut self, pool: &mut Pool<'_>) -> Result<(), Error> {
        if let State::Waiting(mut selecting) = std::mem::replace(&mut self.state, State::Idle) {
            selecting.select(Instant::now(), pool)?;
            self.state = State::Selecting(selecting);
        }
        Ok(())
    }

    /// Goes on with connecting and preparing.
    pub(crate) fn set_up(&mut self, readiness: Readiness, pool: &mut Pool<'_>) -> Result<(), Error> {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Connecting(connecting) => match connecting.advance(readiness)? {
                Progress::Pending(connecting) => State::Connecting(Box::new(connecting)),
                Progress::Done(connected) => Preparing::begin(connected, pool)?,
            },
            State::Preparing(preparing) => preparing.ready(readiness)?,
            state @ (State::Idle | State::Waiting(_) | State::Selecting(_)) => state,
        };
        Ok(())
    }

    /// Goes on with selecting; records and repeats when a statement is answered.
    pub(crate) fn ready(
        &mut self,
        readiness: Readiness,
        pool: &mut Pool<'_>,
        recorder: &mut Recorder,
    ) -> Result<(), Error> {
        match &mut self.state {
            State::Selecting(selecting) => selecting.ready(readiness, pool, recorder),
            State::Idle | State::Connecting(_) | State::Preparing(_) | State::Waiting(_) => Ok(()),
        }
    }

    /// Says goodbye.
    pub(crate) fn close(self) {
        if let State::Waiting(mut selecting) | State::Selecting(mut selecting) = self.state {
            selecting.server.encode_goodbye(selecting.channel.output());
            // The window is over: a server that has gone meanwhile costs the trial nothing.
            let _ = selecting.channel.close();
        }
    }
}

impl Preparing {
    fn begin(mut connected: Connected, pool: &mut Pool<'_>) -> Result<State, Error> {
        pool.legs.count(&connected);
        connected.server.encode_prepare(connected.channel.output(), STATEMENT, &pool.sql)?;
        connected.channel.send()?;
        let reader = connected.server.prepare_reader(STATEMENT);
        Ok(State::Preparing(Box::new(Self { connected, reader })))
    }

    fn ready(mut self: Box<Self>, readiness: Readiness) -> Result<State, Error> {
        let reader = &mut self.reader;
        let prepared = self.connected.channel.read_response(readiness, |input| reader.step(input))?;
        Ok(match prepared {
            None => State::Preparing(self),
            Some(prepared) => State::Waiting(Box::new(Selecting {
                reader: self.connected.server.response_reader(ResponseKind::Binary),
                channel: self.connected.channel,
                server: self.connected.server,
                prepared,
                began: Instant::now(),
            })),
        })
    }
}

impl Selecting {
    fn select(&mut self, began: Instant, pool: &mut Pool<'_>) -> Result<(), Error> {
        let id = pool.random.random_range(1..=pool.rows);
        let key = [Value::I64(i64::from(id))];
        self.server.encode_execute(self.channel.output(), &self.prepared, &key)?;
        self.began = began;
        self.channel.send()?;
        Ok(())
    }

    fn ready(
        &mut self,
        readiness: Readiness,
        pool: &mut Pool<'_>,
        recorder: &mut Recorder,
    ) -> Result<(), Error> {
        let reader = &mut self.reader;
        if self.channel.read_response(readiness, |input| reader.step(input))?.is_none() {
            return Ok(());
        }
        self.reader.reset();
        spin(pool.injected_delay);
        let ended = Instant::now();
        recorder.operation(ended, ended - self.began);
        // A closed loop: the next operation begins where this one ended.
        self.select(ended, pool)
    }
}
