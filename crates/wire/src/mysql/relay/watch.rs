//! What a [`SessionFollower`](super::SessionFollower) learns from the relay: how each response ended, and
//! where commands start.

use crate::relay::Goodbye;

use super::{
    ResponseState, Error, HEADER_BYTES, Header, MAX_START_BYTES, MultiStatements, OkPacket, PrepareOk, MySqlRelay, Transaction,
    ClientPayload, protocol_error, packet,
};

/// What is recorded for the session follower.
#[derive(Debug, Default)]
pub(super) struct ResponseObserver {
    /// The responses that have ended, in order.
    completed: Vec<CompletedResponse>,
    /// The last OK or EOF of the current response, or its ERR.
    end: ResponseEnd,
    /// The last insert id of the current response.
    insert_id: u64,
}

impl ResponseObserver {
    pub(super) fn record_ok(&mut self, end: OkPacket) {
        self.end = ResponseEnd::Ok(end);
    }

    pub(super) fn record_err(&mut self) {
        self.end = ResponseEnd::Err;
    }

    pub(super) fn record_insert_id(&mut self, ok: OkPacket) {
        if ok.last_insert_id != 0 {
            self.insert_id = ok.last_insert_id;
        }
    }

    pub(super) fn end_response(&mut self) {
        let (end, insert_id) = (std::mem::take(&mut self.end), std::mem::take(&mut self.insert_id));
        self.completed.push(CompletedResponse { end, insert_id });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct CompletedResponse {
    pub(in super::super) end: ResponseEnd,
    /// 0 if none was reported.
    pub(in super::super) insert_id: u64,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum ResponseEnd {
    /// Without an OK, EOF or ERR.
    #[default]
    NoStatus,
    Ok(OkPacket),
    Err,
}

/// The next event in the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ClientEvent {
    /// More input is needed.
    NeedInput,
    /// This many bytes of the current message.
    Payload(usize),
    /// The header of another packet of the current message.
    Header,
    /// A command that has not started yet.
    Command(u8, Header),
}

/// A successful response to `COM_STMT_PREPARE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct PrepareReply {
    pub(in super::super) prepare_ok: PrepareOk,
    /// The length of the packet with its header.
    pub(in super::super) bytes: usize,
}

impl MySqlRelay {
    /// Records events for a session follower, which then reads the client's bytes in place of
    /// [`Self::from_client`]. The server's bytes stop before each successful response to `COM_STMT_PREPARE`.
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

    /// Reads the next event from the client's bytes.
    pub(in super::super) fn next_client_event(&mut self, input: &[u8]) -> Result<ClientEvent, Error> {
        let mut at = 0;
        let ends = self.client_framer.skip(input, &mut at);
        if at > 0 {
            return Ok(ClientEvent::Payload(at));
        }
        let Some((header, payload)) = (if ends { packet::peek_header(input) } else { None }) else {
            return Ok(ClientEvent::NeedInput);
        };
        if self.client_framer.continues {
            self.continue_message(header);
        } else if self.client_payload == ClientPayload::File {
            self.read_file_part(header);
        } else if header.length == 0 {
            return Err(protocol_error("command", "it is empty"));
        } else {
            return Ok(payload.first().map_or(ClientEvent::NeedInput, |kind| ClientEvent::Command(*kind, header)));
        }
        self.client_framer.begin(header, &mut 0);
        Ok(ClientEvent::Header)
    }

    /// Starts the command that [`Self::next_client_event`] returned. `left_bytes` of it follow what was sent in its
    /// place.
    pub(in super::super) fn begin_command(
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
    pub(in super::super) fn client_is_between_messages(&self) -> bool {
        self.client_framer.is_between_messages()
    }

    /// Whether a command is, or may turn out to be, one for [`Self::kill`].
    pub(in super::super) fn may_be_kill(&self, header: Header, payload: &[u8]) -> bool {
        self.must_hold(header, payload)
    }

    /// The responses that have ended since the last call.
    pub(in super::super) fn take_completed(&mut self) -> Vec<CompletedResponse> {
        self.observer.as_mut().map(|observer| std::mem::take(&mut observer.completed)).unwrap_or_default()
    }

    /// Takes the next response if it is a successful one to `COM_STMT_PREPARE`.
    pub(in super::super) fn take_prepared(&mut self, input: &[u8]) -> Result<Option<PrepareReply>, Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(None) };
        let is_next = self.observer.is_some()
            && self.server_framer.is_between_messages()
            && self.current == Some(ResponseState::PrepareOk)
            && payload.first() == Some(&0);
        if !is_next {
            return Ok(None);
        }
        if header.length > MAX_START_BYTES {
            return Err(protocol_error("answer to PREPARE", "it is too long"));
        }
        let Some(start) = payload.get(..header.length) else { return Ok(None) };
        self.read_response(header, start)?;
        let prepare_ok = PrepareOk::parse(start)?;
        Ok(Some(PrepareReply { prepare_ok, bytes: HEADER_BYTES + header.length }))
    }
}
