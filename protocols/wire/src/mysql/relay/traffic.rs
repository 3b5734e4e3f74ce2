//! Tracks the traffic between a client and a server that a proxy forwards: where packets and messages start
//! and end, which commands await a response, and whether another client could take over the server
//! connection. Only the first bytes of a payload are read, if they decide how the response continues.

mod following;
mod progress;

use std::collections::VecDeque;

use crate::{
    mysql::{
        codec::{
            capabilities::Capabilities,
            err::ErrPacket,
            ok::{self, OkPacket},
            packet::{self, HEADER_BYTES, Header, MAX_PART_BYTES},
            prepare_ok::PrepareOk,
            result_head::{Definitions, LOCAL_INFILE, ResultHead, is_row},
        },
        error::Error,
        relay::{
            commands::{CommandKind, CommandStart, CursorRequest, ResponseState, ResultSource, command_kind},
            framer::Framer,
            kill::{self, KillCommand, KillScan},
            observer::ResponseObserver,
            session_end::{SessionEndObserver, SocketLimits},
            session_remains::RemainsObserver,
        },
        sql::remains::Remains,
    },
    relay::{ClientInput, Departure, Goodbye, RoleDoubt},
};

/// With more commands that await a response, the client's next one waits.
const MAX_OUTSTANDING: usize = 4096;
/// How much of a packet may be needed before it is forwarded: an OK up to its warnings.
const MAX_START_BYTES: usize = 23;
/// An ERR with this code reports progress ("Progress reporting").
const PROGRESS_CODE: u16 = 0xffff;
/// The sequence number of the first packet of a response; a command has 0.
const FIRST_RESPONSE: u8 = 1;

/// One session between a client and a server, both logged in.
#[derive(Debug)]
pub struct MySqlRelay {
    capabilities: Capabilities,
    client_framer: Framer,
    server_framer: Framer,
    client_payload: ClientPayload,
    /// The response that the server sends now or next.
    current: Option<ResponseState>,
    later: VecDeque<PendingResponse>,
    /// The sequence number of the next packet to the client.
    next: u8,
    statements: MultiStatements,
    transaction: Transaction,
    doubt: Option<&'static str>,
    /// Whether the server's last message was an error. If it was, a proxy need not report another one.
    error_was_last: bool,
    role_doubt: RoleDoubt,
    kill_policy: KillPolicy,
    observer: Option<ResponseObserver>,
    remains: RemainsObserver,
    session_end: SessionEndObserver,
}

/// What is done with a client's KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillPolicy {
    Forward,
    /// It is held back, with everything behind it, if it names a connection identifier from this one on.
    HoldFrom(u32),
}

/// The state of a session after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// All responses were read; the server awaits commands.
    Clean(OpenState),
    /// What the server sends next is unknown, for this reason.
    Unknown(&'static str),
}

/// What a reset must know of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenState {
    pub transaction: Transaction,
    /// Whether `COM_SET_OPTION` may have changed the session.
    pub statements: MultiStatements,
    pub socket_limits: SocketLimits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transaction {
    #[default]
    None,
    Open,
}

/// Whether a query may have several statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MultiStatements {
    /// As negotiated at login.
    #[default]
    AsAgreed,
    /// A `COM_SET_OPTION` has changed it.
    Changed,
}

/// The client's current message, or its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientPayload {
    /// A command without response.
    NoResponse,
    /// The newest command whose response is pending.
    Command,
    /// A part of a file that the server requested.
    File,
}

#[derive(Debug, Clone, Copy)]
struct PendingResponse {
    response: ResponseState,
    /// The sequence number of its first packet.
    next: u8,
}

/// The next event in the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// More input is needed.
    NeedInput,
    /// This many bytes of the current message.
    Payload(usize),
    /// The header of another packet of the current message.
    Header,
    /// A command that has not started yet.
    Command(CommandStart),
}

impl MySqlRelay {
    /// A new session. Client and server must both have negotiated `capabilities`.
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            client_framer: Framer::default(),
            server_framer: Framer::default(),
            client_payload: ClientPayload::NoResponse,
            current: None,
            later: VecDeque::new(),
            next: FIRST_RESPONSE,
            statements: MultiStatements::AsAgreed,
            transaction: Transaction::None,
            doubt: None,
            error_was_last: false,
            role_doubt: RoleDoubt::None,
            kill_policy: KillPolicy::Forward,
            observer: None,
            remains: RemainsObserver::default(),
            session_end: SessionEndObserver::default(),
        }
    }

    /// Connection identifiers from this one on are the proxy's. For commands that name one see
    /// [`Self::kill`].
    #[must_use]
    pub fn with_own_numbers(mut self, from: u32) -> Self {
        self.kill_policy = KillPolicy::HoldFrom(from);
        self
    }

    /// Reads the texts of commands and the server's reports, until more than `limit` remains.
    #[must_use]
    pub fn observing_remains(mut self, limit: Remains) -> Self {
        self.remains = RemainsObserver::up_to(limit);
        self
    }

    /// Why the connection cannot be handed on: only the end of the session undoes what its client has done.
    pub fn ends_with_client(&self) -> Option<&'static str> {
        self.session_end.reason()
    }

    /// What the session may leave on its connection.
    pub fn remains(&self) -> Remains {
        self.remains.remains()
    }

    /// Commands of the proxy for this session leave something.
    pub fn raise_remains(&mut self, remains: Remains) {
        self.remains.raise(remains);
    }

    /// The next command and its length, if it is complete and names a connection identifier of the proxy. It
    /// must be replaced, see [`Self::replace_kill`].
    pub fn kill(&self, input: &[u8]) -> Option<(KillCommand, usize)> {
        let KillPolicy::HoldFrom(from) = self.kill_policy else { return None };
        if self.is_full()
            || !self.client_framer.is_between_messages()
            || self.client_payload == ClientPayload::File
        {
            return None;
        }
        let (header, payload) = packet::peek_header(input)?;
        match kill::scan(header, payload, self.capabilities) {
            KillScan::Kill(kill) if names_proxy_id(&kill, from) => Some((kill, HEADER_BYTES + header.length)),
            _ => None,
        }
    }

    /// Another command with the same kind of response, and otherwise the same text, is sent in place of [`Self::kill`].
    pub fn replace_kill(&mut self, input: &[u8]) -> Result<(), Error> {
        let Some((header, payload)) = packet::peek_header(input) else { return Ok(()) };
        let Some(command) = CommandStart::read(header, payload) else { return Ok(()) };
        let kill_policy = std::mem::replace(&mut self.kill_policy, KillPolicy::Forward);
        let replaced = self.start_command(command).map(drop);
        self.kill_policy = kill_policy;
        self.session_end.payload(payload, true);
        replaced
    }

    /// Reads the next bytes from the client: those that were not forwarded before, and newer ones. An error is
    /// final and the client's fault; report [`Error::NotPooled`] to the client.
    pub fn process_client(&mut self, input: &[u8]) -> Result<ClientInput, Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.next_client_event(rest) {
                ClientEvent::NeedInput => return Ok(ClientInput { pass_bytes: at, goodbye: Goodbye::None }),
                ClientEvent::Payload(bytes) => at += bytes,
                ClientEvent::Header => at += HEADER_BYTES,
                ClientEvent::Command(command) => {
                    if self.is_full() || self.must_hold(command.header, command.header.arrived(rest)) {
                        return Ok(ClientInput { pass_bytes: at, goodbye: Goodbye::None });
                    }
                    match self.start_command(command)? {
                        Goodbye::None => self.client_framer.begin(command.header, &mut at),
                        goodbye @ (Goodbye::Said | Goodbye::ChangeUser) => {
                            return Ok(ClientInput { pass_bytes: at, goodbye });
                        }
                    }
                }
            }
        }
    }

    /// Reads the next event from the client's bytes.
    #[inline]
    pub(crate) fn next_client_event(&mut self, input: &[u8]) -> ClientEvent {
        let mut at = 0;
        let ends = self.client_framer.skip(input, &mut at);
        if at > 0 {
            let is_complete = ends && !self.client_framer.continues;
            self.remains.payload(&input[..at], is_complete, self.capabilities);
            self.session_end.payload(&input[..at], is_complete);
            return ClientEvent::Payload(at);
        }
        let Some((header, payload)) = (if ends { packet::peek_header(input) } else { None }) else {
            return ClientEvent::NeedInput;
        };
        if self.client_framer.continues {
            self.continue_message(header);
        } else if self.client_payload == ClientPayload::File {
            self.read_file_part(header);
        } else {
            return CommandStart::read(header, payload).map_or(ClientEvent::NeedInput, ClientEvent::Command);
        }
        self.client_framer.begin(header, &mut 0);
        ClientEvent::Header
    }

    /// Whether a command must be held back, or may have to be.
    #[inline]
    fn must_hold(&self, header: Header, payload: &[u8]) -> bool {
        let KillPolicy::HoldFrom(from) = self.kill_policy else { return false };
        match kill::scan(header, payload, self.capabilities) {
            KillScan::Other => false,
            KillScan::Unfinished => true,
            KillScan::Kill(kill) => names_proxy_id(&kill, from),
        }
    }

    fn start_command(&mut self, command: CommandStart) -> Result<Goodbye, Error> {
        if command.header.sequence != 0 {
            return Err(Error::protocol("command", "a packet is missing or out of order"));
        }
        let kind = command_kind(command)?;
        if !matches!(kind, CommandKind::Quit | CommandKind::ChangeUser) {
            self.remains.begin_command(command.kind);
            self.session_end.begin_command(command.kind);
        }
        match kind {
            CommandKind::Quit => return Ok(Goodbye::Said),
            CommandKind::ChangeUser => return Ok(Goodbye::ChangeUser),
            CommandKind::NoResponse => self.client_payload = ClientPayload::NoResponse,
            CommandKind::SetOption => {
                self.statements = MultiStatements::Changed;
                self.push_pending(ResponseState::Ok);
            }
            CommandKind::WithResponse(response) => self.push_pending(response),
        }
        Ok(Goodbye::None)
    }

    #[inline]
    fn push_pending(&mut self, response: ResponseState) {
        self.client_payload = ClientPayload::Command;
        if self.current.is_none() {
            self.current = Some(response);
            self.next = FIRST_RESPONSE;
        } else {
            self.later.push_back(PendingResponse { response, next: FIRST_RESPONSE });
        }
    }

    /// Whether too many responses are owed to read more commands.
    pub fn is_full(&self) -> bool {
        self.later.len() >= MAX_OUTSTANDING
    }

    /// Another packet of the client's message starts.
    fn continue_message(&mut self, header: Header) {
        let next = header.sequence.wrapping_add(1);
        match (self.client_payload, self.later.back_mut()) {
            (ClientPayload::NoResponse, _) => {}
            (ClientPayload::Command, Some(newest)) => newest.next = next,
            (ClientPayload::Command | ClientPayload::File, _) => self.next = next,
        }
    }

    /// A file ends with an empty message.
    fn read_file_part(&mut self, header: Header) {
        self.next = header.sequence.wrapping_add(1);
        if header.length == 0 {
            self.client_payload = ClientPayload::Command;
        }
    }

    /// Reads the next bytes from the server: those that were not forwarded before, and newer ones. Returns
    /// how many may be forwarded; a partial header or the start of a message may remain. An error is final.
    pub fn process_server(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            if !self.server_framer.skip(input, &mut at) {
                return Ok(at);
            }
            let Some((header, payload)) = packet::peek_header(&input[at..]) else { return Ok(at) };
            if !self.server_framer.continues {
                let is_row = match (self.current, payload.first()) {
                    (_, None) if header.length > 0 => return Ok(at),
                    (Some(ResponseState::Rows(_)), Some(&first)) if header.length > 0 => {
                        is_row(first, header.length)
                    }
                    _ => false,
                };
                if !is_row {
                    if self.is_taken(payload.first()) {
                        return Ok(at);
                    }
                    // Refused at once, before it could pass for the response to the next command.
                    if self.current.is_none() && !ErrPacket::is(payload) {
                        return Err(Error::protocol("response", "it is unsolicited"));
                    }
                    let start = header.length.min(MAX_START_BYTES);
                    let Some(start) = payload.get(..start) else { return Ok(at) };
                    self.read_response(header, start, payload)?;
                    self.server_framer.begin(header, &mut at);
                    continue;
                }
                self.error_was_last = false;
            }
            self.next = header.sequence.wrapping_add(1);
            self.server_framer.begin(header, &mut at);
        }
    }

    /// Takes the first bytes of a packet that is not a row. `here` is the part of it that has arrived.
    fn read_response(&mut self, header: Header, start: &[u8], arrived: &[u8]) -> Result<(), Error> {
        let Some(response) = self.current else { return self.read_unsolicited(start) };
        self.next = header.sequence.wrapping_add(1);
        self.error_was_last = false;
        if ErrPacket::is(start) {
            return self.read_err(start);
        }
        let next = match response {
            ResponseState::Ok => {
                self.record_status(OkPacket::parse_any(start)?, arrived);
                None
            }
            ResponseState::Text => None,
            ResponseState::Results(of) => self.results(start, arrived, of)?,
            ResponseState::Columns { left: 1, of } => Some(self.after_columns(of)),
            ResponseState::Columns { left, of } => Some(ResponseState::Columns { left: left - 1, of }),
            ResponseState::EndOfColumns(of) => {
                let end = OkPacket::parse_eof(start)?;
                self.record_status(end, arrived);
                let is_cursor = self.opens_cursor(end, of);
                (!is_cursor).then_some(ResponseState::Rows(of))
            }
            ResponseState::Rows(of) => {
                if start.is_empty() {
                    return Err(Error::protocol("row", "it is empty"));
                }
                let end = OkPacket::parse_end_of_rows(start, self.capabilities)?;
                self.opens_cursor(end, of);
                self.end_result(end, arrived, of)
            }
            ResponseState::PrepareOk => definitions(PrepareOk::parse(start)?.definitions(self.capabilities)),
            ResponseState::Definitions { left } => definitions(left - 1),
            ResponseState::Fields if ends_fields(header, start) => None,
            ResponseState::Fields => Some(ResponseState::Fields),
            ResponseState::Refused | ResponseState::Unknown => {
                return Err(Error::protocol("response", "it is not an error, for a command that is unknown"));
            }
        };
        self.advance(next);
        Ok(())
    }

    /// The first packet of a response that may have results.
    fn results(
        &mut self,
        start: &[u8],
        arrived: &[u8],
        of: ResultSource,
    ) -> Result<Option<ResponseState>, Error> {
        if OkPacket::is(start) {
            let ok = OkPacket::parse(start)?;
            if let Some(observer) = &mut self.observer {
                observer.record_insert_id(ok);
            }
            return Ok(self.end_result(ok, arrived, of));
        }
        if start.first() == Some(&LOCAL_INFILE) {
            return self.read_file_request(of).map(Some);
        }
        let ResultHead { columns, definitions } = ResultHead::parse(start, self.capabilities)?;
        Ok(Some(match definitions {
            Definitions::Follow => ResponseState::Columns { left: columns, of },
            Definitions::LeftOut => self.after_columns(of),
        }))
    }

    fn read_file_request(&mut self, of: ResultSource) -> Result<ResponseState, Error> {
        let reason = if !self.capabilities.contains(Capabilities::LOCAL_FILES) {
            "it requests a local file, which was not offered"
        } else if self.client_payload != ClientPayload::Command
            || !self.client_framer.is_between_messages()
            || !self.later.is_empty()
        {
            "it requests a local file while the client sends something else"
        } else {
            self.client_payload = ClientPayload::File;
            return Ok(ResponseState::Results(of));
        };
        Err(Error::protocol("result", reason))
    }

    fn after_columns(&self, of: ResultSource) -> ResponseState {
        let eof_follows = !self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        if eof_follows { ResponseState::EndOfColumns(of) } else { ResponseState::Rows(of) }
    }

    /// Whether a result set that ends here, or whose definitions do, leaves its rows in a cursor. Cursors within stored
    /// routines set the status flag, too, but their results are never the last.
    fn opens_cursor(&mut self, end: OkPacket, of: ResultSource) -> bool {
        let is_cursor = of == ResultSource::Execute(CursorRequest::Asked)
            && end.cursor_exists()
            && !end.more_results_exist();
        if is_cursor && let Some(observer) = &mut self.observer {
            observer.record_cursor();
        }
        is_cursor
    }

    /// A result set has ended; what follows it.
    fn end_result(&mut self, end: OkPacket, arrived: &[u8], of: ResultSource) -> Option<ResponseState> {
        self.record_status(end, arrived);
        (of != ResultSource::Fetch && end.more_results_exist()).then_some(ResponseState::Results(of))
    }

    #[inline]
    fn record_status(&mut self, end: OkPacket, arrived: &[u8]) {
        self.remains.record_ok(end, arrived, self.capabilities);
        self.transaction = if end.is_in_transaction() { Transaction::Open } else { Transaction::None };
        if let Some(observer) = &mut self.observer {
            observer.record_ok(end);
        }
    }

    fn read_err(&mut self, start: &[u8]) -> Result<(), Error> {
        let code = ErrPacket::parse(start)?.code;
        if code == PROGRESS_CODE && self.capabilities.contains(Capabilities::PROGRESS) {
            return Ok(());
        }
        self.record_error(code);
        if self.client_payload == ClientPayload::File {
            self.doubt = Some("the server refused the client's file");
        }
        self.advance(None);
        Ok(())
    }

    fn record_error(&mut self, code: u16) {
        self.error_was_last = true;
        self.note_role(code);
        self.remains.raise(Remains::Anything);
        if let Some(observer) = &mut self.observer {
            observer.record_err(code);
        }
    }

    /// A packet without a pending command: it must be the server's final ERR.
    fn read_unsolicited(&mut self, start: &[u8]) -> Result<(), Error> {
        ErrPacket::parse(start)?;
        self.error_was_last = true;
        self.doubt = Some("the server sent an unsolicited message");
        Ok(())
    }

    /// Continues the response, or starts the next one.
    fn advance(&mut self, next: Option<ResponseState>) {
        self.current = next;
        if next.is_none() {
            if let Some(observer) = &mut self.observer {
                observer.end_response();
            }
            let pending = self.later.pop_front();
            self.next = pending.map_or(FIRST_RESPONSE, |pending| pending.next);
            self.current = pending.map(|pending| pending.response);
        }
    }

    pub fn connection_state(&self) -> ConnectionState {
        if let Some(doubt) = self.doubt {
            return ConnectionState::Unknown(doubt);
        }
        if !self.client_framer.is_between_messages() {
            return ConnectionState::Unknown("the client left in the middle of a command");
        }
        if self.client_payload == ClientPayload::File {
            return ConnectionState::Unknown("the client left in the middle of a file");
        }
        if self.current.is_some() || !self.server_framer.is_between_messages() {
            return ConnectionState::Unknown("the client left before all responses were read");
        }
        ConnectionState::Clean(OpenState {
            transaction: self.transaction,
            statements: self.statements,
            socket_limits: self.session_end.socket_limits(),
        })
    }

    /// What happens if the client sends nothing more.
    pub fn departure(&self) -> Departure {
        // The server waits for the rest of a file, and ends the session without it.
        let is_owed = self.current.is_some() && self.client_payload != ClientPayload::File
            || !self.server_framer.is_between_messages();
        // Of a command that is not complete, nothing is answered.
        let is_partial = !self.client_framer.is_between_messages() && self.later.is_empty();
        if is_owed && !is_partial { Departure::WhenAnswered } else { Departure::Now }
    }

    /// Whether the proxy may append an ERR of its own to the bytes forwarded to the client. It ends the
    /// response that the client reads, or the next one.
    pub fn between_answers(&self) -> bool {
        self.server_framer.is_between_messages()
    }

    /// The sequence number of such an ERR.
    pub fn next_sequence(&self) -> u8 {
        self.next
    }

    /// Whether the server's last message was an error: if it closes the connection now, the client knows why.
    pub fn error_was_last(&self) -> bool {
        self.error_was_last
    }
}

/// Whether a KILL names a connection identifier of the proxy.
fn names_proxy_id(kill: &KillCommand, from: u32) -> bool {
    kill.statements.iter().any(|statement| statement.number >= from)
}

fn definitions(left: u32) -> Option<ResponseState> {
    (left > 0).then_some(ResponseState::Definitions { left })
}

fn ends_fields(header: Header, start: &[u8]) -> bool {
    start.first() == Some(&ok::EOF_HEADER) && header.length < MAX_PART_BYTES
}
