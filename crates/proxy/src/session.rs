//! One client on one server connection: what is said between the two, and what must be said before and after.

use ciphertoll_wire::postgres::errand::Errand;
use ciphertoll_wire::postgres::relay::{FromClient, Relay, Rest};
use ciphertoll_wire::postgres::{Error, Parameters, Response, Severity, TransactionStatus};

use crate::wanted::{Wanted, cannot_fail};

/// A client's session on a server connection that was idle and reset.
#[derive(Debug)]
pub struct Session {
    relay: Relay,
    /// The client's settings, whose answers are still to come.
    errand: Option<Errand>,
    /// The server was sent something that a reset must undo.
    touched: bool,
    /// What a setting was before one was put in front of whatever the client says first.
    before: Option<(String, Vec<u8>)>,
    start: Start,
}

/// When a client is told that it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once. What was written for the server may wait for what the client says first.
    Now,
    /// When the server has taken the client's settings. What was written for it must be sent.
    WhenSet,
}

/// What to do with the bytes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromServer {
    /// So many from the front are nobody's.
    pub skip_bytes: usize,
    /// So many behind those are the client's.
    pub pass_bytes: usize,
    /// What the client is to be told before those.
    pub news: News,
}

/// What has become of a client's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing new.
    None,
    /// The server has taken them, and the client may begin.
    Begins,
    /// The server does not take them.
    Refused(Error),
}

/// What is to be done with a server connection whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Nothing: the server has not heard of that client. What was written for it is to be dropped.
    Untouched,
    /// A reset.
    Reset(TransactionStatus),
    /// It must be closed, as nobody knows what the server will say next.
    Close(&'static str),
}

impl Session {
    /// Begins a session. What gives it the client's settings is appended to `to_server`, which must be empty; the
    /// settings that are sure to be taken are in `parameters` then.
    pub fn begin(
        wanted: &Wanted,
        parameters: &mut Parameters,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let differing = wanted.differing(parameters);
        let mut session =
            Self { relay: Relay::new(), errand: None, touched: false, before: None, start: Start::Now };
        if differing.is_empty() {
            return Ok(session);
        }
        match differing.as_slice() {
            [(name, value)] if cannot_fail(name, value, parameters) => {
                let before = parameters.get(name.as_bytes()).unwrap_or_default().to_vec();
                session.before = Some(((*name).to_owned(), before));
                parameters.set(name.as_bytes(), value.as_bytes())?;
            }
            _ => {
                session.start = Start::WhenSet;
                session.touched = true;
            }
        }
        session.errand = Some(Errand::settings(differing, to_server)?);
        Ok(session)
    }

    /// When the client is told that it may begin.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Looks at the client's next bytes, those that were not passed on before and newer ones. An error is the client's.
    pub fn from_client(&mut self, input: &[u8]) -> Result<FromClient, Error> {
        let taken = self.relay.from_client(input)?;
        self.touched |= taken.pass_bytes > 0;
        Ok(taken)
    }

    /// Looks at the server's next bytes, those that were neither skipped nor passed on before and newer ones. What it
    /// says of its settings is kept in `parameters`. After an error the connection is of no more use.
    pub fn from_server(&mut self, input: &[u8], parameters: &mut Parameters) -> Result<FromServer, Error> {
        let mut rest = input;
        let mut news = News::None;
        if let Some(errand) = &mut self.errand {
            match errand.step(&mut rest, parameters) {
                Ok(Response::NeedInput) => {
                    return Ok(FromServer { skip_bytes: input.len() - rest.len(), pass_bytes: 0, news });
                }
                Ok(Response::Done(_)) if self.start == Start::WhenSet => news = News::Begins,
                Ok(Response::Done(_)) => {}
                Err(error) if self.start == Start::WhenSet && awaits_commands(&error) => {
                    news = News::Refused(error);
                }
                Err(error) => return Err(error),
            }
            self.errand = None;
            self.start = Start::Now;
        }
        let skip_bytes = input.len() - rest.len();
        let pass_bytes = self.relay.from_server(rest, parameters)?;
        Ok(FromServer { skip_bytes, pass_bytes, news })
    }

    /// Whether the client can be told more of what has become of the server.
    pub fn wants_a_reason(&self) -> bool {
        self.relay.between_answers() && !self.relay.error_was_last()
    }

    /// What is left behind. `parameters` are as before, where the server has not heard of the client.
    pub fn leave(self, parameters: &mut Parameters) -> Result<Leaving, Error> {
        if !self.touched {
            if let Some((name, value)) = &self.before {
                parameters.set(name.as_bytes(), value)?;
            }
            // Nothing was sent, but the server may have begun to say something unasked.
            return Ok(match self.relay.rest() {
                Rest::Unknown(reason) if !self.relay.between_answers() => Leaving::Close(reason),
                _ => Leaving::Untouched,
            });
        }
        if self.errand.is_some() {
            return Ok(Leaving::Close("the client left before its settings were made"));
        }
        Ok(match self.relay.rest() {
            Rest::Clean(transaction) => Leaving::Reset(transaction),
            Rest::Unknown(reason) => Leaving::Close(reason),
        })
    }
}

/// Whether the server has only said no.
fn awaits_commands(error: &Error) -> bool {
    matches!(error, Error::Server { severity: Severity::Error, .. })
}

#[cfg(test)]
mod tests;
