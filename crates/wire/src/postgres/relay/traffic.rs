//! Tracks the traffic between a client and a server that a proxy forwards: where messages start and end,
//! which replies are pending, and whether another client could take over the server connection. Only the
//! payloads of `ReadyForQuery`, `ParameterStatus` and `NotificationResponse` are read.

use crate::{
    postgres::{
        codec::{
            kind,
            message::{self, MAX_LOGIN_PAYLOAD_BYTES},
            parameters::{Parameters, parse_parameter_status},
            transaction::TransactionStatus,
        },
        error::Error,
        relay::framer::Framer,
    },
    relay::{FromClient, Goodbye},
};

/// A process ID in a message.
const PROCESS_BYTES: usize = size_of::<u32>();

/// One session between a client and a server, both logged in.
#[derive(Debug, Default)]
pub struct PostgresRelay {
    client_framer: Framer,
    server_framer: Framer,
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

    /// Reads the next bytes from the client: those that were not forwarded before, and newer ones.
    pub fn process_client(&mut self, input: &[u8]) -> Result<FromClient, Error> {
        let mut at = 0;
        let goodbye = loop {
            self.client_framer.read(input, &mut at);
            let Some(header) = self.client_framer.next_header(&input[at..])? else { break Goodbye::None };
            if header.kind == kind::TERMINATE {
                break Goodbye::Said;
            }
            self.command(header.kind)?;
            self.client_framer.begin(header, &mut at);
        };
        Ok(FromClient { pass_bytes: at, goodbye })
    }

    #[inline]
    fn command(&mut self, kind: u8) -> Result<(), Error> {
        match kind {
            kind::QUERY | kind::FUNCTION_CALL => self.queries = self.queries.saturating_add(1),
            kind::SYNC => {
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

    /// Reads the next bytes from the server: those that were not forwarded before, and newer ones. Returns
    /// how many may be forwarded; a partial header or a short message may remain. Reported settings are
    /// stored in `parameters`.
    pub fn process_server(&mut self, input: &[u8], parameters: &mut Parameters) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            self.server_framer.read(input, &mut at);
            let Some(header) = self.server_framer.next_header(&input[at..])? else { return Ok(at) };
            if matches!(header.kind, kind::READY_FOR_QUERY | kind::PARAMETER_STATUS) {
                let mut rest = &input[at..];
                let Some(payload) = message::take_payload(&mut rest, header, MAX_LOGIN_PAYLOAD_BYTES)? else {
                    return Ok(at);
                };
                self.read_status(header.kind, payload, parameters)?;
            } else if header.kind == kind::NOTIFICATION_RESPONSE {
                let process = at + message::HEADER_BYTES;
                let bytes = PROCESS_BYTES.min(header.payload_bytes);
                let Some(named) = input.get(process..process + bytes) else { return Ok(at) };
                if self.own.is_some_and(|own| named == own.known) {
                    self.named_at.push(process);
                }
                self.read_reply(header.kind)?;
            } else {
                self.read_reply(header.kind)?;
            }
            self.server_framer.begin(header, &mut at);
        }
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

    /// Whether the proxy may append a message of its own to the bytes forwarded to the client.
    pub fn between_answers(&self) -> bool {
        self.server_framer.is_between_messages()
    }

    /// Whether the server's last message was an error: if it closes the connection now, the client knows why.
    pub fn error_was_last(&self) -> bool {
        self.error_was_last
    }
}
