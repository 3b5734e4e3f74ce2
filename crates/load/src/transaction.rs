//! A client that keeps its connection and runs a script on it, again and again.

use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Connected, Connecting, Dialer, Progress, Reactor, Readiness};
use ciphertoll_wire::session::{
    PrepareReader, PreparedStatement, ResponseKind, ResponseReader, ResponseSummary, ServerInfo,
};
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::draw::Values;
use crate::drive::{Client, Turn};
use crate::injection::spin;
use crate::legs::Legs;
use crate::recorder::{Operation, Recorder};
use crate::script::{Place, Program, Step};

/// How often a transaction is begun again before its conflict counts as an error: one that ends so never would.
const MAX_RETRIES: u64 = 1_000;

/// A client that keeps its connection and runs a script on it, again and again.
pub(crate) struct TransactionClient {
    key: usize,
    state: State,
}

enum State {
    /// Not begun; also while a step is being moved through a call.
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

/// A connection on which all is prepared, and the transaction that it is at.
struct Working {
    channel: Channel,
    server: ServerInfo,
    prepared: Vec<PreparedStatement>,
    text: ResponseReader,
    binary: ResponseReader,
    values: Values,
    /// The first step of the transaction that it is at.
    first: Place,
    awaits: Answer,
    began: Instant,
    row_bytes: u64,
    statements: u64,
    retries: u64,
}

/// What is waited for.
#[derive(Clone, Copy)]
enum Answer {
    /// The answer to this step.
    Step(Place),
    Rollback,
}

/// What the transaction clients of a thread have in common.
pub(crate) struct Pool<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) program: Program,
    pub(crate) random: Pcg64Mcg,
    pub(crate) legs: Legs,
    pub(crate) injected_delay: Duration,
    /// Room for a text with its numbers.
    pub(crate) sql: String,
}

impl TransactionClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle }
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, pool: &Pool<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = pool.dialer.dial(None)?;
        reactor.register(connecting.channel(), self.key)?;
        self.state = State::Connecting(Box::new(connecting));
        Ok(())
    }

    /// Whether its statements are prepared.
    pub(crate) fn is_prepared(&self) -> bool {
        matches!(self.state, State::Working(_))
    }

    /// Goes on with connecting and preparing.
    pub(crate) fn set_up(&mut self, readiness: Readiness, pool: &mut Pool<'_>) -> Result<(), Error> {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Connecting(connecting) => match connecting.advance(readiness)? {
                Progress::Pending(connecting) => State::Connecting(Box::new(connecting)),
                Progress::Done(connected) => {
                    pool.legs.count(&connected);
                    prepare_next(connected, Vec::new(), &pool.program)?
                }
            },
            State::Preparing(preparing) => preparing.ready(readiness, &pool.program)?,
            state @ (State::Idle | State::Working(_)) => state,
        };
        Ok(())
    }

    /// Says goodbye.
    pub(crate) fn close(self) {
        if let State::Working(mut working) = self.state {
            working.server.encode_goodbye(working.channel.output());
            // The window is over: a server that has gone meanwhile costs the trial nothing.
            let _ = working.channel.close();
        }
    }
}

impl Client for TransactionClient {
    type Shared<'a> = Pool<'a>;

    fn prepare(&mut self, _: &mut Pool<'_>, _: &Reactor) -> Result<Turn, Error> {
        Ok(Turn::Free)
    }

    #[inline]
    fn begin(&mut self, at: Instant, pool: &mut Pool<'_>, _: &Reactor) -> Result<(), Error> {
        match &mut self.state {
            State::Working(working) => working.begin(at, pool),
            State::Idle | State::Connecting(_) | State::Preparing(_) => Ok(()),
        }
    }

    #[inline]
    fn ready(&mut self, readiness: Readiness, pool: &mut Pool<'_>, _: &mut Recorder) -> Result<Turn, Error> {
        match &mut self.state {
            State::Working(working) => working.ready(readiness, pool),
            State::Idle | State::Connecting(_) | State::Preparing(_) => Ok(Turn::Pending),
        }
    }
}

/// Prepares the statement that follows those prepared; the connection is ready when none does.
fn prepare_next(
    mut connected: Connected,
    prepared: Vec<PreparedStatement>,
    program: &Program,
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
    fn ready(mut self: Box<Self>, readiness: Readiness, program: &Program) -> Result<State, Error> {
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
    fn new(connected: Connected, prepared: Vec<PreparedStatement>, program: &Program) -> Self {
        let Connected { channel, server, .. } = connected;
        Self {
            text: server.response_reader(ResponseKind::Text),
            binary: server.response_reader(ResponseKind::Binary),
            channel,
            server,
            prepared,
            values: program.values(),
            first: Place::default(),
            awaits: Answer::Step(Place::default()),
            began: Instant::now(),
            row_bytes: 0,
            statements: 0,
            retries: 0,
        }
    }

    #[inline]
    fn begin(&mut self, at: Instant, pool: &mut Pool<'_>) -> Result<(), Error> {
        self.first = pool.program.draw(&mut pool.random, &mut self.values);
        self.began = at;
        self.statements = 0;
        self.retries = 0;
        self.row_bytes = 0;
        self.send(self.first, pool)
    }

    #[inline]
    fn send(&mut self, place: Place, pool: &mut Pool<'_>) -> Result<(), Error> {
        let out = self.channel.output();
        pool.program.encode(place, &self.values, &self.server, &self.prepared, (out, &mut pool.sql))?;
        self.awaits = Answer::Step(place);
        self.channel.send()?;
        Ok(())
    }

    fn ready(&mut self, readiness: Readiness, pool: &mut Pool<'_>) -> Result<Turn, Error> {
        let reader = match self.awaits {
            Answer::Step(place) if matches!(pool.program.step(place), Step::Prepared { .. }) => {
                &mut self.binary
            }
            Answer::Step(_) | Answer::Rollback => &mut self.text,
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

    /// Goes on to the next step; ends the operation where there is none.
    #[inline]
    fn answered(&mut self, summary: ResponseSummary, pool: &mut Pool<'_>) -> Result<Turn, Error> {
        let place = match self.awaits {
            Answer::Rollback => return self.begin_again(pool),
            Answer::Step(place) => place,
        };
        self.statements += 1;
        self.row_bytes += summary.row_bytes;
        if let Some(next) = pool.program.next(place) {
            self.send(next, pool)?;
            return Ok(Turn::Pending);
        }
        pool.program.check(place, self.row_bytes)?;
        pool.program.acknowledge(place, &self.values);
        spin(pool.injected_delay);
        let (statements, retries) = (self.statements, self.retries);
        Ok(Turn::Ended(Operation { began: self.began, ended: Instant::now(), statements, retries }))
    }

    /// The same transaction once more, with the same variables.
    fn begin_again(&mut self, pool: &mut Pool<'_>) -> Result<Turn, Error> {
        self.row_bytes = 0;
        self.send(self.first, pool)?;
        Ok(Turn::Pending)
    }

    /// Undoes the transaction where the script says that this refusal is worth another attempt.
    fn refused(&mut self, error: ciphertoll_net::Error, pool: &mut Pool<'_>) -> Result<Turn, Error> {
        let is_conflict = match (&error, self.awaits) {
            (ciphertoll_net::Error::Protocol(refusal), Answer::Step(_)) => pool.program.is_conflict(refusal),
            _ => false,
        };
        if !is_conflict || self.retries == MAX_RETRIES {
            return Err(error.into());
        }
        self.retries += 1;
        let Some(rollback) = pool.program.rollback() else { return self.begin_again(pool) };
        self.server.encode_query(self.channel.output(), rollback).map_err(ciphertoll_net::Error::from)?;
        self.channel.send()?;
        self.awaits = Answer::Rollback;
        Ok(Turn::Pending)
    }
}
