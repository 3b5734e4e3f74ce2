//! Arbitrary bytes: no state machine panics, reads past its input, or loops forever.

use std::sync::Arc;

use ciphertoll_wire::mysql::{
    Capabilities, MySqlConnect, MySqlLogin, MySqlPrepareReader, MySqlResponseReader, MySqlRowsReader,
    MySqlTlsMode, Plugin, Response, ResponseKind, server,
};
use ciphertoll_wire::tls::FlightObserver;
use ciphertoll_wire::{Secret, Step};
use proptest::prelude::*;

use crate::fake_server::{OFFERED, greeting};

/// Packets with valid headers, so that their payloads are read.
fn packets(first: u8) -> impl Strategy<Value = Vec<u8>> {
    let lead = prop_oneof![Just(0x00), Just(0x01), Just(0xfb), Just(0xfe), Just(0xff), any::<u8>()];
    let payload = (lead, prop::collection::vec(any::<u8>(), 0..40));
    prop::collection::vec(payload, 0..6).prop_map(move |payloads| {
        let mut bytes = Vec::new();
        for (index, (lead, rest)) in payloads.iter().enumerate() {
            let payload = [&[*lead], rest.as_slice()].concat();
            server::write_payload(&mut bytes, first + index as u8, &payload).unwrap();
        }
        bytes
    })
}

fn run_connect(encryption: MySqlTlsMode, plugin: Plugin, bytes: &[u8]) {
    let password = Secret::new(b"secret".to_vec());
    let login = MySqlLogin { encryption, plugin, ..MySqlLogin::new("toll", password) };
    let mut connect = MySqlConnect::new(Arc::new(login));
    let (mut input, mut out) = (bytes, Vec::new());
    for _ in 0..20 {
        match connect.step(&mut input, &mut out) {
            Ok(Step::NeedInput | Step::Done) | Err(_) => return,
            Ok(Step::OfferTls | Step::StartTls | Step::Phase(_)) => {}
        }
    }
    panic!("it loops forever");
}

fn plugins() -> impl Strategy<Value = Plugin> {
    prop::sample::select(&Plugin::ALL[..])
}

proptest! {
    #[test]
    fn connect(bytes: Vec<u8>, packets in packets(0), tls: bool, plugin in plugins()) {
        let encryption = if tls { MySqlTlsMode::Tls } else { MySqlTlsMode::Plain };
        run_connect(encryption, plugin, &bytes);
        run_connect(encryption, plugin, &packets);
    }

    #[test]
    fn connect_after_a_greeting(packets in packets(2), cut in 0..100_usize, change: u8, plugin in plugins()) {
        let mut bytes = Vec::new();
        server::write_greeting(&mut bytes, &greeting(OFFERED)).unwrap();
        run_connect(MySqlTlsMode::Plain, plugin, &[bytes.as_slice(), packets.as_slice()].concat());
        if let Some(byte) = bytes.get_mut(cut) {
            *byte ^= change;
        }
        run_connect(MySqlTlsMode::Plain, plugin, &bytes);
        run_connect(MySqlTlsMode::Tls, plugin, &bytes);
    }

    #[test]
    fn connect_after_a_switch(
        plugin in plugins(), nonce in prop::collection::vec(any::<u8>(), 19..=34), first in 2..=4_u8,
        messages in prop::collection::vec((0..8_u8, prop::collection::vec(any::<u8>(), 0..40)), 0..4),
    ) {
        let mut bytes = Vec::new();
        server::write_greeting(&mut bytes, &greeting(OFFERED)).unwrap();
        let switch = [b"\xfe", plugin.name(), b"\0", nonce.as_slice()].concat();
        server::write_payload(&mut bytes, 2, &switch).unwrap();
        for (index, (lead, rest)) in messages.iter().enumerate() {
            let lead = [&b"\x01"[..], b"P", b"\x01\x03", b"\x01\x04", b"\0", b"\xfe", b"P\0", b""][usize::from(*lead)];
            server::write_payload(&mut bytes, first + 2 * (index as u8 + 1), &[lead, rest].concat()).unwrap();
        }
        run_connect(MySqlTlsMode::Plain, plugin, &bytes);
    }

    #[test]
    fn answers(bytes: Vec<u8>, packets in packets(1), deprecate_eof: bool) {
        let capabilities = if deprecate_eof { OFFERED } else { OFFERED.without(Capabilities::DEPRECATE_EOF) };
        for bytes in [bytes, packets] {
            for kind in [ResponseKind::Text, ResponseKind::Binary] {
                let mut reader = MySqlResponseReader::new(kind, capabilities);
                let mut input = bytes.as_slice();
                if reader.step(&mut input) == Ok(Response::NeedInput) {
                    prop_assert_eq!(reader.step(&mut input), Ok(Response::NeedInput), "it took all it could");
                }
            }
            let _ = MySqlRowsReader::new(capabilities, 1000).step(&mut bytes.as_slice());
            let _ = MySqlPrepareReader::new(capabilities).step(&mut bytes.as_slice());
        }
    }

    #[test]
    fn logins(bytes: Vec<u8>, packets in packets(1)) {
        let _ = server::read_login(&mut bytes.as_slice(), 1);
        let _ = server::read_login(&mut packets.as_slice(), 1);
        let _ = server::read_auth_response(&mut bytes.as_slice(), 1);
    }

    #[test]
    fn tls_flights(messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..80)), 0..5)) {
        let mut observer = FlightObserver::new();
        for (kind, body) in messages {
            observer.feed(&[22, 3, 3, 0, body.len() as u8 + 4, kind % 16, 0, 0, body.len() as u8]);
            observer.feed(&body);
        }
    }
}
