//! `Protocol::SSLRequest`: the client requests TLS. Every login starts with the same fields.

use crate::mysql::{
    codec::{capabilities::Capabilities, reader::Reader},
    error::Error,
};

/// `utf8mb4_general_ci` ("Character Set").
pub const UTF8MB4: u8 = 45;
/// MariaDB's extended capabilities take the last four of `MySQL`'s 23 reserved bytes.
const RESERVED_BYTES: usize = 19;
/// The length of the whole message; a login is longer.
const BYTES: usize = 32;

/// The fields at the start of an `SSLRequest` and a `HandshakeResponse41`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// The capabilities that the client will use.
    pub capabilities: Capabilities,
    /// The longest packet that the client accepts.
    pub max_packet_bytes: u32,
    /// The lower byte of the client's collation.
    pub character_set: u8,
}

impl SslRequest {
    /// Whether a client's first payload requests TLS, rather than being its login.
    pub fn is(payload: &[u8]) -> bool {
        payload.len() == BYTES
    }

    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "TLS request");
        let request = Self::read(&mut reader)?;
        if !request.capabilities.contains(Capabilities::SSL) {
            return Err(reader.error("it does not request TLS"));
        }
        reader.end()?;
        Ok(request)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let (low, extended) = self.capabilities.halves();
        out.extend_from_slice(&low.to_le_bytes());
        out.extend_from_slice(&self.max_packet_bytes.to_le_bytes());
        out.push(self.character_set);
        out.extend_from_slice(&[0; RESERVED_BYTES]);
        out.extend_from_slice(&extended.to_le_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let low = reader.u32()?;
        let max_packet_bytes = reader.u32()?;
        let character_set = reader.u8()?;
        reader.bytes(RESERVED_BYTES)?;
        let capabilities = Capabilities::from_halves(low, reader.u32()?);
        if !capabilities.contains(Capabilities::PROTOCOL_41) {
            return Err(reader.error("it does not support the protocol of 4.1"));
        }
        Ok(Self { capabilities, max_packet_bytes, character_set })
    }
}
