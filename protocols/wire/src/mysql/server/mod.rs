//! The server side of a login.
//!
//! The client's proof is checked by the plugin: [`super::auth::native_password::StoredPassword`],
//! [`super::auth::caching_sha2::CachedPassword`], [`super::auth::clear_password::parse`].

pub mod greeting_template;

use crate::mysql::{
    codec::{
        auth_switch::{AuthSwitchRequest, MORE_DATA},
        err::ErrPacket,
        greeting::Greeting,
        handshake_response::HandshakeResponse,
        ok::OkPacket,
        packet::{self, MAX_LOGIN_PAYLOAD_BYTES, PacketReader},
        ssl_request::SslRequest,
    },
    error::Error,
};

pub use crate::mysql::auth::native_password::StoredPassword;

/// A client's first packet, or its second one after TLS has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    TlsRequest(SslRequest),
    Login(HandshakeResponse<'a>),
}

/// Takes the client's next message, which must have this sequence number; `None` if it is incomplete.
pub fn read_login<'a>(input: &mut &'a [u8], sequence: u8) -> Result<Option<ClientMessage<'a>>, Error> {
    let Some(payload) = PacketReader::new(sequence, MAX_LOGIN_PAYLOAD_BYTES).take(input, "login")? else {
        return Ok(None);
    };
    if SslRequest::is(payload) {
        return SslRequest::parse(payload).map(ClientMessage::TlsRequest).map(Some);
    }
    HandshakeResponse::parse(payload).map(ClientMessage::Login).map(Some)
}

/// Takes the client's reply to an [`AuthSwitchRequest`] or to [`AuthMoreData`](write_more_data): the raw data
/// of the plugin.
pub fn read_auth_response<'a>(input: &mut &'a [u8], sequence: u8) -> Result<Option<&'a [u8]>, Error> {
    PacketReader::new(sequence, MAX_LOGIN_PAYLOAD_BYTES).take(input, "reply to a plugin")
}

/// Appends the greeting, the first packet of a connection.
pub fn write_greeting(out: &mut Vec<u8>, greeting: &Greeting<'_>) -> Result<(), Error> {
    packet::write(out, 0, |out| greeting.encode(out))
}

pub fn write_auth_switch(
    out: &mut Vec<u8>,
    sequence: u8,
    request: &AuthSwitchRequest<'_>,
) -> Result<(), Error> {
    packet::write(out, sequence, |out| request.encode(out))
}

/// Appends `AuthMoreData`: a plugin's message to the client.
pub fn write_more_data(out: &mut Vec<u8>, sequence: u8, data: &[u8]) -> Result<(), Error> {
    packet::write(out, sequence, |out| {
        out.push(MORE_DATA);
        out.extend_from_slice(data);
    })
}

pub fn write_ok(out: &mut Vec<u8>, sequence: u8, ok: &OkPacket) -> Result<(), Error> {
    packet::write(out, sequence, |out| ok.encode(out))
}

pub fn write_err(out: &mut Vec<u8>, sequence: u8, err: &ErrPacket<'_>) -> Result<(), Error> {
    packet::write(out, sequence, |out| err.encode(out))
}

/// Appends a message with this payload, in as many packets as needed. Returns the next sequence number.
pub fn write_payload(out: &mut Vec<u8>, sequence: u8, payload: &[u8]) -> Result<u8, Error> {
    packet::write_numbered(out, sequence, |out| out.extend_from_slice(payload))
}
