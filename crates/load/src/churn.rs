//! A client that opens a connection for each operation.

use std::time::{Duration, Instant};

use ciphertoll_model::Statement;
use ciphertoll_net::{
    Connected, Connecting, Dialer, Error, Phase, Progress, Reactor, Readiness, SourceAddresses,
};
use ciphertoll_wire::session::{ResponseKind, ResponseReader};

use crate::injection::spin;
use crate::recorder::{Legs, Recorder};

const QUERY: &str = "SELECT 1";

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
    Querying(Box<Querying>),
}

struct Querying {
    connected: Connected,
    reader: ResponseReader,
}

/// What the churning clients of a thread have in common.
pub(crate) struct Churn<'a> {
    pub(crate) dialer: &'a Dialer,
    pub(crate) sources: SourceAddresses,
    pub(crate) statement: &'a Statement,
    pub(crate) injected_delay: Duration,
    pub(crate) legs: Legs,
}

impl ChurnClient {
    pub(crate) fn new(key: usize) -> Self {
        Self { key, state: State::Idle }
    }

    /// Begins an operation.
    pub(crate) fn begin(&mut self, churn: &mut Churn<'_>, reactor: &Reactor) -> Result<(), Error> {
        let mut connecting = churn.dialer.dial(Some(&mut churn.sources))?;
        reactor.register(connecting.channel(), self.key)?;
        self.state = State::Connecting(connecting);
        Ok(())
    }

    /// Goes on; records and begins anew when an operation is complete.
    pub(crate) fn ready(
        &mut self,
        readiness: Readiness,
        churn: &mut Churn<'_>,
        reactor: &Reactor,
        recorder: &mut Recorder,
    ) -> Result<(), Error> {
        let finished = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => None,
            State::Connecting(connecting) => match connecting.advance(readiness)? {
                Progress::Pending(connecting) => {
                    self.state = State::Connecting(connecting);
                    None
                }
                Progress::Done(connected) => self.connected(connected, churn)?,
            },
            State::Querying(querying) => self.query_answered(querying, readiness)?,
        };
        if let Some(connected) = finished {
            close(connected, churn, recorder)?;
            self.begin(churn, reactor)?;
        }
        Ok(())
    }

    /// Sends the query, where the operation has one; else the connection is done with.
    fn connected(&mut self, mut connected: Connected, churn: &Churn<'_>) -> Result<Option<Connected>, Error> {
        if *churn.statement == Statement::Connect {
            return Ok(Some(connected));
        }
        connected.server.encode_query(connected.channel.output(), QUERY)?;
        connected.channel.send()?;
        let reader = connected.server.response_reader(ResponseKind::Text);
        self.state = State::Querying(Box::new(Querying { connected, reader }));
        Ok(None)
    }

    fn query_answered(
        &mut self,
        mut querying: Box<Querying>,
        readiness: Readiness,
    ) -> Result<Option<Connected>, Error> {
        let reader = &mut querying.reader;
        let answered = querying.connected.channel.read_response(readiness, |input| reader.step(input))?;
        if answered.is_none() {
            self.state = State::Querying(querying);
            return Ok(None);
        }
        querying.connected.stopwatch.lap(Phase::FirstQuery);
        Ok(Some(querying.connected))
    }
}

/// Ends the operation: what was negotiated is noted, goodbye is said, nothing is waited for.
fn close(mut connected: Connected, churn: &mut Churn<'_>, recorder: &mut Recorder) -> Result<(), Error> {
    churn.legs.count(&connected);
    let mut stopwatch = connected.stopwatch;
    connected.server.encode_goodbye(connected.channel.output());
    connected.channel.close()?;
    spin(churn.injected_delay);
    stopwatch.lap(Phase::Close);
    recorder.connect(Instant::now(), stopwatch.times());
    Ok(())
}
