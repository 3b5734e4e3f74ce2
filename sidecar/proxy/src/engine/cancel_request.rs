//! A cancel request on its way to the server.

use std::time::Instant;

use ciphertoll_net::{Channel, ConnectProgress, Connected, Connecting, Error, Readiness, Received};

use crate::slab::Id;

/// Requests in progress at a time. Further ones are dropped: they need no login.
pub(super) const MAX_CANCELS: usize = 64;

pub(super) struct CancelRequest {
    state: CancelState,
    /// The connection whose command it cancels.
    pub(super) server: Id,
    pub(super) requester: Requester,
    pub(super) until: Instant,
    /// To be sent after the login.
    commands: Vec<u8>,
}

/// Who asked for a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Client(Id),
    /// The command of this client took too long.
    TimeLimit(Id),
}

enum CancelState {
    Connecting(Box<Connecting>),
    /// The request is sent; the server has not closed the connection yet.
    Sent(Channel),
    Ended,
}

/// What the worker must do after a step of a cancel request.
#[derive(Debug)]
pub(super) enum CancelStep {
    Wait,
    /// The server has sent the signal: when it closes the request's connection, that has happened.
    Done,
    /// The request did not reach the server.
    Failed(Error),
    /// It is not known whether the request will still take effect: the connection must not be used again.
    Lost,
}

impl CancelRequest {
    pub(super) fn new(
        connecting: Connecting,
        commands: Vec<u8>,
        server: Id,
        requester: Requester,
        until: Instant,
    ) -> Self {
        Self { state: CancelState::Connecting(Box::new(connecting)), server, requester, until, commands }
    }

    /// The socket, to be watched; `None` unless it is connecting.
    pub(super) fn channel(&mut self) -> Option<&mut Channel> {
        match &mut self.state {
            CancelState::Connecting(connecting) => Some(connecting.channel()),
            CancelState::Sent(_) | CancelState::Ended => None,
        }
    }

    /// Calls `sent` when the request has been sent.
    pub(super) fn ready(&mut self, readiness: Readiness, sent: impl FnOnce()) -> CancelStep {
        match std::mem::replace(&mut self.state, CancelState::Ended) {
            CancelState::Connecting(connecting) => match advance(*connecting, readiness, &self.commands) {
                Ok(ConnectProgress::Pending(connecting)) => {
                    self.state = CancelState::Connecting(Box::new(connecting));
                    return CancelStep::Wait;
                }
                Ok(ConnectProgress::Done(connected)) => {
                    sent();
                    self.state = CancelState::Sent(connected.channel);
                }
                Err(error) => return CancelStep::Failed(error),
            },
            other => self.state = other,
        }
        self.await_end()
    }

    /// The server sends nothing; it closes the connection when it has sent the signal.
    fn await_end(&mut self) -> CancelStep {
        let CancelState::Sent(channel) = &mut self.state else { return CancelStep::Wait };
        loop {
            match channel.receive_input() {
                Ok(Received::WouldBlock) => return CancelStep::Wait,
                Ok(Received::Drained | Received::MoreLikely) => {
                    let bytes = channel.input().len();
                    channel.consume(bytes);
                }
                // With TLS, a close_notify comes first.
                Ok(Received::Closed) | Err(Error::Closed) => return CancelStep::Done,
                Err(_) => return CancelStep::Lost,
            }
        }
    }
}

fn advance(connecting: Connecting, readiness: Readiness, commands: &[u8]) -> Result<ConnectProgress, Error> {
    let mut progress = connecting.advance(readiness)?;
    if let ConnectProgress::Done(Connected { channel, .. }) = &mut progress {
        channel.output().extend_from_slice(commands);
        channel.send()?;
    }
    Ok(progress)
}
