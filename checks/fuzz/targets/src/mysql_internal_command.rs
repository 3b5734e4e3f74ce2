//! Responses of a hostile server to internal commands of a pool, read at once and in portions, with the same result.
//!
//! Input: one byte of options, one byte for the portion size, then the responses: first to the query of the initial
//! session state, then to two resets.

use ciphertoll_wire::mysql::relay::{
    InitialState, InitialStateQuery, InternalCommand, MultiStatements, OpenState, ResetOutcome, SocketLimits,
    StateTracking, Transaction,
};
use ciphertoll_wire::mysql::{Capabilities, Error, Response};

/// A reset: what was sent, and its end.
type Reset = (Vec<u8>, Option<Result<ResetOutcome, Error>>);

#[derive(Debug, PartialEq)]
struct Run {
    beginning: Option<InitialState>,
    resets: Vec<Reset>,
}

pub fn run(data: &[u8]) {
    let &[choices, size, ref bytes @ ..] = data else { return };
    let mut idle = bytes;
    let end = InternalCommand::nothing().step(&mut idle, &mut None);
    // Without a command, there is no end.
    assert!(!matches!(end, Ok(Response::Done(_))));
    assert_eq!(
        read_in_portions(choices, bytes, usize::MAX),
        read_in_portions(choices, bytes, usize::from(size).max(1))
    );
}

fn read_in_portions(choices: u8, bytes: &[u8], size: usize) -> Run {
    let capabilities = if choices & 1 == 0 { Capabilities::DEPRECATE_EOF } else { Capabilities::default() };
    let database = (choices & 2 == 0).then(|| "shop".to_owned());
    let mut wire = Wire { later: bytes, received: Vec::new(), size };
    let mut out = Vec::new();
    let tracking = if choices & 8 == 0 { StateTracking::Off } else { StateTracking::On };
    let mut learning =
        InitialStateQuery::begin(capabilities, database, tracking, &mut out).expect("it can be written");
    let learnt = wire.feed(|input| learning.step(input));
    let mut run = Run { beginning: learnt.and_then(Result::ok), resets: Vec::new() };
    let remains = OpenState {
        transaction: Transaction::None,
        statements: if choices & 4 == 0 { MultiStatements::AsAgreed } else { MultiStatements::Changed },
        socket_limits: if choices & 16 == 0 { SocketLimits::AtLogin } else { SocketLimits::Changed },
    };
    for _ in 0..2 {
        let mut out = Vec::new();
        let Some(beginning) = &run.beginning else { break };
        let mut command =
            InternalCommand::reset(capabilities, beginning, remains, &mut out).expect("it can be written");
        let end = wire.feed(|input| command.step(input, &mut run.beginning));
        run.resets.push((out, end));
    }
    run
}

struct Wire<'a> {
    later: &'a [u8],
    received: Vec<u8>,
    size: usize,
}

impl Wire<'_> {
    fn feed<T>(
        &mut self,
        mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, Error>,
    ) -> Option<Result<T, Error>> {
        loop {
            let mut input = self.received.as_slice();
            let response = step(&mut input);
            let unread = input.len();
            self.received.drain(..self.received.len() - unread);
            match response {
                Ok(Response::Done(done)) => return Some(Ok(done)),
                Err(error) => return Some(Err(error)),
                Ok(Response::NeedInput) if self.later.is_empty() => return None,
                Ok(Response::NeedInput) => {
                    let (now, later) = self.later.split_at(self.size.min(self.later.len()));
                    self.received.extend_from_slice(now);
                    self.later = later;
                }
            }
        }
    }
}
