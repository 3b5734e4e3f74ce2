//! What one between a client and a server must know of what passes: where messages begin and end, which answers the
//! server still owes, and whether the session is where another could take it over. Payloads are not looked at, but for
//! those of `ReadyForQuery` and `ParameterStatus`.

use crate::relay::{FromClient, Goodbye};

use super::{
    Error, Parameters, TransactionStatus, kind,
    message::{self, Header, MAX_LOGIN_PAYLOAD_BYTES, MAX_SENT_PAYLOAD_BYTES},
    parameters::parse_parameter_status,
};

/// `FunctionCall`, and the server's answer to it.
pub(super) const FUNCTION_CALL: u8 = b'F';
const FUNCTION_CALL_RESPONSE: u8 = b'V';
/// A process number in a message.
const PROCESS_BYTES: usize = size_of::<u32>();

/// One session between a client and a server, both logged in.
#[derive(Debug, Default)]
pub struct Relay {
    up: Frames,
    down: Frames,
    /// `ReadyForQuery`s that are still to come, for `Query`s and for `Sync`s.
    queries: u32,
    syncs: u32,
    /// Messages were sent that only a `Sync` will end.
    unsynced: bool,
    copy_in: CopyIn,
    doubt: Option<&'static str>,
    transaction: TransactionStatus,
    last: Last,
    own: Option<OwnProcess>,
    /// Where in the bytes that were looked at last the client's own process is named as the server knows it.
    named_at: Vec<usize>,
}

/// The number that a client was told as its server process, and the number that the server knows.
#[derive(Debug, Clone, Copy)]
struct OwnProcess {
    told: [u8; PROCESS_BYTES],
    known: [u8; PROCESS_BYTES],
}

/// Other bytes in place of those of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Where they begin.
    pub at: usize,
    /// What they are.
    pub bytes: [u8; PROCESS_BYTES],
}

/// What a session leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All is answered, and the server awaits commands.
    Clean(TransactionStatus),
    /// Nobody can say what the server will send next, for this reason.
    Unknown(&'static str),
}

/// Where the current message ends, in one direction.
#[derive(Debug, Default)]
struct Frames {
    left_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CopyIn {
    #[default]
    None,
    /// The server waits for data, and ignores every `Sync`.
    Sending,
    /// The client has sent all.
    Sent,
}

/// The kind of the server's last message, as far as it matters to one who has to say goodbye in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Last {
    #[default]
    Other,
    Error,
}

impl Frames {
    /// Goes over what is there of the current message; whether it ends in `input`.
    #[inline]
    fn skip(&mut self, input: &[u8], at: &mut usize) -> bool {
        let bytes = self.left_bytes.min(input.len() - *at);
        *at += bytes;
        self.left_bytes -= bytes;
        self.left_bytes == 0
    }

    /// Begins the message with this header.
    #[inline]
    fn begin(&mut self, header: Header, at: &mut usize) {
        *at += message::HEADER_BYTES;
        self.left_bytes = header.payload_bytes;
    }
}

/// The header at the front, where it is all there and its length is one that can be.
#[inline]
pub(super) fn checked_header(input: &[u8]) -> Result<Option<Header>, Error> {
    let header = message::peek(input)?;
    match header {
        Some(Header { payload_bytes, .. }) if payload_bytes > MAX_SENT_PAYLOAD_BYTES => {
            Err(Error::MessageTooLarge { length: payload_bytes, limit: MAX_SENT_PAYLOAD_BYTES })
        }
        _ => Ok(header),
    }
}

impl Relay {
    /// A session in which nothing has been said.
    pub fn new() -> Self {
        Self::default()
    }

    /// The client was told that its server process is `told`; the server knows it as `known`. Its own notifications must
    /// name the process that it was told: see [`Self::patches`].
    pub fn names_process(&mut self, known: u32, told: u32) {
        self.own = Some(OwnProcess { told: told.to_be_bytes(), known: known.to_be_bytes() });
    }

    /// What must be changed of the bytes that [`Self::from_server`] has looked at last, before they are passed on.
    pub fn patches(&mut self) -> Vec<Patch> {
        let Some(own) = self.own else { return Vec::new() };
        std::mem::take(&mut self.named_at).into_iter().map(|at| Patch { at, bytes: own.told }).collect()
    }

    /// Looks at the next bytes from the client: those that were not passed on before, and newer ones.
    pub fn from_client(&mut self, input: &[u8]) -> Result<FromClient, Error> {
        let mut at = 0;
        let goodbye = loop {
            if !self.up.skip(input, &mut at) {
                break Goodbye::None;
            }
            let Some(header) = checked_header(&input[at..])? else { break Goodbye::None };
            if header.kind == kind::TERMINATE {
                break Goodbye::Said;
            }
            self.command(header.kind)?;
            self.up.begin(header, &mut at);
        };
        Ok(FromClient { pass_bytes: at, goodbye })
    }

    #[inline]
    fn command(&mut self, kind: u8) -> Result<(), Error> {
        match kind {
            kind::QUERY | FUNCTION_CALL => self.queries = self.queries.saturating_add(1),
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
                    // The server has ignored those that came while it waited for data.
                    self.syncs = 0;
                }
            }
            _ => {
                let reason = "an unknown kind of message";
                return Err(Error::Protocol { message: "command", reason });
            }
        }
        Ok(())
    }

    /// Looks at the next bytes from the server: those that were not passed on before, and newer ones. So many of them
    /// may be passed on; less than a header may be left, or a short message. Settings are kept in `parameters`.
    pub fn from_server(&mut self, input: &[u8], parameters: &mut Parameters) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            if !self.down.skip(input, &mut at) {
                return Ok(at);
            }
            let Some(header) = checked_header(&input[at..])? else { return Ok(at) };
            if matches!(header.kind, kind::READY_FOR_QUERY | kind::PARAMETER_STATUS) {
                let mut rest = &input[at..];
                let Some(payload) = message::take_payload(&mut rest, header, MAX_LOGIN_PAYLOAD_BYTES)? else {
                    return Ok(at);
                };
                self.said(header.kind, payload, parameters)?;
            } else if header.kind == kind::NOTIFICATION_RESPONSE {
                let process = at + message::HEADER_BYTES;
                let bytes = PROCESS_BYTES.min(header.payload_bytes);
                let Some(named) = input.get(process..process + bytes) else { return Ok(at) };
                if self.own.is_some_and(|own| named == own.known) {
                    self.named_at.push(process);
                }
                self.answer(header.kind)?;
            } else {
                self.answer(header.kind)?;
            }
            self.down.begin(header, &mut at);
        }
    }

    fn said(&mut self, kind: u8, payload: &[u8], parameters: &mut Parameters) -> Result<(), Error> {
        if kind == kind::PARAMETER_STATUS {
            let (name, value) = parse_parameter_status(payload)?;
            return parameters.set(name, value);
        }
        self.transaction = TransactionStatus::parse(payload)?;
        self.copy_in = CopyIn::None;
        self.last = Last::Other;
        match (&mut self.queries, &mut self.syncs) {
            (0, 0) => self.doubt = Some("the server has said more than it was asked"),
            (0, syncs) => *syncs -= 1,
            (queries, _) => *queries -= 1,
        }
        Ok(())
    }

    #[inline]
    fn answer(&mut self, kind: u8) -> Result<(), Error> {
        self.last = Last::Other;
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
            | FUNCTION_CALL_RESPONSE => {}
            kind::ERROR_RESPONSE => {
                self.last = Last::Error;
                if self.copy_in == CopyIn::Sending {
                    // It waits for data no more: a `Sync` counts again.
                    self.copy_in = CopyIn::Sent;
                }
            }
            kind::COPY_IN_RESPONSE => self.copy_in = CopyIn::Sending,
            _ => {
                let reason = "a message that does not belong there";
                return Err(Error::Protocol { message: "answer", reason });
            }
        }
        Ok(())
    }

    /// Where the session stands, as a client leaves it.
    pub fn rest(&self) -> Rest {
        if let Some(doubt) = self.doubt {
            return Rest::Unknown(doubt);
        }
        if self.up.left_bytes > 0 {
            return Rest::Unknown("the client left in the middle of a message");
        }
        if self.copy_in != CopyIn::None {
            return Rest::Unknown("the client left in the middle of a COPY");
        }
        if self.queries > 0 || self.syncs > 0 || self.unsynced || self.down.left_bytes > 0 {
            return Rest::Unknown("the client left before all was answered");
        }
        Rest::Clean(self.transaction)
    }

    /// Whether a message of one's own could be put behind what was passed on to the client.
    pub fn between_answers(&self) -> bool {
        self.down.left_bytes == 0
    }

    /// Whether the server's last message was an error: if it closes the connection now, it has said why.
    pub fn error_was_last(&self) -> bool {
        self.last == Last::Error
    }
}
