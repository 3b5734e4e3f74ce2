//! Encoding and parsing a message are inverse.

use ciphertoll_wire::mysql::{
    Capabilities, PrepareOk, auth_switch::AuthSwitchRequest, err::ErrPacket, greeting::Greeting,
    handshake_response::HandshakeResponse, ok::OkPacket, server::StoredPassword, ssl_request::SslRequest,
};
use proptest::prelude::*;

use crate::fake_server::OFFERED;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1..=u8::MAX, 0..40)
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// What a peer may set besides [`Capabilities::PROTOCOL_41`]. Extended flags are set as by MariaDB.
fn capabilities() -> impl Strategy<Value = Capabilities> {
    any::<u64>().prop_map(|bits| {
        let capabilities = Capabilities::from_bits(bits) | Capabilities::PROTOCOL_41;
        let low = Capabilities::from_bits(u64::from(u32::MAX));
        if capabilities.contains(Capabilities::LONG_PASSWORD) { capabilities & low } else { capabilities }
    })
}

proptest! {
    #[test]
    fn greeting(
        version in text(), plugin in text(), nonce: [u8; 20], connection_id: u32, status: u16, character_set: u8,
        capabilities in capabilities(),
    ) {
        let mut greeting = Greeting {
            version: &version, connection_id, nonce, capabilities, character_set, status, plugin: &plugin,
        };
        let payload = encoded(|out| greeting.encode(out));
        if !capabilities.contains(Capabilities::PLUGIN_AUTH) {
            greeting.plugin = b"";
        }
        if !capabilities.contains(Capabilities::SECURE_CONNECTION) {
            greeting.nonce[8..].fill(0);
        }
        prop_assert_eq!(Greeting::parse(&payload), Ok(greeting));
    }

    #[test]
    fn ssl_request(capabilities in capabilities(), max_packet_bytes: u32, character_set: u8) {
        let capabilities = capabilities | Capabilities::SSL;
        let request = SslRequest { capabilities, max_packet_bytes, character_set };
        let payload = encoded(|out| request.encode(out));
        prop_assert!(SslRequest::is(&payload));
        prop_assert_eq!(SslRequest::parse(&payload), Ok(request));
    }

    #[test]
    fn handshake_response(
        user in text(), proof in prop::collection::vec(any::<u8>(), 0..=250), lenenc: bool,
        database in prop::option::of(text()), plugin in prop::option::of(text()),
    ) {
        let mut capabilities = OFFERED
            .without(Capabilities::CONNECT_WITH_DB)
            .without(Capabilities::PLUGIN_AUTH);
        if !lenenc {
            capabilities = capabilities.without(Capabilities::PLUGIN_AUTH_LENENC);
        }
        if database.is_some() {
            capabilities = capabilities | Capabilities::CONNECT_WITH_DB;
        }
        if plugin.is_some() {
            capabilities = capabilities | Capabilities::PLUGIN_AUTH;
        }
        let response = HandshakeResponse {
            head: SslRequest { capabilities, max_packet_bytes: 1, character_set: 45 },
            user: &user,
            auth_response: &proof,
            database: database.as_deref(),
            plugin: plugin.as_deref(),
        };
        let payload = encoded(|out| response.encode(out));
        prop_assert!(!SslRequest::is(&payload));
        prop_assert_eq!(HandshakeResponse::parse(&payload), Ok(response));
    }

    #[test]
    fn auth_switch(plugin in text(), data: Vec<u8>) {
        let request = AuthSwitchRequest { plugin: &plugin, data: &data };
        let payload = encoded(|out| request.encode(out));
        prop_assert_eq!(AuthSwitchRequest::parse(&payload), Ok(request));
    }

    #[test]
    fn ok(affected_rows: u64, last_insert_id: u64, status: u16, warnings: u16) {
        let ok = OkPacket { affected_rows, last_insert_id, status, warnings };
        prop_assert_eq!(OkPacket::parse(&encoded(|out| ok.encode(out))), Ok(ok));
    }

    #[test]
    fn err(code: u16, sql_state: [u8; 5], message: Vec<u8>) {
        let err = ErrPacket { code, sql_state, message: &message };
        let payload = encoded(|out| err.encode(out));
        prop_assert_eq!(ErrPacket::parse(&payload), Ok(err));
    }

    #[test]
    fn prepared(statement_id: u32, params: u16, columns: u16, warnings: u16) {
        let prepared = PrepareOk { statement_id, params, columns, warnings };
        prop_assert_eq!(PrepareOk::parse(&encoded(|out| prepared.encode(out))), Ok(prepared));
    }

    #[test]
    fn nobody_guesses_a_password(password: Vec<u8>, nonce: [u8; 20], response: Vec<u8>) {
        prop_assert!(!StoredPassword::of(&password).accepts(&nonce, &response));
    }
}
