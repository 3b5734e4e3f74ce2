//! `ERR_Packet`: the server says no.

use super::{
    Error,
    codec::{Reader, printable},
};

/// How an ERR begins, and nothing else.
pub(super) const HEADER: u8 = 0xff;
const SQL_STATE_MARKER: u8 = b'#';
/// "HY000", the state of an error that has none of its own.
const GENERAL_STATE: [u8; 5] = *b"HY000";
/// More than any server writes; a longer message is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;

/// An error as the server sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    /// The error number.
    pub code: u16,
    /// The SQL state.
    pub sql_state: [u8; 5],
    /// The message, in whatever bytes the server chose.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    /// Whether a payload is an ERR; no other message begins like one.
    pub fn is(payload: &[u8]) -> bool {
        payload.first() == Some(&HEADER)
    }

    /// Reads a payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "ERR");
        if reader.u8()? != HEADER {
            return Err(reader.error("wrong first byte"));
        }
        let code = reader.u16()?;
        // Before the login the client's capabilities are not known and the state is left out.
        let mut sql_state = GENERAL_STATE;
        if reader.peek() == Some(SQL_STATE_MARKER) {
            reader.u8()?;
            sql_state = reader.array()?;
        }
        Ok(Self { code, sql_state, message: reader.rest() })
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        out.extend_from_slice(&self.code.to_le_bytes());
        out.push(SQL_STATE_MARKER);
        out.extend_from_slice(&self.sql_state);
        out.extend_from_slice(self.message);
    }
}

impl From<ErrPacket<'_>> for Error {
    fn from(packet: ErrPacket<'_>) -> Self {
        Self::Server {
            code: packet.code,
            sql_state: printable(&packet.sql_state, packet.sql_state.len()),
            message: printable(packet.message, MAX_MESSAGE_CHARACTERS),
        }
    }
}

/// Passes a payload on unless it is an ERR.
pub(super) fn refuse_err(payload: &[u8]) -> Result<(), Error> {
    if ErrPacket::is(payload) { Err(ErrPacket::parse(payload)?.into()) } else { Ok(()) }
}
