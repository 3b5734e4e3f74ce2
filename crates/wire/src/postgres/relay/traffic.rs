//! Tracks the traffic between a client and a server that a proxy forwards: where messages start and end,
//! which replies are pending, and whether another client could take over the server connection.
//!
//! Each direction has one framer. Its messages are shown to the observers: the [`DatabaseCommandScanner`] and the
//! [`RemainsObserver`] and, in transaction pooling, the [`SessionFollower`]. Only the follower may delay a message, or insert one before it. Of
//! the server's messages, the relay itself reads the payloads of `ReadyForQuery`, `ParameterStatus` and
//! `NotificationResponse`.

use crate::{
    postgres::{
        codec::{
            kind,
            message::{self, Header, MAX_LOGIN_PAYLOAD_BYTES},
            parameters::{Parameters, parse_parameter_status},
            transaction::TransactionStatus,
        },
        error::Error,
        relay::{
            database_commands::DatabaseCommandScanner,
            framer::Framer,
            session_follower::{DISCARD_ALL_TAG, Followed, MessageAction, ReplyAction},
            session_remains::RemainsObserver,
        },
        sql::effects::Remains,
    },
    relay::{Goodbye, Vacate},
};

/// A process ID in a message.
const PROCESS_BYTES: usize = size_of::<u32>();

/// One session between a client and a server, both logged in.
#[derive(Debug, Default)]
pub struct PostgresRelay {
    client_framer: Framer,
    server_framer: Framer,
    databases: DatabaseCommandScanner,
    remains: RemainsObserver,
    sync_hold: SyncHold,
    /// Pending `ReadyForQuery`s, for `Query`s and for `Sync`s.
    queries: u32,
    syncs: u32,
    /// Whether messages were sent that need a `Sync`.
    unsynced: bool,
    copy_in: CopyIn,
    doubt: Option<&'static str>,
    transaction: TransactionStatus,
    /// Whether the server's last message was an error. If it was, a proxy need not report another one.
    error_was_last: bool,
    own: Option<ProcessAlias>,
    /// Positions in the last bytes read where the server named the client's server process.
    named_at: Vec<usize>,
}

/// Whether the client's messages after a `Sync` must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SyncHold {
    #[default]
    None,
    /// The `Sync` has not come yet.
    AfterNext,
    Holding,
}

/// What to do with a client's bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientBytes {
    /// The number of bytes to forward, from the front.
    pub pass_bytes: usize,
    /// Messages to send to the server next. If there are any, the rest must be processed again; otherwise it waits for
    /// more input.
    pub insert: Vec<u8>,
    /// Databases that must have no other connections before the bytes are forwarded.
    pub exclusive: Vec<Vacate>,
    pub goodbye: Goodbye,
}

/// What to do with a server's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerBytes {
    /// The number of bytes to forward, from the front.
    pub pass_bytes: usize,
    /// The number of bytes behind those to discard. If 0, the rest waits for more input.
    pub skip_bytes: usize,
}

/// The process ID that the proxy gave the client, and the one that the server uses.
#[derive(Debug, Clone, Copy)]
struct ProcessAlias {
    told: [u8; PROCESS_BYTES],
    known: [u8; PROCESS_BYTES],
}

/// A replacement for bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// The position of the bytes to replace.
    pub at: usize,
    /// The replacement.
    pub bytes: [u8; PROCESS_BYTES],
}

/// The state of a session after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// All responses were read; the server awaits commands.
    Clean(TransactionStatus),
    /// What the server sends next is unknown, for this reason.
    Unknown(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CopyIn {
    #[default]
    None,
    /// The server waits for data, and ignores each `Sync`.
    Sending,
    /// The client has sent everything.
    Sent,
}

impl PostgresRelay {
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, [`Self::remains`] is known.
    pub fn observe_remains(&mut self) {
        self.remains = RemainsObserver::observing();
    }

    /// What the client's texts may have left on the connection.
    pub fn remains(&self) -> Remains {
        self.remains.remains()
    }

    /// Sets the process ID that the client was given (`told`) and the one that the server uses (`known`). The
    /// client's own notifications must have the former: see [`Self::patches`].
    pub fn names_process(&mut self, known: u32, told: u32) {
        self.own = Some(ProcessAlias { told: told.to_be_bytes(), known: known.to_be_bytes() });
    }

    /// Replacements for the bytes that [`Self::process_server`] has read last, to apply before they are
    /// forwarded.
    pub fn patches(&mut self) -> Vec<Patch> {
        let Some(own) = self.own else { return Vec::new() };
        std::mem::take(&mut self.named_at).into_iter().map(|at| Patch { at, bytes: own.told }).collect()
    }

    /// Nothing is forwarded after the client's next `Sync` until [`Self::release_hold`].
    pub fn hold_after_sync(&mut self) {
        self.sync_hold = SyncHold::AfterNext;
    }

    pub fn release_hold(&mut self) {
        self.sync_hold = SyncHold::None;
    }

    /// Whether the `Sync` of [`Self::hold_after_sync`] was forwarded.
    pub fn is_held(&self) -> bool {
        self.sync_hold == SyncHold::Holding
    }

    /// Reads the next bytes from the client: those that were not forwarded before, and newer ones. `parameters` are
    /// the server's reported settings. `followed` is for transaction pooling.
    pub fn process_client(
        &mut self,
        input: &[u8],
        parameters: &Parameters,
        mut followed: Option<Followed<'_>>,
    ) -> Result<ClientBytes, Error> {
        let mut result =
            ClientBytes { pass_bytes: 0, insert: Vec::new(), exclusive: Vec::new(), goodbye: Goodbye::None };
        let at = &mut result.pass_bytes;
        loop {
            let piece = self.client_framer.read(input, at);
            self.databases.read(piece, &mut result.exclusive);
            self.remains.read(piece);
            if let Some(followed) = &mut followed {
                followed.read(piece);
            }
            let rest = &input[*at..];
            let Some(header) = self.client_framer.next_header(rest)? else { break };
            if self.sync_hold == SyncHold::Holding {
                break;
            }
            if header.kind == kind::TERMINATE {
                result.goodbye = Goodbye::Said;
                break;
            }
            if let Some(followed) = &mut followed {
                match followed.begin(header, rest, parameters)? {
                    MessageAction::Forward => {}
                    MessageAction::NeedInput => break,
                    MessageAction::InsertBefore(insert) => {
                        result.insert = insert;
                        break;
                    }
                }
            }
            self.command(header.kind)?;
            self.databases.begin(header.kind);
            self.remains.begin(header.kind, parameters.string_syntax());
            self.client_framer.begin(header, at);
        }
        Ok(result)
    }

    #[inline]
    fn command(&mut self, kind: u8) -> Result<(), Error> {
        match kind {
            kind::QUERY | kind::FUNCTION_CALL => self.queries = self.queries.saturating_add(1),
            kind::SYNC => {
                if self.sync_hold == SyncHold::AfterNext {
                    self.sync_hold = SyncHold::Holding;
                }
                self.unsynced = false;
                self.syncs = self.syncs.saturating_add(1);
            }
            kind::PARSE | kind::BIND | kind::DESCRIBE | kind::EXECUTE | kind::CLOSE | kind::FLUSH => {
                self.unsynced = true;
            }
            kind::COPY_DATA => {}
            kind::COPY_DONE | kind::COPY_FAIL => {
                if self.copy_in == CopyIn::Sending {
                    self.copy_in = CopyIn::Sent;
                    // The server has ignored the `Sync`s sent while it waited for data.
                    self.syncs = 0;
                }
            }
            _ => {
                return Err(Error::protocol("command", "an unknown kind of message"));
            }
        }
        Ok(())
    }

    /// Reads the next bytes from the server: those beyond the last [`ServerBytes`], and newer ones. A partial header
    /// or a short message may wait. Reported settings are stored in `parameters`.
    pub fn process_server(
        &mut self,
        input: &[u8],
        parameters: &mut Parameters,
        mut followed: Option<Followed<'_>>,
    ) -> Result<ServerBytes, Error> {
        let mut at = 0;
        loop {
            self.server_framer.read(input, &mut at);
            let rest = &input[at..];
            let Some(header) = self.server_framer.next_header(rest)? else { break };
            let Some(payload) = needed_payload(header, rest, followed.as_ref())? else { break };
            if let Some(followed) = &mut followed
                && followed.read_reply(header, payload)? == ReplyAction::Discard
            {
                return Ok(ServerBytes { pass_bytes: at, skip_bytes: message::HEADER_BYTES });
            }
            match header.kind {
                kind::READY_FOR_QUERY | kind::PARAMETER_STATUS => {
                    self.read_status(header.kind, payload, parameters)?;
                }
                kind => self.read_reply(kind)?,
            }
            if header.kind == kind::NOTIFICATION_RESPONSE && self.own.is_some_and(|own| payload == own.known)
            {
                self.named_at.push(at + message::HEADER_BYTES);
            }
            self.server_framer.begin(header, &mut at);
        }
        Ok(ServerBytes { pass_bytes: at, skip_bytes: 0 })
    }

    fn read_status(&mut self, kind: u8, payload: &[u8], parameters: &mut Parameters) -> Result<(), Error> {
        if kind == kind::PARAMETER_STATUS {
            let (name, value) = parse_parameter_status(payload)?;
            return parameters.set(name, value);
        }
        self.transaction = TransactionStatus::parse(payload)?;
        self.copy_in = CopyIn::None;
        self.error_was_last = false;
        match (&mut self.queries, &mut self.syncs) {
            (0, 0) => self.doubt = Some("the server sent an unsolicited message"),
            (0, syncs) => *syncs -= 1,
            (queries, _) => *queries -= 1,
        }
        Ok(())
    }

    #[inline]
    fn read_reply(&mut self, kind: u8) -> Result<(), Error> {
        self.error_was_last = false;
        match kind {
            kind::DATA_ROW
            | kind::ROW_DESCRIPTION
            | kind::COMMAND_COMPLETE
            | kind::EMPTY_QUERY_RESPONSE
            | kind::PARSE_COMPLETE
            | kind::BIND_COMPLETE
            | kind::CLOSE_COMPLETE
            | kind::PARAMETER_DESCRIPTION
            | kind::NO_DATA
            | kind::PORTAL_SUSPENDED
            | kind::NOTICE_RESPONSE
            | kind::NOTIFICATION_RESPONSE
            | kind::COPY_DATA
            | kind::COPY_DONE
            | kind::COPY_OUT_RESPONSE
            | kind::FUNCTION_CALL_RESPONSE => {}
            kind::ERROR_RESPONSE => {
                self.error_was_last = true;
                if self.copy_in == CopyIn::Sending {
                    // It no longer waits for data: a `Sync` counts again.
                    self.copy_in = CopyIn::Sent;
                }
            }
            kind::COPY_IN_RESPONSE => self.copy_in = CopyIn::Sending,
            _ => {
                return Err(Error::protocol("response", "an unexpected message"));
            }
        }
        Ok(())
    }

    pub fn connection_state(&self) -> ConnectionState {
        if let Some(doubt) = self.doubt {
            return ConnectionState::Unknown(doubt);
        }
        if !self.client_framer.is_between_messages() {
            return ConnectionState::Unknown("the client left in the middle of a message");
        }
        if self.copy_in != CopyIn::None {
            return ConnectionState::Unknown("the client left in the middle of a COPY");
        }
        if self.queries > 0 || self.syncs > 0 || self.unsynced || !self.server_framer.is_between_messages() {
            return ConnectionState::Unknown("the client left before all responses were read");
        }
        ConnectionState::Clean(self.transaction)
    }

    /// Whether the proxy may append its own message to the bytes forwarded to the client.
    pub fn between_answers(&self) -> bool {
        self.server_framer.is_between_messages()
    }

    /// Whether the server's last message was an error: if it closes the connection now, the client knows why.
    pub fn error_was_last(&self) -> bool {
        self.error_was_last
    }
}

/// The part of the server's message that is read; empty for most messages. `None` until it has arrived.
#[inline]
fn needed_payload<'a>(
    header: Header,
    input: &'a [u8],
    followed: Option<&Followed<'_>>,
) -> Result<Option<&'a [u8]>, Error> {
    let needed_bytes = match header.kind {
        kind::READY_FOR_QUERY | kind::PARAMETER_STATUS => {
            if header.payload_bytes > MAX_LOGIN_PAYLOAD_BYTES {
                let (length, limit) = (header.payload_bytes, MAX_LOGIN_PAYLOAD_BYTES);
                return Err(Error::MessageTooLarge { length, limit });
            }
            header.payload_bytes
        }
        kind::NOTIFICATION_RESPONSE => header.payload_bytes.min(PROCESS_BYTES),
        kind::COMMAND_COMPLETE if followed.is_some_and(Followed::awaits_discard) => {
            header.payload_bytes.min(DISCARD_ALL_TAG.len())
        }
        _ => 0,
    };
    Ok(input.get(message::HEADER_BYTES..message::HEADER_BYTES + needed_bytes))
}
