//! What a MySQL client asks for in its login.

use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{RELAYED, begins_with_quit, first_command_bytes, has_answered_command};
use ciphertoll_wire::mysql::server::{write_err, write_ok};
use ciphertoll_wire::mysql::{Capabilities, Error, Terms};
use smol_str::SmolStr;

use super::connection_ids::ConnectionIds;
use super::refusal;
use super::session_state::SessionState;
use crate::client_auth::{ClientAuth, TlsState};
use crate::protocol::{FirstInput, PendingKill, ProtocolRequest};
use crate::refusal::Refusal;

/// The proxy cannot read compressed commands.
const COMPRESSIONS: [Capabilities; 2] = [Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION];
/// Longer than any name of a server's user or database.
const MAX_NAME_BYTES: usize = 1024;
/// Sequence number of the first packet of a response.
const FIRST_ANSWER: u8 = 1;
/// A connection is acquired for a command when so much of it has arrived, or all.
const MAX_AWAITED_BYTES: usize = 1 << 14;
/// `ER_QUERY_INTERRUPTED`.
pub(super) const INTERRUPTED: ErrPacket<'static> =
    ErrPacket { code: 1317, sql_state: *b"70100", message: b"Query execution was interrupted" };

/// Boxed wherever it is kept, because it moves from state to state.
#[derive(Debug)]
pub struct StartupRequest {
    pub user: SmolStr,
    pub database: Option<SmolStr>,
    /// The capabilities offered to the client that it accepts. Its server connection uses the same.
    pub terms: Terms,
    pub connection_id: u32,
    /// Sequence number of the packet that ends the login.
    pub sequence: u8,
    pub(super) session_state: Option<Box<SessionState>>,
    pub(super) proof: PasswordProof,
    /// `None` before the login is complete.
    pub login_context: Option<LoginContext>,
}

/// What has shown that a client may log in as its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PasswordProof {
    Settings,
    /// The server has accepted its password.
    Server,
}

/// How a client has logged in, for a change of its user.
#[derive(Clone, Debug)]
pub struct LoginContext {
    pub auth: ClientAuth,
    pub tls: TlsState,
    pub nonce: [u8; NONCE_BYTES],
    pub terms: Terms,
    pub connection_id: u32,
}

// Equality of what was asked for in the login.
impl PartialEq for StartupRequest {
    fn eq(&self, other: &Self) -> bool {
        let key = |request: &Self| (request.terms, request.connection_id, request.sequence);
        self.user == other.user && self.database == other.database && key(self) == key(other)
    }
}

impl Eq for StartupRequest {}

impl StartupRequest {
    /// Reads the login; fails if the client asks for something that the proxy cannot grant.
    pub(super) fn read(
        login: &HandshakeResponse<'_>,
        offered: Capabilities,
        connection_id: u32,
    ) -> Result<Box<Self>, Refusal> {
        let requested = login.head.capabilities;
        if COMPRESSIONS.iter().any(|compression| requested.contains(*compression)) {
            let message = "compression was not offered: this proxy does not support it";
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        }
        let capabilities = requested & offered & RELAYED;
        let terms = Terms { capabilities, character_set: login.head.character_set };
        Self::new(login.user, login.database.unwrap_or_default(), terms, connection_id)
    }

    /// Reads the change of the user of a client that has logged in on these terms.
    pub(super) fn change(
        change: &ChangeUser<'_>,
        terms: Terms,
        connection_id: u32,
    ) -> Result<Box<Self>, Refusal> {
        let character_set = change.character_set.map_or(Ok(terms.character_set), u8::try_from);
        let character_set = character_set.map_err(|_| {
            let message = "the number of the character set does not fit in one byte";
            Refusal::new(Refusal::UNSUPPORTED, message)
        })?;
        Self::new(change.user, change.database, Terms { character_set, ..terms }, connection_id)
    }

    fn new(user: &[u8], database: &[u8], terms: Terms, connection_id: u32) -> Result<Box<Self>, Refusal> {
        Ok(Box::new(Self {
            user: text(user, "user")?,
            database: Some(text(database, "database")?).filter(|name| !name.is_empty()),
            terms,
            connection_id,
            sequence: 0,
            session_state: None,
            proof: PasswordProof::Settings,
            login_context: None,
        }))
    }

    /// Completes the login, with the status flags of a new session on the server.
    pub(super) fn greet(
        &mut self,
        status: u16,
        connection_ids: &ConnectionIds,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        write_ok(out, self.sequence, &OkPacket { status, ..OkPacket::default() })?;
        let registration = connection_ids.register(self.connection_id, None);
        let session_state = self.session_state.insert(Box::new(SessionState::new(registration, status)));
        session_state.was_greeted = true;
        Ok(())
    }

    fn clear_query_kill(&self) {
        if let Some(session_state) = &self.session_state {
            session_state.registration.clear_query_kill();
        }
    }
}

impl ProtocolRequest for Box<StartupRequest> {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let was_greeted = self.session_state.as_ref().is_some_and(|session_state| session_state.was_greeted);
        refusal::write(refusal, if was_greeted { FIRST_ANSWER } else { self.sequence }, out);
    }

    fn has_command(&self, input: &[u8]) -> bool {
        has_answered_command(input)
    }

    fn first_input(&self, input: &[u8]) -> FirstInput {
        // A new command: nothing of it has been cancelled.
        self.clear_query_kill();
        match input {
            _ if begins_with_quit(input) => FirstInput::Terminate,
            [a, b, c, _, arrived @ ..] => {
                let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
                let is_here = arrived.len() >= length.min(MAX_AWAITED_BYTES);
                if is_here { FirstInput::Command } else { FirstInput::Incomplete }
            }
            _ => FirstInput::Incomplete,
        }
    }

    fn take_unanswered(&mut self, input: &[u8]) -> usize {
        self.session_state.as_mut().map_or(0, |session_state| session_state.statements.close_all(input))
    }

    fn pending_kill(&self) -> PendingKill {
        let session_state = self.session_state.as_ref();
        session_state.map_or(PendingKill::None, |state| state.registration.pending_kill())
    }

    fn cancel_command(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bytes = first_command_bytes(input)?;
        self.clear_query_kill();
        write_err(out, FIRST_ANSWER, &INTERRUPTED).ok()?;
        Some(bytes)
    }
}

fn text(bytes: &[u8], what: &str) -> Result<SmolStr, Refusal> {
    let name = if bytes.len() <= MAX_NAME_BYTES { str::from_utf8(bytes).ok() } else { None };
    let refusal = || Refusal::new(Refusal::WHO, format!("the {what} name is too long or not UTF-8"));
    name.map(SmolStr::new).ok_or_else(refusal)
}
