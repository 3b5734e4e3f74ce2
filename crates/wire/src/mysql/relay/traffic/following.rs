//! The interface of the relay for a [`SessionFollower`](crate::mysql::relay::SessionFollower), which decides
//! what happens to each command.

use crate::{
    mysql::{
        codec::{
            packet::{self, HEADER_BYTES, Header},
            prepare_ok::PrepareOk,
        },
        error::Error,
        relay::{
            commands::ResponseState,
            observer::{CompletedResponse, ResponseObserver},
            traffic::{MAX_START_BYTES, MultiStatements, MySqlRelay, Transaction},
        },
    },
    relay::Goodbye,
};

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

    /// Sets whether a transaction is open, as the server reported it to the proxy.
    pub fn set_transaction(&mut self, transaction: Transaction) {
        self.transaction = transaction;
    }

    /// Starts the command that [`Self::next_client_event`] returned. `left_bytes` of it follow what was sent in its
    /// place.
    pub(crate) fn begin_command(
        &mut self,
        kind: u8,
        header: Header,
        left_bytes: usize,
    ) -> Result<Goodbye, Error> {
        let goodbye = self.start_command(kind, header)?;
        if goodbye == Goodbye::None {
            self.client_framer.begin(header, &mut 0);
            self.client_framer.left_bytes = left_bytes;
        }
        Ok(goodbye)
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

    /// Takes the next response if it is a successful one to `COM_STMT_PREPARE`.
    pub(crate) fn take_prepared(&mut self, input: &[u8]) -> Result<Option<PrepareReply>, Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(None) };
        let is_next = self.observer.is_some()
            && self.server_framer.is_between_messages()
            && self.current == Some(ResponseState::PrepareOk)
            && payload.first() == Some(&0);
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
}
