//! Tracks the traffic between a client and a server that a proxy forwards: where packets and messages start
//! and end, which commands await a response, and whether another client could take over the server
//! connection. Only the first bytes of a payload are read, if they decide how the response continues.

mod kinds;
mod watch;

use std::collections::VecDeque;

use crate::relay::{FromClient, Goodbye};

use kinds::{Command, command};
use watch::Watch;
pub(super) use watch::{End, Ended, Step};

use super::{
    Capabilities, Error, Prepared,
    err::{self, ErrPacket},
    kill::{self, Kill, Seen},
    ok::{self, OkPacket},
    packet::{self, HEADER_BYTES, Header, MAX_PART_BYTES},
    result_set::{Definitions, LOCAL_INFILE, ResultHead},
};

/// The capabilities that client and server can negotiate through a relay that changes no bytes. Login
/// capabilities are excluded, and compression, which would hide the messages.
pub const RELAYED: Capabilities = Capabilities::FOUND_ROWS
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::LOCAL_FILES)
    .with(Capabilities::IGNORE_SPACE)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF)
    .with(Capabilities::QUERY_ATTRIBUTES)
    .with(Capabilities::PROGRESS)
    .with(Capabilities::BULK_OPERATIONS)
    .with(Capabilities::EXTENDED_METADATA)
    .with(Capabilities::CACHE_METADATA)
    .with(Capabilities::BULK_UNIT_RESULTS);

/// Limit of commands that await a response. A client that reads responses stays below it.
const MAX_OUTSTANDING: usize = 4096;
/// How much of a packet may be needed before it is forwarded: an OK up to its warnings.
const LOOK_BYTES: usize = 23;
/// An ERR with this code reports progress ("Progress reporting").
const PROGRESS_CODE: u16 = 0xffff;
/// The sequence number of the first packet of a response; a command has 0.
const FIRST_ANSWER: u8 = 1;

/// One session between a client and a server, both logged in.
#[derive(Debug)]
pub struct Relay {
    capabilities: Capabilities,
    up: Frames,
    down: Frames,
    upward: Upward,
    /// The response that the server sends now or next.
    current: Option<Answer>,
    later: VecDeque<Awaited>,
    /// The sequence number of the next packet to the client.
    next: u8,
    statements: MultiStatements,
    transaction: Transaction,
    doubt: Option<&'static str>,
    last: Last,
    kills: Kills,
    watch: Option<Watch>,
}

/// What is done with a client's KILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kills {
    Pass,
    /// It is held back, with everything behind it, if it names a connection identifier from this one on.
    StopFrom(u32),
}

/// The state of a session after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All responses were read; the server awaits commands.
    Clean(Remains),
    /// What the server sends next is unknown, for this reason.
    Unknown(&'static str),
}

/// What a reset must know of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remains {
    pub transaction: Transaction,
    /// Whether `COM_SET_OPTION` may have changed the session.
    pub statements: MultiStatements,
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

/// The position within the packets of one direction.
#[derive(Debug, Default)]
struct Frames {
    left_bytes: usize,
    continues: bool,
}

/// The client's current message, or its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upward {
    /// A command without response.
    Silent,
    /// The newest command whose response is pending.
    Command,
    /// A part of a file that the server requested.
    File,
}

#[derive(Debug, Clone, Copy)]
struct Awaited {
    answer: Answer,
    /// The sequence number of its first packet.
    next: u8,
}

/// What the next packet of a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// An OK or an EOF, which ends the response.
    Word,
    /// A text, which ends the response.
    Text,
    /// An OK, a file request, or the number of columns.
    Results(Of),
    Columns {
        left: u16,
        of: Of,
    },
    EndOfColumns(Of),
    Rows(Of),
    /// A `COM_STMT_PREPARE_OK`.
    Prepared,
    /// This many definitions.
    Definitions {
        left: u32,
    },
    /// Definitions up to an EOF.
    Fields,
}

/// The command that returns results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Query,
    /// Rows may remain in a cursor.
    Execute,
    /// Rows of a cursor.
    Fetch,
}

/// Whether the server's last message was an error. If it was, a proxy need not report another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Other,
    Error,
}

impl Frames {
    /// Skips the rest of the current packet, as far as it has arrived. Returns whether the packet is
    /// complete.
    #[inline]
    fn skip(&mut self, input: &[u8], at: &mut usize) -> bool {
        let bytes = self.left_bytes.min(input.len() - *at);
        *at += bytes;
        self.left_bytes -= bytes;
        self.left_bytes == 0
    }

    #[inline]
    fn begin(&mut self, header: Header, at: &mut usize) {
        *at += HEADER_BYTES;
        self.left_bytes = header.length;
        self.continues = header.length == MAX_PART_BYTES;
    }

    fn is_between_messages(&self) -> bool {
        self.left_bytes == 0 && !self.continues
    }
}

impl Relay {
    /// A new session. Client and server must both have negotiated `capabilities`.
    pub fn new(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            up: Frames::default(),
            down: Frames::default(),
            upward: Upward::Silent,
            current: None,
            later: VecDeque::new(),
            next: FIRST_ANSWER,
            statements: MultiStatements::AsAgreed,
            transaction: Transaction::None,
            doubt: None,
            last: Last::Other,
            kills: Kills::Pass,
            watch: None,
        }
    }

    /// Connection identifiers from this one on are the proxy's. For commands that name one see
    /// [`Self::kill`].
    #[must_use]
    pub fn with_own_numbers(mut self, from: u32) -> Self {
        self.kills = Kills::StopFrom(from);
        self
    }

    /// The next command and its length, if it is complete and names a connection identifier of the proxy. It
    /// must be replaced, see [`Self::replace_kill`].
    pub fn kill(&self, input: &[u8]) -> Option<(Kill, usize)> {
        let Kills::StopFrom(from) = self.kills else { return None };
        if !self.up.is_between_messages() || self.upward == Upward::File {
            return None;
        }
        let (header, payload) = packet::peek_header(input)?;
        match kill::look(header, payload, self.capabilities) {
            Seen::Kill(kill) if names_own(&kill, from) => Some((kill, HEADER_BYTES + header.length)),
            _ => None,
        }
    }

    /// Another command with the same kind of response is sent in place of [`Self::kill`].
    pub fn replace_kill(&mut self, input: &[u8]) -> Result<(), Error> {
        let kills = std::mem::replace(&mut self.kills, Kills::Pass);
        let replaced = match packet::peek_header(input) {
            Some((header, &[kind, ..])) => self.begins(kind, header).map(drop),
            _ => Ok(()),
        };
        self.kills = kills;
        replaced
    }

    /// Reads the next bytes from the client: those that were not forwarded before, and newer ones. An error
    /// is final and the client's fault; report [`Error::NotPooled`] to the client.
    pub fn from_client(&mut self, input: &[u8]) -> Result<FromClient, Error> {
        let mut at = 0;
        let goodbye = loop {
            if !self.up.skip(input, &mut at) {
                break Goodbye::None;
            }
            let Some((header, payload)) = packet::peek_header(&input[at..]) else { break Goodbye::None };
            if self.up.continues {
                self.goes_on(header);
            } else if self.upward == Upward::File {
                self.part_of_file(header);
            } else if header.length == 0 {
                return Err(broken("command", "it is empty"));
            } else {
                let Some(&kind) = payload.first() else { break Goodbye::None };
                if self.stops_before(header, payload) {
                    break Goodbye::None;
                }
                match self.begins(kind, header)? {
                    Goodbye::None => {}
                    goodbye @ (Goodbye::Said | Goodbye::Anew) => break goodbye,
                }
            }
            self.up.begin(header, &mut at);
        };
        Ok(FromClient { pass_bytes: at, goodbye })
    }

    /// Whether a command must be held back, or may have to be.
    #[inline]
    fn stops_before(&self, header: Header, payload: &[u8]) -> bool {
        let Kills::StopFrom(from) = self.kills else { return false };
        match kill::look(header, payload, self.capabilities) {
            Seen::Other => false,
            Seen::Unfinished => true,
            Seen::Kill(kill) => names_own(&kill, from),
        }
    }

    fn begins(&mut self, kind: u8, header: Header) -> Result<Goodbye, Error> {
        if header.sequence != 0 {
            return Err(broken("command", "a packet is missing or out of order"));
        }
        match command(kind)? {
            Command::Quit => return Ok(Goodbye::Said),
            Command::ChangeUser => return Ok(Goodbye::Anew),
            Command::Silent => self.upward = Upward::Silent,
            Command::SetOption => {
                self.statements = MultiStatements::Changed;
                self.owes(Answer::Word)?;
            }
            Command::Answered(answer) => self.owes(answer)?,
        }
        Ok(Goodbye::None)
    }

    #[inline]
    fn owes(&mut self, answer: Answer) -> Result<(), Error> {
        self.upward = Upward::Command;
        if self.current.is_none() {
            self.current = Some(answer);
            self.next = FIRST_ANSWER;
        } else if self.later.len() < MAX_OUTSTANDING {
            self.later.push_back(Awaited { answer, next: FIRST_ANSWER });
        } else {
            return Err(broken("command", "too many others wait for their answers"));
        }
        Ok(())
    }

    /// Another packet of the client's message starts.
    fn goes_on(&mut self, header: Header) {
        let next = header.sequence.wrapping_add(1);
        match (self.upward, self.later.back_mut()) {
            (Upward::Silent, _) => {}
            (Upward::Command, Some(newest)) => newest.next = next,
            (Upward::Command | Upward::File, _) => self.next = next,
        }
    }

    /// A file ends with an empty message.
    fn part_of_file(&mut self, header: Header) {
        self.next = header.sequence.wrapping_add(1);
        if header.length == 0 {
            self.upward = Upward::Command;
        }
    }

    /// Reads the next bytes from the server: those that were not forwarded before, and newer ones. Returns
    /// how many may be forwarded; a partial header or the start of a message may remain. An error is final.
    pub fn from_server(&mut self, input: &[u8]) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            if !self.down.skip(input, &mut at) {
                return Ok(at);
            }
            let Some((header, payload)) = packet::peek_header(&input[at..]) else { return Ok(at) };
            if !self.down.continues {
                let is_row = match (self.current, payload.first()) {
                    (_, None) if header.length > 0 => return Ok(at),
                    (Some(Answer::Rows(_)), Some(&first)) if header.length > 0 => is_row(first, header),
                    _ => false,
                };
                if !is_row {
                    if self.watch.is_some()
                        && self.current == Some(Answer::Prepared)
                        && payload.first() == Some(&0)
                    {
                        return Ok(at);
                    }
                    // Refused at once, before it could pass for the response to the next command.
                    let here = &payload[..payload.len().min(header.length)];
                    if self.current.is_none() && !ErrPacket::is(here) {
                        return Err(broken("answer", "nothing was asked"));
                    }
                    let look = header.length.min(LOOK_BYTES);
                    let Some(look) = here.get(..look) else { return Ok(at) };
                    self.answer(header, look)?;
                    self.down.begin(header, &mut at);
                    continue;
                }
                self.last = Last::Other;
            }
            self.next = header.sequence.wrapping_add(1);
            self.down.begin(header, &mut at);
        }
    }

    /// Takes the first bytes of a packet that is not a row.
    fn answer(&mut self, header: Header, look: &[u8]) -> Result<(), Error> {
        let Some(answer) = self.current else { return self.unasked(look) };
        self.next = header.sequence.wrapping_add(1);
        self.last = Last::Other;
        if ErrPacket::is(look) {
            return self.refused(look);
        }
        let next = match answer {
            Answer::Word => {
                self.heard(OkPacket::parse_any(look)?);
                None
            }
            Answer::Text => None,
            Answer::Results(of) => self.results(look, of)?,
            Answer::Columns { left: 1, of } => Some(self.after_columns(of)),
            Answer::Columns { left, of } => Some(Answer::Columns { left: left - 1, of }),
            Answer::EndOfColumns(of) => {
                let end = OkPacket::parse_eof(look)?;
                self.heard(end);
                (of != Of::Execute || !end.cursor_exists()).then_some(Answer::Rows(of))
            }
            Answer::Rows(of) => {
                if look.is_empty() {
                    return Err(broken("row", "it is empty"));
                }
                let end = OkPacket::parse_end_of_rows(look, self.capabilities)?;
                self.ended(end, of)
            }
            Answer::Prepared => definitions(Prepared::parse(look)?.definitions(self.capabilities)),
            Answer::Definitions { left } => definitions(left - 1),
            Answer::Fields if ends_fields(header, look) => None,
            Answer::Fields => Some(Answer::Fields),
        };
        self.goes_on_with(next);
        Ok(())
    }

    /// The first packet of a response that may have results.
    fn results(&mut self, look: &[u8], of: Of) -> Result<Option<Answer>, Error> {
        if OkPacket::is(look) {
            let ok = OkPacket::parse(look)?;
            if let Some(watch) = &mut self.watch {
                watch.tells_of_key(ok);
            }
            return Ok(self.ended(ok, of));
        }
        if look.first() == Some(&LOCAL_INFILE) {
            return self.asks_for_file(of).map(Some);
        }
        let ResultHead { columns, definitions } = ResultHead::parse(look, self.capabilities)?;
        Ok(Some(match definitions {
            Definitions::Follow => Answer::Columns { left: columns, of },
            Definitions::LeftOut => self.after_columns(of),
        }))
    }

    fn asks_for_file(&mut self, of: Of) -> Result<Answer, Error> {
        let reason = if !self.capabilities.contains(Capabilities::LOCAL_FILES) {
            "it requests a local file, which was not offered"
        } else if self.upward != Upward::Command || !self.up.is_between_messages() || !self.later.is_empty() {
            "it requests a local file while the client sends something else"
        } else {
            self.upward = Upward::File;
            return Ok(Answer::Results(of));
        };
        Err(broken("result", reason))
    }

    fn after_columns(&self, of: Of) -> Answer {
        let eof_follows = !self.capabilities.contains(Capabilities::DEPRECATE_EOF);
        if eof_follows { Answer::EndOfColumns(of) } else { Answer::Rows(of) }
    }

    /// A result set has ended; what follows it.
    fn ended(&mut self, end: OkPacket, of: Of) -> Option<Answer> {
        self.heard(end);
        (of != Of::Fetch && end.more_results_exist()).then_some(Answer::Results(of))
    }

    fn heard(&mut self, end: OkPacket) {
        self.transaction = if end.is_in_transaction() { Transaction::Open } else { Transaction::None };
        if let Some(watch) = &mut self.watch {
            watch.says(end);
        }
    }

    fn refused(&mut self, look: &[u8]) -> Result<(), Error> {
        let is_progress = ErrPacket::parse(look)?.code == PROGRESS_CODE;
        if is_progress && self.capabilities.contains(Capabilities::PROGRESS) {
            return Ok(());
        }
        self.last = Last::Error;
        if let Some(watch) = &mut self.watch {
            watch.refuses();
        }
        if self.upward == Upward::File {
            self.doubt = Some("the server refused the client's file");
        }
        self.goes_on_with(None);
        Ok(())
    }

    /// A packet without a pending command: it must be the server's final ERR.
    fn unasked(&mut self, look: &[u8]) -> Result<(), Error> {
        ErrPacket::parse(look)?;
        self.last = Last::Error;
        self.doubt = Some("the server sent an unsolicited message");
        Ok(())
    }

    /// Continues the response, or starts the next one.
    fn goes_on_with(&mut self, next: Option<Answer>) {
        self.current = next;
        if next.is_none() {
            if let Some(watch) = &mut self.watch {
                watch.answer_ends();
            }
            let awaited = self.later.pop_front();
            self.next = awaited.map_or(FIRST_ANSWER, |awaited| awaited.next);
            self.current = awaited.map(|awaited| awaited.answer);
        }
    }

    pub fn rest(&self) -> Rest {
        if let Some(doubt) = self.doubt {
            return Rest::Unknown(doubt);
        }
        if !self.up.is_between_messages() {
            return Rest::Unknown("the client left in the middle of a command");
        }
        if self.upward == Upward::File {
            return Rest::Unknown("the client left in the middle of a file");
        }
        if self.current.is_some() || !self.down.is_between_messages() {
            return Rest::Unknown("the client left before all responses were read");
        }
        Rest::Clean(Remains { transaction: self.transaction, statements: self.statements })
    }

    /// Whether the proxy may append an ERR of its own to the bytes forwarded to the client. It ends the
    /// response that the client reads, or the next one.
    pub fn between_answers(&self) -> bool {
        self.down.is_between_messages()
    }

    /// The sequence number of such an ERR.
    pub fn next_sequence(&self) -> u8 {
        self.next
    }

    /// Whether the server's last message was an error: if it closes the connection now, the client knows why.
    pub fn error_was_last(&self) -> bool {
        self.last == Last::Error
    }
}

/// Whether a KILL names a connection identifier of the proxy.
fn names_own(kill: &Kill, from: u32) -> bool {
    kill.named.iter().any(|named| named.number >= from)
}

fn definitions(left: u32) -> Option<Answer> {
    (left > 0).then_some(Answer::Definitions { left })
}

/// Whether a packet that starts with this byte is a row, rather than the end of the rows or an ERR.
#[inline]
fn is_row(first: u8, header: Header) -> bool {
    match first {
        err::HEADER => false,
        // In a row it announces a cell that is longer than this packet.
        ok::EOF_HEADER => header.length == MAX_PART_BYTES,
        _ => true,
    }
}

fn ends_fields(header: Header, look: &[u8]) -> bool {
    look.first() == Some(&ok::EOF_HEADER) && header.length < MAX_PART_BYTES
}

fn broken(message: &'static str, reason: &'static str) -> Error {
    Error::Protocol { message, reason }
}
