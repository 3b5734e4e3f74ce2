//! One client on one server connection: what is said between the two, and what must be said before and after.

use ciphertoll_wire::mysql::beginning::{Beginning, Learning};
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{Relay, Remains, Rest};
use ciphertoll_wire::mysql::server::write_ok;
use ciphertoll_wire::mysql::{Capabilities, Error, Response, ServerInfo};
use ciphertoll_wire::relay;

use super::numbers::{Listed, Numbers, OWN};
use super::refusal;
use super::wanted::Wanted;
use crate::dialect::{FromClient, FromServer, Leaving, News, Start};
use crate::refusal::Refusal;

/// What is known of a server connection.
#[derive(Debug)]
pub struct Facts {
    /// What was agreed on.
    pub capabilities: Capabilities,
    /// The server's number for it.
    pub connection_id: u32,
    /// "Status flags" of a session that has just begun.
    pub status: u16,
    /// The database that the login was in.
    pub database: Option<String>,
    /// How its sessions begin; none before the first one, which finds out.
    pub beginning: Option<Beginning>,
}

/// A client's session on a server connection that was idle and reset.
#[derive(Debug)]
pub struct Session {
    relay: Relay,
    /// The server is asked how sessions begin.
    learning: Option<Learning>,
    /// Where the client is.
    client: Client,
    /// The server was sent something of the client's.
    touched: bool,
    listed: Listed,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// It waits for the packet with this number, which ends its login.
    LoggingIn { sequence: u8 },
    /// It was told that it may begin, in the packet with this number.
    LoggedIn { sequence: u8 },
}

impl Facts {
    /// What the login has shown; it was in this database.
    pub fn of(server: &ServerInfo, database: Option<String>) -> Self {
        Self {
            capabilities: server.capabilities,
            connection_id: server.connection_id,
            status: server.greeting.status(),
            database,
            beginning: None,
        }
    }
}

impl Session {
    /// Begins a session. What the first one of a connection must ask is appended to `to_server`, which must be empty.
    pub fn begin(
        wanted: &Wanted,
        facts: &Facts,
        numbers: &Numbers,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let learning = match facts.beginning {
            Some(_) => None,
            None => Some(Learning::begin(facts.capabilities, facts.database.clone(), to_server)?),
        };
        let sequence = wanted.sequence;
        let client = match learning {
            Some(_) => Client::LoggingIn { sequence },
            None => Client::LoggedIn { sequence },
        };
        Ok(Self {
            relay: Relay::new(facts.capabilities).with_own_numbers(OWN),
            learning,
            client,
            touched: false,
            listed: numbers.list(wanted.connection_id, facts.connection_id),
        })
    }

    /// When the client is told that it may begin.
    pub fn start(&self) -> Start {
        if self.learning.is_some() { Start::WhenSet } else { Start::Now }
    }

    /// Appends what a client is told that may begin.
    pub fn greet(&self, facts: &Facts, out: &mut Vec<u8>) -> Result<(), Error> {
        let (Client::LoggingIn { sequence } | Client::LoggedIn { sequence }) = self.client;
        write_ok(out, sequence, &OkPacket { status: facts.status, ..OkPacket::default() })
    }

    /// Looks at the client's next bytes, those that were not passed on before and newer ones. An error is the client's.
    pub fn from_client(&mut self, input: &[u8]) -> Result<FromClient, Error> {
        let relay::FromClient { pass_bytes, goodbye } = self.relay.from_client(input)?;
        self.touched |= pass_bytes > 0;
        let mut taken = FromClient { pass_bytes, drop_bytes: 0, insert: Vec::new(), goodbye };
        let rest = &input[pass_bytes..];
        if let Some((kill, bytes)) = self.relay.kill(rest) {
            self.relay.replace_kill(rest)?;
            self.touched = true;
            taken.drop_bytes = bytes;
            // The server says itself that it knows nobody of a number that is not its own.
            kill.encode(self.listed.name(kill.number).unwrap_or(kill.number), &mut taken.insert)?;
        }
        Ok(taken)
    }

    /// Looks at the server's next bytes, those that were neither skipped nor passed on before and newer ones. After an
    /// error the connection is of no more use.
    pub fn from_server(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromServer, Error> {
        let mut rest = input;
        let mut news = News::None;
        if let Some(learning) = &mut self.learning {
            match learning.step(&mut rest) {
                Ok(Response::NeedInput) => {
                    return Ok(FromServer { skip_bytes: input.len() - rest.len(), ..FromServer::default() });
                }
                Ok(Response::Done(beginning)) => {
                    facts.beginning = Some(beginning);
                    let (Client::LoggingIn { sequence } | Client::LoggedIn { sequence }) = self.client;
                    self.client = Client::LoggedIn { sequence };
                    news = News::Begins;
                }
                Err(error @ Error::Server { .. }) => news = News::Refused(error.into()),
                Err(error) => return Err(error),
            }
            self.learning = None;
        }
        let skip_bytes = input.len() - rest.len();
        let pass_bytes = self.relay.from_server(rest)?;
        if let Rest::Clean(_) = self.relay.rest() {
            self.listed.all_answered();
        }
        Ok(FromServer { skip_bytes, news, pass_bytes, ..FromServer::default() })
    }

    /// Whether the client can be told more of what has become of the server.
    pub fn wants_a_reason(&self) -> bool {
        self.relay.between_answers() && !self.relay.error_was_last()
    }

    /// Appends why it ends.
    pub fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let sequence = match self.client {
            Client::LoggingIn { sequence } => sequence,
            Client::LoggedIn { .. } => self.relay.next_sequence(),
        };
        refusal::write(refusal, sequence, out);
    }

    /// What is left behind.
    pub fn leave(&self) -> Leaving<Remains> {
        if self.learning.is_some() {
            return Leaving::Close("the client left before its session began");
        }
        match self.relay.rest() {
            Rest::Unknown(reason) => Leaving::Close(reason),
            Rest::Clean(_) if self.listed.is_named() => {
                Leaving::Close("a KILL is on its way to it, and must not hit another client")
            }
            Rest::Clean(_) if !self.touched => Leaving::Untouched,
            Rest::Clean(remains) => Leaving::Reset(remains),
        }
    }
}

#[cfg(test)]
mod tests;
