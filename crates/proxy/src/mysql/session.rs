//! One client on one server connection: what is said between the two, and what must be said before and after.

use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{
    self, ConnectionStatements, Diagnostics, InitialState, InitialStateQuery, KillCommand, KillReplacement,
    MySqlRelay, OpenState, ServerProduct, SessionRestore, SessionState,
};
use ciphertoll_wire::mysql::server::write_ok;
use ciphertoll_wire::mysql::{Capabilities, Error, MySqlServerInfo, Response, Terms};

use super::numbers::{Listed, Named, Numbers, OWN};
use super::refusal;
use super::shared::{Purpose, Shared};
use super::wanted::{Entry, Wanted};
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
    pub beginning: Option<InitialState>,
    /// Whose names of settings the server knows.
    pub flavour: ServerProduct,
    /// The statements that its client has prepared, where sessions are parted.
    pub prepared: ConnectionStatements,
}

/// What its reset must know of a session, and whether others must wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Left {
    /// For the reset.
    pub remains: OpenState,
    /// What its client may still ask for.
    pub diagnostics: Diagnostics,
}

/// A client's session on a server connection that was idle and reset.
#[derive(Debug)]
pub struct Session {
    pub(super) relay: MySqlRelay,
    /// The server is asked how sessions begin.
    pub(super) learning: Option<InitialStateQuery>,
    /// What is said and asked for the client, where sessions are parted.
    pub(super) errand: Option<(Purpose, SessionRestore)>,
    /// Where the client is.
    pub(super) client: Client,
    /// The server was sent something of the client's.
    pub(super) touched: bool,
    pub(super) whose: Whose,
    pub(super) known: Known,
}

/// Whose a session is.
#[derive(Debug)]
pub(super) enum Whose {
    /// One client's, all of it.
    Alone(Listed),
    /// One client's until its transaction ends.
    Shared(Box<Shared>),
}

/// What is known of a client, for when it logs in anew.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) entry: Option<Entry>,
    pub(super) terms: Terms,
    pub(super) connection_id: u32,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// It waits for the packet with this number, which ends its login.
    LoggingIn { sequence: u8 },
    /// It was told that it may begin, in the packet with this number.
    LoggedIn { sequence: u8 },
}

impl Facts {
    /// What the login has shown; it was in this database.
    pub fn of(server: &MySqlServerInfo, database: Option<String>) -> Self {
        Self {
            capabilities: server.capabilities,
            connection_id: server.connection_id,
            status: server.greeting.status(),
            database,
            beginning: None,
            flavour: ServerProduct::of(&server.version),
            prepared: ConnectionStatements::default(),
        }
    }
}

impl Known {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let Wanted { entry, terms, connection_id, .. } = wanted;
        Self { entry: entry.clone(), terms: *terms, connection_id: *connection_id }
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
            None => Some(InitialStateQuery::begin(facts.capabilities, facts.database.clone(), to_server)?),
        };
        let sequence = wanted.sequence;
        let client = match learning {
            Some(_) => Client::LoggingIn { sequence },
            None => Client::LoggedIn { sequence },
        };
        Ok(Self {
            relay: MySqlRelay::new(facts.capabilities).with_own_numbers(OWN),
            learning,
            errand: None,
            client,
            touched: false,
            whose: Whose::Alone(numbers.list(wanted.connection_id, Some(facts.connection_id))),
            known: Known::of(wanted),
        })
    }

    /// What is known of its client; none amid an answer, when nobody logs in anew.
    pub(super) fn known(&self) -> Option<&Known> {
        matches!(self.relay.session_state(), SessionState::Clean(_)).then_some(&self.known)
    }

    /// When the client is told that it may begin.
    pub fn start(&self) -> Start {
        let is_stopped = match &self.whose {
            Whose::Alone(_) => false,
            Whose::Shared(shared) => {
                shared.is_stopped()
                    || matches!(&self.errand, Some((purpose, _)) if *purpose != Purpose::Early)
            }
        };
        if self.learning.is_some() || is_stopped { Start::WhenSet } else { Start::Now }
    }

    /// Appends what a client is told that may begin.
    pub fn greet(&self, facts: &Facts, out: &mut Vec<u8>) -> Result<(), Error> {
        let (Client::LoggingIn { sequence } | Client::LoggedIn { sequence }) = self.client;
        write_ok(out, sequence, &OkPacket { status: facts.status, ..OkPacket::default() })
    }

    /// Looks at the client's next bytes, those that were not passed on before and newer ones. An error is the client's.
    pub fn from_client(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromClient, Error> {
        if let Whose::Shared(_) = self.whose {
            return self.shared_from_client(input, facts);
        }
        let ciphertoll_wire::relay::FromClient { pass_bytes, goodbye } = self.relay.from_client(input)?;
        self.touched |= pass_bytes > 0;
        let mut taken = FromClient::passes(pass_bytes, goodbye);
        if let Some((_, bytes)) = self.kill(&input[pass_bytes..], facts, &mut taken.insert)? {
            taken.drop_bytes = bytes;
        }
        Ok(taken)
    }

    /// Sends KILLs of numbers of the proxy's own on with the server's, if the client's next command has some: what it is,
    /// and its length.
    pub(super) fn kill(
        &mut self,
        rest: &[u8],
        facts: &Facts,
        insert: &mut Vec<u8>,
    ) -> Result<Option<(KillCommand, usize)>, Error> {
        let Some((kill, bytes)) = self.relay.kill(rest) else { return Ok(None) };
        self.relay.replace_kill(rest)?;
        self.touched = true;
        let listed = self.listed();
        let instead = |named: &relay::KillStatement| match listed.name(named.number, named.target) {
            Named::Server(number) => KillReplacement::Number(number),
            // The server says itself that it knows nobody of a number that is not its own.
            Named::Nobody => KillReplacement::Number(named.number),
            Named::Told => KillReplacement::Nothing,
        };
        kill.encode(facts.capabilities, instead, insert)?;
        Ok(Some((kill, bytes)))
    }

    pub(super) fn listed(&mut self) -> &mut Listed {
        match &mut self.whose {
            Whose::Alone(listed) => listed,
            Whose::Shared(shared) => &mut shared.carried.listed,
        }
    }

    /// Looks at the server's next bytes, those that were neither skipped nor passed on before and newer ones. After an
    /// error the connection is of no more use.
    pub fn from_server(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromServer, Error> {
        let mut rest = input;
        let news = self.learn(&mut rest, facts)?;
        let skip_bytes = input.len() - rest.len();
        if let Whose::Shared(_) = self.whose {
            return self.shared_from_server(input, skip_bytes, news, facts);
        }
        if self.learning.is_some() {
            return Ok(FromServer { skip_bytes, ..FromServer::default() });
        }
        let pass_bytes = self.relay.from_server(rest)?;
        if let SessionState::Clean(_) = self.relay.session_state() {
            self.listed().all_answered();
        }
        Ok(FromServer { skip_bytes, news, pass_bytes, ..FromServer::default() })
    }

    /// Reads how sessions begin, if that is asked.
    fn learn(&mut self, rest: &mut &[u8], facts: &mut Facts) -> Result<News, Error> {
        let Some(learning) = &mut self.learning else { return Ok(News::None) };
        let news = match learning.step(rest) {
            Ok(Response::NeedInput) => return Ok(News::None),
            Ok(Response::Done(beginning)) => {
                facts.beginning = Some(beginning);
                self.begins();
                News::Begins
            }
            Err(error @ Error::Server { .. }) => News::Refused(error.into()),
            Err(error) => return Err(error),
        };
        self.learning = None;
        Ok(news)
    }

    /// The client is told that it may begin, if it waits for that.
    pub(super) fn begins(&mut self) {
        let (Client::LoggingIn { sequence } | Client::LoggedIn { sequence }) = self.client;
        self.client = Client::LoggedIn { sequence };
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
    pub fn leave(&self) -> Leaving<Left> {
        if self.learning.is_some() {
            return Leaving::Close("the client left before its session began");
        }
        let (listed, diagnostics) = match &self.whose {
            Whose::Alone(listed) => (listed, Diagnostics::None),
            Whose::Shared(shared) => (&shared.carried.listed, shared.diagnostics),
        };
        match self.relay.session_state() {
            SessionState::Unknown(reason) => Leaving::Close(reason),
            SessionState::Clean(_) if listed.is_named() => {
                Leaving::Close("a KILL is on its way to it, and must not hit another client")
            }
            SessionState::Clean(_) if !self.touched => Leaving::Untouched,
            SessionState::Clean(_) if self.errand.is_some() => {
                Leaving::Close("the client left before all was answered that was asked for it")
            }
            SessionState::Clean(remains) => Leaving::Reset(Left { remains, diagnostics }),
        }
    }
}

#[cfg(test)]
mod tests;
