//! `ERR_Packet`: the server reports an error.

use crate::{
    mysql::{codec::reader::Reader, error::Error},
    printable::printable,
};

/// The first byte of an ERR, and of no other message.
pub(crate) const HEADER: u8 = 0xff;
const SQL_STATE_MARKER: u8 = b'#';
/// "HY000": the SQL state of an error without a specific one.
const GENERAL_STATE: [u8; 5] = *b"HY000";
/// Longer than any server's message; the rest is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrPacket<'a> {
    pub code: u16,
    pub sql_state: [u8; 5],
    /// Not necessarily UTF-8.
    pub message: &'a [u8],
}

impl<'a> ErrPacket<'a> {
    pub fn is(payload: &[u8]) -> bool {
        payload.first() == Some(&HEADER)
    }

    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "ERR");
        if reader.u8()? != HEADER {
            return Err(reader.error("wrong first byte"));
        }
        let code = reader.u16()?;
        // Before the login the SQL state is omitted, because the client's capabilities are unknown.
        let mut sql_state = GENERAL_STATE;
        if reader.peek() == Some(SQL_STATE_MARKER) {
            reader.u8()?;
            sql_state = reader.array()?;
        }
        Ok(Self { code, sql_state, message: reader.rest() })
    }

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

/// Turns a payload that is an ERR into an error.
pub(crate) fn refuse_err(payload: &[u8]) -> Result<(), Error> {
    if ErrPacket::is(payload) { Err(ErrPacket::parse(payload)?.into()) } else { Ok(()) }
}
