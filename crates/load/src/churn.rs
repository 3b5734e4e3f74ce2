//! A client that opens a connection for each operation.

use std::time::{Duration, Instant};

use ciphertoll_net::{
    Connected, Connecting, Dialer, Phase, ConnectProgress, Reactor, Readiness, SourceAddresses, Stopwatch,
};
use ciphertoll_wire::session::{ResponseKind, ResponseReader};
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::draw::Values;
use crate::drive::{Client, Turn};
use crate::injection::spin;
use crate::legs::Legs;
use crate::recorder::{Operation, Recorder};
use crate::script::{Place, Program};
use crate::usage::thread_cpu;

/// A client that opens a connection for each operation.
pub(crate) struct ChurnClient {
    key: usize,
    state: State,
}

#[expect(clippy::large_enum_variant, reason = "boxing would allocate for each connect")]
enum State {
    /// Between operations; also while one is being moved through a call.
    Idle,
    Connecting(Connecting),
    /// Connected, with the query still to be asked.
    Standing(Box<Connected>),
    Querying(Box<Querying>),
}

struct Querying {
    connected: Connected,
    reader: ResponseReader,
}

/// What a connection is opened for.
pub(crate) enum Purpose {
    /// To be closed again.
    Connect,
    /// One query; all is timed.
    ConnectQuery(Query),
    /// One query, which alone is timed.
    FirstQuery(Query),
}

/// A statement, with values drawn for each time that it is sent.
pub(crate) struct Query {
    program: Program,
    values: Values,
    random: Pcg64Mcg,
    sql: String,
}

/// What the churning clients of a thread have in common.
pub(crate) struct Churn<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) sources: SourceAddresses,
    pub(crate) purpose: Purpose,
    pub(crate) injected_delay: Duration,
    pub(crate) legs: Legs,
}

impl Query {
    pub(crate) fn new(program: Program, random: Pcg64Mcg) -> Self {
        Self { values: program.values(), program, random, sql: String::new() }
    }

    fn send(&mut self, mut connected: Connected) -> Result<Box<Querying>, Error> {
        let place = self.program.draw(&mut self.random, &mut self.values);
        let room = (connected.channel.output(), &mut self.sql);
        self.program.encode(place, &self.values, &connected.server, &[], room)?;
        connected.channel.send()?;
        let reader = connected.server.response_reader(ResponseKind::Text);
        Ok(Box::new(Querying { connected, reader }))
    }
}

impl ChurnClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle }
    }

    fn connect(&mut self, churn: &mut Churn<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = churn.dialer.dial(Some(&mut churn.sources))?;
        reactor.register(connecting.channel(), self.key)?;
        self.state = State::Connecting(connecting);
        Ok(())
    }

    fn connected(
        &mut self,
        mut connected: Connected,
        churn: &mut Churn<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        inspect(&mut connected, &mut churn.legs, recorder);
        match &mut churn.purpose {
            Purpose::Connect => close(connected, churn.injected_delay, 0, recorder),
            Purpose::ConnectQuery(query) => {
                self.state = State::Querying(query.send(connected)?);
                Ok(Turn::Pending)
            }
            Purpose::FirstQuery(_) => {
                self.state = State::Standing(Box::new(connected));
                Ok(Turn::Free)
            }
        }
    }

    fn query_ready(
        &mut self,
        mut querying: Box<Querying>,
        readiness: Readiness,
        churn: &Churn<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        let reader = &mut querying.reader;
        let answer = querying.connected.channel.read_response(readiness, |input| reader.step(input))?;
        let Some(summary) = answer else {
            self.state = State::Querying(querying);
            return Ok(Turn::Pending);
        };
        if let Purpose::ConnectQuery(query) | Purpose::FirstQuery(query) = &churn.purpose {
            query.program.check(Place::default(), summary.row_bytes)?;
        }
        let mut connected = querying.connected;
        if matches!(churn.purpose, Purpose::FirstQuery(_)) {
            spin(churn.injected_delay);
            connected.stopwatch.lap(Phase::FirstQuery);
            let ended = finish(&connected.stopwatch, 1, recorder);
            connected.server.encode_goodbye(connected.channel.output());
            // The operation went well: a close that does not is no part of it.
            let _ = connected.channel.close();
            return Ok(ended);
        }
        connected.stopwatch.lap(Phase::FirstQuery);
        close(connected, churn.injected_delay, 1, recorder)
    }
}

impl Client for ChurnClient {
    type Shared<'a> = Churn<'a>;

    fn prepare(&mut self, churn: &mut Churn<'_>, reactor: &Reactor) -> Result<Turn, Error> {
        match &churn.purpose {
            Purpose::Connect | Purpose::ConnectQuery(_) => Ok(Turn::Free),
            Purpose::FirstQuery(_) => {
                self.connect(churn, reactor)?;
                Ok(Turn::Pending)
            }
        }
    }

    fn begin(&mut self, _: Instant, churn: &mut Churn<'_>, reactor: &Reactor) -> Result<(), Error> {
        match (std::mem::replace(&mut self.state, State::Idle), &mut churn.purpose) {
            (State::Standing(mut connected), Purpose::FirstQuery(query)) => {
                // The connect was another's: only what follows is timed.
                connected.stopwatch = Stopwatch::start();
                self.state = State::Querying(query.send(*connected)?);
                Ok(())
            }
            _ => self.connect(churn, reactor),
        }
    }

    fn ready(
        &mut self,
        readiness: Readiness,
        churn: &mut Churn<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => Ok(Turn::Pending),
            State::Connecting(connecting) => match connecting.advance(readiness)? {
                ConnectProgress::Pending(connecting) => {
                    self.state = State::Connecting(connecting);
                    Ok(Turn::Pending)
                }
                ConnectProgress::Done(connected) => self.connected(connected, churn, recorder),
            },
            State::Standing(connected) => {
                // An edge of the connect that came late; or the end, of which the query will tell.
                self.state = State::Standing(connected);
                Ok(Turn::Pending)
            }
            State::Querying(querying) => self.query_ready(querying, readiness, churn, recorder),
        }
    }
}

/// Counts what a connection has negotiated. No client looks at that: its time belongs to no phase, and its CPU time is taken
/// off the client's. Without TLS there is next to nothing to look at, less than reading the clock would take.
fn inspect(connected: &mut Connected, legs: &mut Legs, recorder: &mut Recorder) {
    if connected.channel.has_tls() {
        let began = thread_cpu();
        legs.count(connected);
        recorder.inspected(Instant::now(), thread_cpu().saturating_sub(began));
    } else {
        legs.count(connected);
    }
    connected.stopwatch.skip();
}

/// Ends the operation: goodbye is said, nothing is waited for.
fn close(
    mut connected: Connected,
    injected_delay: Duration,
    statements: u64,
    recorder: &mut Recorder,
) -> Result<Turn, Error> {
    let mut stopwatch = connected.stopwatch;
    connected.server.encode_goodbye(connected.channel.output());
    connected.channel.close()?;
    spin(injected_delay);
    stopwatch.lap(Phase::Close);
    Ok(finish(&stopwatch, statements, recorder))
}

/// The operation that the stopwatch ran for.
fn finish(stopwatch: &Stopwatch, statements: u64, recorder: &mut Recorder) -> Turn {
    let ended = Instant::now();
    recorder.phases(ended, stopwatch.times());
    // What the phases sum to is the time, to the nanosecond.
    let began = ended.checked_sub(stopwatch.times().total()).unwrap_or(ended);
    Turn::Ended(Operation { began, ended, statements, retries: 0 })
}
