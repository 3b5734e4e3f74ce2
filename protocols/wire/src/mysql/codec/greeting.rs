//! `Protocol::HandshakeV10`: the server's greeting ("Initial Handshake Packet" in MariaDB's documentation).

use crate::mysql::{
    auth::native_password::NONCE_BYTES,
    codec::{
        capabilities::Capabilities,
        reader::{Reader, put_nul_terminated},
    },
    error::Error,
};

const PROTOCOL_VERSION: u8 = 10;
/// The nonce is sent in two parts; the second is followed by a NUL.
const NONCE_FIRST_BYTES: usize = 8;
const NONCE_SECOND_BYTES: usize = NONCE_BYTES - NONCE_FIRST_BYTES;
const MIN_SECOND_FIELD_BYTES: usize = NONCE_SECOND_BYTES + 1;
const CONNECTION_ID_BYTES: usize = 4;
/// From the end of the nonce's first part to its second: a NUL, capabilities, collation, status flags, more capabilities, the
/// nonce's length, and ten bytes that are reserved in `MySQL`.
const BETWEEN_NONCE_BYTES: usize = 1 + 2 + 1 + 2 + 2 + 1 + 10;
/// MariaDB's extended capabilities take the last four of `MySQL`'s ten reserved bytes.
const RESERVED_BYTES: usize = 6;

/// The server's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// As sent, including MariaDB's prefix `5.5.5-`.
    pub version: &'a [u8],
    /// The server's identifier for this connection.
    pub connection_id: u32,
    /// The challenge for the default plugin.
    pub nonce: [u8; NONCE_BYTES],
    pub capabilities: Capabilities,
    /// The server's default collation, its lower byte.
    pub character_set: u8,
    /// "Status flags".
    pub status: u16,
    /// The default authentication plugin; empty if the server does not support plugins.
    pub plugin: &'a [u8],
}

impl<'a> Greeting<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "greeting");
        if reader.u8()? != PROTOCOL_VERSION {
            return Err(reader.error("not protocol version 10"));
        }
        let version = reader.nul_terminated()?;
        let connection_id = reader.u32()?;
        let mut nonce = [0; NONCE_BYTES];
        nonce[..NONCE_FIRST_BYTES].copy_from_slice(reader.bytes(NONCE_FIRST_BYTES)?);
        reader.u8()?;
        let low = reader.u16()?;
        let character_set = reader.u8()?;
        let status = reader.u16()?;
        let high = reader.u16()?;
        let nonce_length = usize::from(reader.u8()?);
        reader.bytes(RESERVED_BYTES)?;
        let extended = reader.u32()?;
        let capabilities = Capabilities::from_halves(u32::from(low) | u32::from(high) << 16, extended);
        if capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let length = nonce_length.saturating_sub(NONCE_FIRST_BYTES).max(MIN_SECOND_FIELD_BYTES);
            nonce[NONCE_FIRST_BYTES..].copy_from_slice(&reader.bytes(length)?[..NONCE_SECOND_BYTES]);
        }
        let plugin = if capabilities.contains(Capabilities::PLUGIN_AUTH) {
            // MySQL bug 59453: servers before 5.5.10 do not terminate it.
            reader.nul_terminated_or_rest()
        } else {
            &[]
        };
        Ok(Self { version, connection_id, nonce, capabilities, character_set, status, plugin })
    }

    /// Replaces what is different for each client in the payload of a greeting with this version and with
    /// [`Capabilities::SECURE_CONNECTION`].
    pub(crate) fn readdress(
        payload: &mut [u8],
        version: &[u8],
        connection_id: u32,
        nonce: &[u8; NONCE_BYTES],
    ) {
        // The protocol version, the server's version and its NUL.
        let own = &mut payload[1 + version.len() + 1..];
        let (id, own) = own.split_at_mut(CONNECTION_ID_BYTES);
        id.copy_from_slice(&connection_id.to_le_bytes());
        let (first, second) = nonce.split_at(NONCE_FIRST_BYTES);
        own[..NONCE_FIRST_BYTES].copy_from_slice(first);
        own[NONCE_FIRST_BYTES + BETWEEN_NONCE_BYTES..][..NONCE_SECOND_BYTES].copy_from_slice(second);
    }

    /// Appends the payload. Version and plugin must have no NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (low, extended) = self.capabilities.halves();
        let [first, second, third, fourth] = low.to_le_bytes();
        out.push(PROTOCOL_VERSION);
        put_nul_terminated(out, self.version);
        out.extend_from_slice(&self.connection_id.to_le_bytes());
        put_nul_terminated(out, &self.nonce[..NONCE_FIRST_BYTES]);
        out.extend_from_slice(&[first, second]);
        out.push(self.character_set);
        out.extend_from_slice(&self.status.to_le_bytes());
        out.extend_from_slice(&[third, fourth]);
        let plugins = self.capabilities.contains(Capabilities::PLUGIN_AUTH);
        out.push(if plugins { NONCE_BYTES as u8 + 1 } else { 0 });
        out.extend_from_slice(&[0; RESERVED_BYTES]);
        out.extend_from_slice(&extended.to_le_bytes());
        if self.capabilities.contains(Capabilities::SECURE_CONNECTION) {
            put_nul_terminated(out, &self.nonce[NONCE_FIRST_BYTES..]);
        }
        if plugins {
            put_nul_terminated(out, self.plugin);
        }
    }
}
