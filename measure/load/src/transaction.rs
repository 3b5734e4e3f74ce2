//! A client that keeps its connection and repeats a script on it.

use std::time::Instant;

use ciphertoll_net::{
    Channel, ConnectProgress, Connected, Connecting, Dialer, Reactor, Readiness, WatchedEvents,
};
use ciphertoll_wire::session::{
    PrepareReader, PreparedStatement, ResponseKind, ResponseReader, ResponseSummary, ServerInfo,
};
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::draw::Values;
use crate::drive::{LoadClient, Turn};
use crate::legs::Legs;
use crate::operation::Operation;
use crate::recorder::Recorder;
use crate::script::{CompiledScript, CompiledStep, StepIndex};

/// Retries before a conflict counts as an error.
const MAX_RETRIES: u64 = 1_000;

/// A client that keeps its connection and repeats a script on it.
pub(crate) struct TransactionClient {
    key: usize,
    state: State,
}

enum State {
    /// Not started, or while a state is being replaced.
    Idle,
    Connecting(Box<Connecting>),
    Preparing(Box<Preparing>),
    Working(Box<Working>),
}

struct Preparing {
    connected: Connected,
    reader: PrepareReader,
    prepared: Vec<PreparedStatement>,
}

/// A connection with all statements prepared, and its current transaction.
struct Working {
    channel: Channel,
    server: ServerInfo,
    prepared: Vec<PreparedStatement>,
    text: ResponseReader,
    binary: ResponseReader,
    values: Values,
    /// The first step of the current transaction.
    first: StepIndex,
    awaits: ExpectedResponse,
    began: Instant,
    row_bytes: u64,
    statements: u64,
    retries: u64,
}

/// The expected response.
#[derive(Clone, Copy)]
enum ExpectedResponse {
    /// The response to this step.
    Step(StepIndex),
    Rollback,
}

/// State shared by a thread's transaction clients.
pub(crate) struct TransactionShared<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) program: CompiledScript,
    pub(crate) random: Pcg64Mcg,
    pub(crate) legs: Legs,
    /// Buffer for a statement's text.
    pub(crate) sql: String,
}

impl TransactionClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle }
    }

    pub(crate) fn connect(&mut self, pool: &TransactionShared<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = pool.dialer.dial(None)?;
        reactor.register(connecting.channel(), self.key, WatchedEvents::Both)?;
        self.state = State::Connecting(Box::new(connecting));
        Ok(())
    }

    /// Whether all statements are prepared.
    pub(crate) fn is_prepared(&self) -> bool {
        matches!(self.state, State::Working(_))
    }

    /// Continues connecting and preparing.
    pub(crate) fn set_up(
        &mut self,
        readiness: Readiness,
        pool: &mut TransactionShared<'_>,
    ) -> Result<(), Error> {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Connecting(connecting) => match connecting.advance(readiness)? {
                ConnectProgress::Pending(connecting) => State::Connecting(Box::new(connecting)),
                ConnectProgress::Done(connected) => {
                    pool.legs.count(&connected);
                    prepare_next(connected, Vec::new(), &pool.program)?
                }
            },
            State::Preparing(preparing) => preparing.ready(readiness, &pool.program)?,
            state @ (State::Idle | State::Working(_)) => state,
        };
        Ok(())
    }

    pub(crate) fn close(self) {
        if let State::Working(mut working) = self.state {
            working.server.encode_goodbye(working.channel.output());
            // After the window a failing close does not matter.
            let _ = working.channel.close();
        }
    }
}

impl LoadClient for TransactionClient {
    type Shared<'a> = TransactionShared<'a>;

    fn prepare(&mut self, _: &mut TransactionShared<'_>, _: &Reactor) -> Result<Turn, Error> {
        Ok(Turn::Free)
    }

    #[inline]
    fn begin(&mut self, at: Instant, pool: &mut TransactionShared<'_>, _: &Reactor) -> Result<(), Error> {
        match &mut self.state {
            State::Working(working) => working.begin(at, pool),
            State::Idle | State::Connecting(_) | State::Preparing(_) => Ok(()),
        }
    }

    #[inline]
    fn ready(
        &mut self,
        readiness: Readiness,
        pool: &mut TransactionShared<'_>,
        _: &mut Recorder,
    ) -> Result<Turn, Error> {
        match &mut self.state {
            State::Working(working) => working.ready(readiness, pool),
            State::Idle | State::Connecting(_) | State::Preparing(_) => Ok(Turn::Pending),
        }
    }
}

/// Prepares the next statement; the client is ready when there is none.
fn prepare_next(
    mut connected: Connected,
    prepared: Vec<PreparedStatement>,
    program: &CompiledScript,
) -> Result<State, Error> {
    let Some(sql) = program.to_prepare.get(prepared.len()) else {
        return Ok(State::Working(Box::new(Working::new(connected, prepared, program))));
    };
    let number = prepared.len() as u32 + 1;
    connected
        .server
        .encode_prepare(connected.channel.output(), number, sql)
        .map_err(ciphertoll_net::Error::from)?;
    connected.channel.send()?;
    let reader = connected.server.prepare_reader(number);
    Ok(State::Preparing(Box::new(Preparing { connected, reader, prepared })))
}

impl Preparing {
    fn ready(mut self: Box<Self>, readiness: Readiness, program: &CompiledScript) -> Result<State, Error> {
        let reader = &mut self.reader;
        match self.connected.channel.read_response(readiness, |input| reader.step(input))? {
            None => Ok(State::Preparing(self)),
            Some(prepared) => {
                self.prepared.push(prepared);
                prepare_next(self.connected, self.prepared, program)
            }
        }
    }
}

impl Working {
    fn new(connected: Connected, prepared: Vec<PreparedStatement>, program: &CompiledScript) -> Self {
        let Connected { channel, server, .. } = connected;
        Self {
            text: server.response_reader(ResponseKind::Text),
            binary: server.response_reader(ResponseKind::Binary),
            channel,
            server,
            prepared,
            values: program.values(),
            first: StepIndex::default(),
            awaits: ExpectedResponse::Step(StepIndex::default()),
            began: Instant::now(),
            row_bytes: 0,
            statements: 0,
            retries: 0,
        }
    }

    #[inline]
    fn begin(&mut self, at: Instant, pool: &mut TransactionShared<'_>) -> Result<(), Error> {
        self.first = pool.program.draw(&mut pool.random, &mut self.values);
        self.began = at;
        self.statements = 0;
        self.retries = 0;
        self.row_bytes = 0;
        self.send(self.first, pool)
    }

    #[inline]
    fn send(&mut self, place: StepIndex, pool: &mut TransactionShared<'_>) -> Result<(), Error> {
        let out = self.channel.output();
        pool.program.encode(place, &self.values, &self.server, &self.prepared, (out, &mut pool.sql))?;
        self.awaits = ExpectedResponse::Step(place);
        self.channel.send()?;
        Ok(())
    }

    fn ready(&mut self, readiness: Readiness, pool: &mut TransactionShared<'_>) -> Result<Turn, Error> {
        let reader = match self.awaits {
            ExpectedResponse::Step(place)
                if matches!(pool.program.step(place), CompiledStep::Prepared { .. }) =>
            {
                &mut self.binary
            }
            ExpectedResponse::Step(_) | ExpectedResponse::Rollback => &mut self.text,
        };
        match self.channel.read_response(readiness, |input| reader.step(input)) {
            Ok(None) => Ok(Turn::Pending),
            Ok(Some(summary)) => {
                reader.reset();
                self.answered(summary, pool)
            }
            Err(error) => {
                reader.reset();
                self.refused(error, pool)
            }
        }
    }

    /// Continues with the next step, or ends the operation.
    #[inline]
    fn answered(
        &mut self,
        summary: ResponseSummary,
        pool: &mut TransactionShared<'_>,
    ) -> Result<Turn, Error> {
        let place = match self.awaits {
            ExpectedResponse::Rollback => return self.begin_again(pool),
            ExpectedResponse::Step(place) => place,
        };
        self.statements += 1;
        self.row_bytes += summary.row_bytes;
        if let Some(next) = pool.program.next(place) {
            self.send(next, pool)?;
            return Ok(Turn::Pending);
        }
        pool.program.check(place, self.row_bytes)?;
        pool.program.acknowledge(place, &self.values);
        let (statements, retries) = (self.statements, self.retries);
        Ok(Turn::Ended(Operation { began: self.began, ended: Instant::now(), statements, retries }))
    }

    /// Repeats the transaction with the same variables.
    fn begin_again(&mut self, pool: &mut TransactionShared<'_>) -> Result<Turn, Error> {
        self.row_bytes = 0;
        self.send(self.first, pool)?;
        Ok(Turn::Pending)
    }

    /// Rolls the transaction back if the script says that this error warrants a retry.
    fn refused(
        &mut self,
        error: ciphertoll_net::Error,
        pool: &mut TransactionShared<'_>,
    ) -> Result<Turn, Error> {
        let is_conflict = match (&error, self.awaits) {
            (ciphertoll_net::Error::Protocol(refusal), ExpectedResponse::Step(_)) => {
                pool.program.is_conflict(refusal)
            }
            _ => false,
        };
        if !is_conflict || self.retries == MAX_RETRIES {
            return Err(error.into());
        }
        self.retries += 1;
        let Some(rollback) = pool.program.rollback() else { return self.begin_again(pool) };
        self.server.encode_query(self.channel.output(), rollback).map_err(ciphertoll_net::Error::from)?;
        self.channel.send()?;
        self.awaits = ExpectedResponse::Rollback;
        Ok(Turn::Pending)
    }
}
