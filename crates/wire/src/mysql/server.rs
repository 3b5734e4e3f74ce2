//! The server's role in a login: packets to greet, to judge and to answer with.
//!
//! What judges a client's proof is with each plugin: [`super::native_password::StoredPassword`],
//! [`super::caching_sha2::CachedPassword`] and [`super::caching_sha2::RsaKey`], [`super::ed25519::StoredKey`],
//! [`super::parsec::StoredKey`], [`super::clear_password::parse`].

use super::{
    Error,
    auth_switch::AuthSwitchRequest,
    connect::MORE_DATA,
    err::ErrPacket,
    greeting::Greeting,
    handshake_response::HandshakeResponse,
    ok::OkPacket,
    packet::{self, MAX_LOGIN_PAYLOAD_BYTES, Packets},
    ssl_request::SslRequest,
};

pub use super::native_password::StoredPassword;

/// A client's first packet, or its second one after TLS has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// It asks for TLS.
    TlsRequest(SslRequest),
    /// It logs in.
    Login(HandshakeResponse<'a>),
}

/// Takes the client's next message, which must have this number; none if it is not all there.
pub fn read_login<'a>(input: &mut &'a [u8], sequence: u8) -> Result<Option<ClientMessage<'a>>, Error> {
    let Some(payload) = Packets::new(sequence, MAX_LOGIN_PAYLOAD_BYTES).take(input, "login")? else {
        return Ok(None);
    };
    if SslRequest::is(payload) {
        return SslRequest::parse(payload).map(ClientMessage::TlsRequest).map(Some);
    }
    HandshakeResponse::parse(payload).map(ClientMessage::Login).map(Some)
}

/// Takes what the client says to an [`AuthSwitchRequest`] or to [`AuthMoreData`](write_more_data): the plugin's data as
/// it is.
pub fn read_auth_response<'a>(input: &mut &'a [u8], sequence: u8) -> Result<Option<&'a [u8]>, Error> {
    Packets::new(sequence, MAX_LOGIN_PAYLOAD_BYTES).take(input, "answer to a plugin")
}

/// Appends the greeting, the first packet of a connection.
pub fn write_greeting(out: &mut Vec<u8>, greeting: &Greeting<'_>) -> Result<(), Error> {
    packet::write(out, 0, |out| greeting.encode(out))
}

/// Appends a request to use another plugin.
pub fn write_auth_switch(
    out: &mut Vec<u8>,
    sequence: u8,
    request: &AuthSwitchRequest<'_>,
) -> Result<(), Error> {
    packet::write(out, sequence, |out| request.encode(out))
}

/// Appends `AuthMoreData`: what a plugin says to the client in the middle of its conversation.
pub fn write_more_data(out: &mut Vec<u8>, sequence: u8, data: &[u8]) -> Result<(), Error> {
    packet::write(out, sequence, |out| {
        out.push(MORE_DATA);
        out.extend_from_slice(data);
    })
}

/// Appends an OK.
pub fn write_ok(out: &mut Vec<u8>, sequence: u8, ok: &OkPacket) -> Result<(), Error> {
    packet::write(out, sequence, |out| ok.encode(out))
}

/// Appends an ERR.
pub fn write_err(out: &mut Vec<u8>, sequence: u8, err: &ErrPacket<'_>) -> Result<(), Error> {
    packet::write(out, sequence, |out| err.encode(out))
}

/// Appends a message whose payload the caller has made, in as many packets as it takes; the number of the next packet.
pub fn write_payload(out: &mut Vec<u8>, sequence: u8, payload: &[u8]) -> Result<u8, Error> {
    packet::write_numbered(out, sequence, |out| out.extend_from_slice(payload))
}
