//! A client that opens a connection for each operation.

use std::time::Instant;

use ciphertoll_net::{
    ConnectProgress, Connected, Connecting, Dialer, Phase, PhaseTimes, Reactor, Readiness, SourceAddresses,
    Stopwatch, WatchedEvents,
};
use ciphertoll_wire::session::{ResponseKind, ResponseReader};
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::draw::Values;
use crate::drive::{LoadClient, Turn};
use crate::legs::Legs;
use crate::operation::Operation;
use crate::recorder::Recorder;
use crate::repetition::Repetition;
use crate::script::{CompiledScript, StepIndex};
use crate::usage::thread_cpu;

/// A client that opens a connection for each operation.
pub(crate) struct ChurnClient {
    key: usize,
    state: State,
    /// The operation has done its work once, in this time, and does it again.
    repeats: Option<PhaseTimes>,
}

#[expect(clippy::large_enum_variant, reason = "boxing would allocate for each connect")]
enum State {
    /// Between operations, and while a state is being replaced.
    Idle,
    Connecting(Connecting),
    /// Connected; the query has not been sent.
    Standing(Box<Connected>),
    Querying(Box<Querying>),
}

struct Querying {
    connected: Connected,
    reader: ResponseReader,
    place: StepIndex,
    /// Statements answered.
    answered: u64,
}

pub(crate) enum ConnectOperation {
    Connect,
    /// Queries, one after another; everything is timed.
    ConnectQuery(Query),
    /// One query; only the query is timed.
    FirstQuery(Query),
}

/// A statement whose values are drawn anew each time it is sent.
pub(crate) struct Query {
    program: CompiledScript,
    values: Values,
    random: Pcg64Mcg,
    sql: String,
}

pub(crate) struct ChurnShared<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) sources: SourceAddresses,
    pub(crate) purpose: ConnectOperation,
    pub(crate) repetition: Repetition,
    pub(crate) legs: Legs,
}

impl Query {
    pub(crate) fn new(program: CompiledScript, random: Pcg64Mcg) -> Self {
        Self { values: program.values(), program, random, sql: String::new() }
    }

    fn send(&mut self, connected: Connected) -> Result<Box<Querying>, Error> {
        let place = self.program.draw(&mut self.random, &mut self.values);
        self.send_step(connected, place, 0)
    }

    fn send_step(
        &mut self,
        mut connected: Connected,
        place: StepIndex,
        answered: u64,
    ) -> Result<Box<Querying>, Error> {
        let room = (connected.channel.output(), &mut self.sql);
        self.program.encode(place, &self.values, &connected.server, &[], room)?;
        connected.channel.send()?;
        let reader = connected.server.response_reader(ResponseKind::Text);
        Ok(Box::new(Querying { connected, reader, place, answered }))
    }
}

impl ChurnClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle, repeats: None }
    }

    fn connect(&mut self, churn: &mut ChurnShared<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = churn.dialer.dial(Some(&mut churn.sources))?;
        reactor.register(connecting.channel(), self.key, WatchedEvents::Both)?;
        self.state = State::Connecting(connecting);
        Ok(())
    }

    fn connected(
        &mut self,
        mut connected: Connected,
        churn: &mut ChurnShared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        inspect(&mut connected, &mut churn.legs, recorder);
        match &mut churn.purpose {
            ConnectOperation::Connect => self.close(connected, 0, churn, recorder),
            ConnectOperation::ConnectQuery(query) => {
                self.state = State::Querying(query.send(connected)?);
                Ok(Turn::Pending)
            }
            ConnectOperation::FirstQuery(_) => {
                self.state = State::Standing(Box::new(connected));
                Ok(Turn::Free)
            }
        }
    }

    fn query_ready(
        &mut self,
        mut querying: Box<Querying>,
        readiness: Readiness,
        churn: &mut ChurnShared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        let reader = &mut querying.reader;
        let answer = querying.connected.channel.read_response(readiness, |input| reader.step(input))?;
        let Some(summary) = answer else {
            self.state = State::Querying(querying);
            return Ok(Turn::Pending);
        };
        let Querying { mut connected, place, mut answered, .. } = *querying;
        answered += 1;
        if let ConnectOperation::ConnectQuery(query) | ConnectOperation::FirstQuery(query) =
            &mut churn.purpose
        {
            query.program.check(place, summary.row_bytes)?;
            if let Some(next) = query.program.next(place) {
                self.state = State::Querying(query.send_step(connected, next, answered)?);
                return Ok(Turn::Pending);
            }
        }
        if matches!(churn.purpose, ConnectOperation::FirstQuery(_)) {
            connected.stopwatch.lap(Phase::FirstQuery);
            let ended = finish(connected.stopwatch.times(), answered, recorder);
            connected.server.encode_goodbye(connected.channel.output());
            // The operation succeeded; a failing close does not change that.
            let _ = connected.channel.close();
            return Ok(ended);
        }
        connected.stopwatch.lap(Phase::FirstQuery);
        self.close(connected, answered, churn, recorder)
    }

    /// Ends the operation with an orderly close that waits for nothing.
    fn close(
        &mut self,
        mut connected: Connected,
        statements: u64,
        churn: &mut ChurnShared<'_>,
        recorder: &mut Recorder,
    ) -> Result<Turn, Error> {
        let mut stopwatch = connected.stopwatch;
        connected.server.encode_goodbye(connected.channel.output());
        connected.channel.close()?;
        stopwatch.lap(Phase::Close);
        let times = *stopwatch.times();
        match self.repeats.take() {
            Some(first) => Ok(finish(&(first + times), statements, recorder)),
            None if churn.repetition.is_due() => {
                self.repeats = Some(times);
                Ok(Turn::Free)
            }
            None => Ok(finish(&times, statements, recorder)),
        }
    }
}

impl LoadClient for ChurnClient {
    type Shared<'a> = ChurnShared<'a>;

    fn prepare(&mut self, churn: &mut ChurnShared<'_>, reactor: &Reactor) -> Result<Turn, Error> {
        match &churn.purpose {
            ConnectOperation::Connect | ConnectOperation::ConnectQuery(_) => Ok(Turn::Free),
            ConnectOperation::FirstQuery(_) => {
                self.connect(churn, reactor)?;
                Ok(Turn::Pending)
            }
        }
    }

    fn begin(&mut self, _: Instant, churn: &mut ChurnShared<'_>, reactor: &Reactor) -> Result<(), Error> {
        match (std::mem::replace(&mut self.state, State::Idle), &mut churn.purpose) {
            (State::Standing(mut connected), ConnectOperation::FirstQuery(query)) => {
                // Another phase: only the query is timed from here.
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
        churn: &mut ChurnShared<'_>,
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
                // A late edge of the connect, or the end of the stream, which the query will report.
                self.state = State::Standing(connected);
                Ok(Turn::Pending)
            }
            State::Querying(querying) => self.query_ready(querying, readiness, churn, recorder),
        }
    }
}

/// Counts what the connection negotiated. This is ciphertoll's work, not a client's: its time is in no phase, and its
/// CPU time is subtracted from the client's. Without TLS it costs less than reading the clock would.
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

fn finish(times: &PhaseTimes, statements: u64, recorder: &mut Recorder) -> Turn {
    let ended = Instant::now();
    recorder.phases(ended, times);
    // The phases must sum to the operation's time, to the nanosecond.
    let began = ended.checked_sub(times.total()).unwrap_or(ended);
    Turn::Ended(Operation { began, ended, statements, retries: 0 })
}
