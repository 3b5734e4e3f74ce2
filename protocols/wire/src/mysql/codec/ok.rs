//! `OK_Packet` and `EOF_Packet`: the end of a command, or of a part of its result.

use crate::mysql::{
    codec::{
        capabilities::Capabilities,
        reader::{Reader, put_lenenc_int},
    },
    error::Error,
};

const OK_HEADER: u8 = 0x00;
/// The first byte of the packet that ends rows. A row can start with it, too, but only if its first packet
/// has the maximum length: the byte then announces a cell with an eight-byte length.
pub(crate) const EOF_HEADER: u8 = 0xfe;
/// `SERVER_STATUS_IN_TRANS` ("Status flags").
const IN_TRANSACTION: u16 = 0x0001;
/// `SERVER_STATUS_AUTOCOMMIT`.
pub(crate) const AUTOCOMMIT: u16 = 0x0002;
/// `SERVER_STATUS_LAST_ROW_SENT`.
const LAST_ROW_SENT: u16 = 0x0080;
/// `SERVER_STATUS_NO_BACKSLASH_ESCAPES`.
pub(crate) const NO_BACKSLASH_ESCAPES: u16 = 0x0200;
/// `SERVER_MORE_RESULTS_EXISTS`.
const MORE_RESULTS_EXIST: u16 = 0x0008;
/// `SERVER_STATUS_CURSOR_EXISTS`.
const CURSOR_EXISTS: u16 = 0x0040;
/// `SERVER_STATUS_DB_DROPPED`: the default database was dropped.
const DATABASE_DROPPED: u16 = 0x0100;
/// `SERVER_SESSION_STATE_CHANGED`.
const SESSION_STATE_CHANGED: u16 = 0x4000;
/// Kinds of session state that concern the transaction only: `SESSION_TRACK_GTIDS`,
/// `SESSION_TRACK_TRANSACTION_CHARACTERISTICS` and `SESSION_TRACK_TRANSACTION_STATE`.
const OF_TRANSACTION: std::ops::RangeInclusive<u8> = 3..=5;
/// The payload of an EOF. A longer one that starts with the same byte is an OK or a row.
const EOF_BYTES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OkPacket {
    /// Rows changed.
    pub affected_rows: u64,
    /// The first generated key.
    pub last_insert_id: u64,
    /// "Status flags".
    pub status: u16,
    pub warnings: u16,
}

impl OkPacket {
    /// Whether a payload is an OK in response to a command.
    pub fn is(payload: &[u8]) -> bool {
        payload.first() == Some(&OK_HEADER)
    }

    /// Parses an OK in response to a command.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        Self::parse_with_header(payload, OK_HEADER)
    }

    /// Parses the end of rows: an EOF, or an OK with an EOF's first byte.
    pub(crate) fn parse_end_of_rows(payload: &[u8], capabilities: Capabilities) -> Result<Self, Error> {
        if capabilities.contains(Capabilities::DEPRECATE_EOF) {
            Self::parse_with_header(payload, EOF_HEADER)
        } else {
            Self::parse_eof(payload)
        }
    }

    pub(crate) fn parse_eof(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "EOF");
        if reader.u8()? != EOF_HEADER {
            return Err(reader.error("wrong first byte"));
        }
        let warnings = reader.u16()?;
        let status = reader.u16()?;
        reader.end()?;
        Ok(Self { status, warnings, ..Self::default() })
    }

    /// Appends the payload of an OK in response to a command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with_header(out, OK_HEADER);
    }

    /// Appends the payload that ends rows.
    pub fn encode_end_of_rows(&self, out: &mut Vec<u8>, capabilities: Capabilities) {
        if capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.encode_with_header(out, EOF_HEADER);
        } else {
            out.push(EOF_HEADER);
            out.extend_from_slice(&self.warnings.to_le_bytes());
            out.extend_from_slice(&self.status.to_le_bytes());
        }
    }

    pub(crate) fn more_results_exist(&self) -> bool {
        self.status & MORE_RESULTS_EXIST != 0
    }

    pub fn is_in_transaction(&self) -> bool {
        self.status & IN_TRANSACTION != 0
    }

    /// Whether every statement is a transaction of its own, outside of explicit ones.
    pub(crate) fn commits_automatically(&self) -> bool {
        self.status & AUTOCOMMIT != 0
    }

    /// Whether a cursor has no more rows.
    pub(crate) fn last_row_was_sent(&self) -> bool {
        self.status & LAST_ROW_SENT != 0
    }

    pub(crate) fn database_was_dropped(&self) -> bool {
        self.status & DATABASE_DROPPED != 0
    }

    /// Whether the server reports changes of session state.
    pub fn session_state_changed(&self) -> bool {
        self.status & SESSION_STATE_CHANGED != 0
    }

    /// Whether an OK with this payload, or the part of it that has arrived, reports changes of session state other than
    /// of the transaction. What cannot be read counts as a change.
    pub(crate) fn reports_changes(payload: &[u8], capabilities: Capabilities) -> bool {
        let is_readable = capabilities.contains(Capabilities::SESSION_TRACK) && payload.len() > EOF_BYTES;
        let all_of_transaction = || {
            let mut reader = Reader::new(payload, "OK");
            reader.u8()?;
            for _ in 0..2 {
                reader.lenenc_int()?;
            }
            for _ in 0..2 {
                reader.u16()?;
            }
            reader.lenenc_bytes()?;
            let mut changes = Reader::new(reader.lenenc_bytes()?, "session state");
            while !changes.is_empty() {
                let kind = changes.u8()?;
                changes.lenenc_bytes()?;
                if !OF_TRANSACTION.contains(&kind) {
                    return Ok(false);
                }
            }
            Ok::<bool, Error>(true)
        };
        !is_readable || !all_of_transaction().unwrap_or(false)
    }

    /// Whether a cursor with more rows is open.
    pub(crate) fn cursor_exists(&self) -> bool {
        self.status & CURSOR_EXISTS != 0
    }

    /// Parses the response to a command without a result set: an OK, or an EOF in either form.
    pub(crate) fn parse_any(payload: &[u8]) -> Result<Self, Error> {
        match payload.first() {
            Some(&EOF_HEADER) if payload.len() <= EOF_BYTES => Self::parse_eof(payload),
            Some(&EOF_HEADER) => Self::parse_with_header(payload, EOF_HEADER),
            _ => Self::parse(payload),
        }
    }

    fn parse_with_header(payload: &[u8], header: u8) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "OK");
        if reader.u8()? != header {
            return Err(reader.error("wrong first byte"));
        }
        // A message and session state changes may follow; both are ignored.
        Ok(Self {
            affected_rows: reader.lenenc_int()?,
            last_insert_id: reader.lenenc_int()?,
            status: reader.u16()?,
            warnings: reader.u16()?,
        })
    }

    fn encode_with_header(&self, out: &mut Vec<u8>, header: u8) {
        out.push(header);
        put_lenenc_int(out, self.affected_rows);
        put_lenenc_int(out, self.last_insert_id);
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&self.warnings.to_le_bytes());
    }
}
