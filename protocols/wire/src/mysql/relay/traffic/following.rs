//! The interface of the relay for a [`SessionFollower`](crate::mysql::relay::SessionFollower), which decides
//! what happens to each command.

use crate::{
    mysql::{
        codec::{
            ok::OkPacket,
            packet::{self, HEADER_BYTES, Header},
            prepare_ok::PrepareOk,
        },
        error::Error,
        relay::{
            commands::{CommandStart, ResponseState},
            observer::{CompletedResponse, ResponseObserver},
            session_end::SocketLimits,
            traffic::{MAX_START_BYTES, MultiStatements, MySqlRelay, Transaction},
        },
        sql::remains::Remains,
    },
    relay::{Goodbye, RoleDoubt},
};

/// Errors of a server that accepts no writes any more (`--read-only` and its variants, a read-only InnoDB), shuts down, or
/// has lost its cluster. The first one has other causes, too.
const ERRORS_OF_LOST_ROLES: [u16; 4] = [1290, 1836, 1053, 1047];

/// A successful response to `COM_STMT_PREPARE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrepareReply {
    pub(crate) prepare_ok: PrepareOk,
    /// The length of the packet with its header.
    pub(crate) bytes: usize,
}

impl MySqlRelay {
    /// Records events for a session follower, which then reads the client's bytes in place of
    /// [`Self::process_client`]. The server's bytes stop before each successful response to `COM_STMT_PREPARE`.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.observer = Some(ResponseObserver::default());
        self
    }

    /// Restores the state of `COM_SET_OPTION` on another connection.
    pub fn set_statements(&mut self, statements: MultiStatements) {
        self.statements = statements;
    }

    /// Restores what is known of the limits of the socket.
    pub fn set_socket_limits(&mut self, socket_limits: SocketLimits) {
        self.session_end.set_socket_limits(socket_limits);
    }

    /// Sets whether a transaction is open, as the server reported it to the proxy.
    pub fn set_transaction(&mut self, transaction: Transaction) {
        self.transaction = transaction;
    }

    /// Starts the command that [`Self::next_client_event`] returned. `left_bytes` of it follow what was sent in its
    /// place.
    pub(crate) fn begin_command(
        &mut self,
        command: CommandStart,
        left_bytes: usize,
    ) -> Result<Goodbye, Error> {
        let goodbye = self.start_command(command)?;
        if goodbye == Goodbye::None {
            self.client_framer.begin(command.header, &mut 0);
            self.client_framer.left_bytes = left_bytes;
        }
        Ok(goodbye)
    }

    /// Starts a command that is not forwarded. The server gets a command in its place that is answered with an OK, and
    /// the client an ERR: see [`Self::take_refused`].
    pub(crate) fn begin_refused(&mut self, command: CommandStart) {
        self.remains.raise(Remains::Anything);
        self.push_pending(ResponseState::Refused);
        self.client_framer.begin(command.header, &mut 0);
    }

    /// Whether the client's last message is complete.
    pub(crate) fn client_is_between_messages(&self) -> bool {
        self.client_framer.is_between_messages()
    }

    /// Whether a command is, or may turn out to be, one for [`Self::kill`].
    pub(crate) fn may_be_kill(&self, header: Header, payload: &[u8]) -> bool {
        self.must_hold(header, payload)
    }

    /// The responses that have ended since the last call.
    pub(crate) fn take_completed(&mut self) -> Vec<CompletedResponse> {
        self.observer.as_mut().map(|observer| std::mem::take(&mut observer.completed)).unwrap_or_default()
    }

    /// Whether the next response, which starts with this byte, is not forwarded as it is.
    pub(super) fn is_taken(&self, first: Option<&u8>) -> bool {
        self.observer.is_some()
            && matches!(self.current, Some(ResponseState::PrepareOk | ResponseState::Refused))
            && first == Some(&0)
    }

    /// Takes the OK that the server has sent in place of an ERR for the client. Returns its length, and the sequence
    /// number that the ERR must have.
    pub(crate) fn take_refused(&mut self, input: &[u8]) -> Result<Option<(usize, u8)>, Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(None) };
        let is_next = self.current == Some(ResponseState::Refused)
            && self.server_framer.is_between_messages()
            && self.is_taken(payload.first());
        let Some(payload) = payload.get(..header.length).filter(|_| is_next) else { return Ok(None) };
        let sequence = self.next;
        self.record_status(OkPacket::parse(payload)?, payload);
        // The code is the proxy's own.
        self.record_error(0);
        self.advance(None);
        Ok(Some((HEADER_BYTES + header.length, sequence)))
    }

    /// Takes the next response if it is a successful one to `COM_STMT_PREPARE`.
    pub(crate) fn take_prepared(&mut self, input: &[u8]) -> Result<Option<PrepareReply>, Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(None) };
        let is_next = self.current == Some(ResponseState::PrepareOk)
            && self.server_framer.is_between_messages()
            && self.is_taken(payload.first());
        if !is_next {
            return Ok(None);
        }
        if header.length > MAX_START_BYTES {
            return Err(Error::protocol("response to PREPARE", "it is too long"));
        }
        let Some(start) = payload.get(..header.length) else { return Ok(None) };
        self.read_response(header, start, start)?;
        let prepare_ok = PrepareOk::parse(start)?;
        Ok(Some(PrepareReply { prepare_ok, bytes: HEADER_BYTES + header.length }))
    }

    /// Whether an error since the last call may mean that the server has lost its role.
    pub fn take_role_doubt(&mut self) -> RoleDoubt {
        std::mem::take(&mut self.role_doubt)
    }

    pub(super) fn note_role(&mut self, code: u16) {
        if ERRORS_OF_LOST_ROLES.contains(&code) {
            self.role_doubt = RoleDoubt::Raised;
        }
    }
}
