//! The parser of logins. An accepted login can be encoded and parsed again.

use ciphertoll_wire::mysql::Capabilities;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::server::{self, ClientMessage, StoredPassword};

/// Lengths up to this are encoded in the same way with all capabilities.
const SHORT_BYTES: usize = 250;

pub fn run(data: &[u8]) {
    let mut input = data;
    match server::read_login(&mut input, 1) {
        Ok(Some(ClientMessage::Login(login))) => again(&login),
        Ok(Some(ClientMessage::TlsRequest(request))) => {
            assert!(request.capabilities.contains(Capabilities::SSL));
        }
        Ok(None) => assert_eq!(input.len(), data.len()),
        Err(_) => {}
    }
}

fn again(login: &HandshakeResponse<'_>) {
    assert!(!StoredPassword::of(b"correct horse").accepts(b"abcdefghijklmnopqrst", login.auth_response));
    let expects = |flag| login.head.capabilities.contains(flag);
    let complete = expects(Capabilities::CONNECT_WITH_DB) == login.database.is_some()
        && expects(Capabilities::PLUGIN_AUTH) == login.plugin.is_some();
    if complete && login.auth_response.len() <= SHORT_BYTES {
        let mut payload = Vec::new();
        login.encode(&mut payload);
        assert_eq!(HandshakeResponse::parse(&payload).as_ref(), Ok(login));
    }
}
