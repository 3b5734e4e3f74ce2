//! Arbitrary bytes: no state machine panics, reads past its input, or loops forever.

use std::sync::Arc;

use ciphertoll_wire::postgres::{
    ChannelBinding, CopyInReader, PostgresConnect, PostgresLogin, PostgresPrepareReader,
    PostgresResponseReader, PostgresRowsReader, PostgresTlsMode, Response, server,
};
use ciphertoll_wire::{Secret, Step};
use proptest::prelude::*;

const KINDS: &[u8] = b"RKZTDCIENA123ntsGHdcSvW";

/// Messages with valid headers, so that their payloads are read.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let lead = prop::sample::select(vec![&b""[..], b"\0\0\0\0", b"\0\0\0\x0a", b"I", b"\0\x01"]);
    let payload = (lead, prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..40));
    let message = (prop::sample::select(KINDS), payload);
    prop::collection::vec(message, 0..8).prop_map(|messages| {
        let mut bytes = Vec::new();
        for (kind, (lead, rest)) in messages {
            server::write_message(&mut bytes, kind, &[lead, &rest].concat()).unwrap();
        }
        bytes
    })
}

fn run_connect(encryption: PostgresTlsMode, bytes: &[u8]) {
    let login = PostgresLogin {
        startup: Vec::new(),
        user: "toll".to_owned(),
        password: Secret::new(b"secret".to_vec()),
        database: None,
        encryption,
        channel_binding: ChannelBinding::Disabled,
    };
    let mut connect = PostgresConnect::new(Arc::new(login));
    let (mut input, mut out) = (&b""[..], Vec::new());
    let mut came = false;
    for _ in 0..20 {
        match connect.step(&mut input, &mut out) {
            Ok(Step::NeedInput) if !came => {
                came = true;
                input = bytes;
            }
            Ok(Step::NeedInput | Step::Done) | Err(_) => return,
            Ok(Step::OfferTls | Step::StartTls | Step::Phase(_)) => {}
        }
    }
    panic!("it loops forever");
}

proptest! {
    #[test]
    fn connect(bytes: Vec<u8>, messages in messages()) {
        for encryption in
            [PostgresTlsMode::Plain, PostgresTlsMode::Tls, PostgresTlsMode::EagerTls, PostgresTlsMode::DirectTls]
        {
            run_connect(encryption, &bytes);
            run_connect(encryption, &messages);
        }
    }

    #[test]
    fn connect_after_a_welcome(cut in 0..300_usize, change: u8, messages in messages()) {
        let mut bytes = Vec::new();
        crate::fake_server::welcome(&mut bytes);
        if let Some(byte) = bytes.get_mut(cut) {
            *byte ^= change;
        }
        run_connect(PostgresTlsMode::Plain, &bytes);
        run_connect(PostgresTlsMode::DirectTls, &bytes);
        run_connect(PostgresTlsMode::Plain, &[&bytes[..9], messages.as_slice()].concat());
    }

    #[test]
    fn answers(bytes: Vec<u8>, messages in messages()) {
        for bytes in [bytes, messages] {
            let mut reader = PostgresResponseReader::new();
            let mut input = bytes.as_slice();
            if reader.step(&mut input) == Ok(Response::NeedInput) {
                prop_assert_eq!(reader.step(&mut input), Ok(Response::NeedInput), "it took all it could");
            }
            let _ = PostgresRowsReader::new(1000).step(&mut bytes.as_slice());
            let _ = PostgresPrepareReader::new().step(&mut bytes.as_slice());
            let _ = CopyInReader::new().step(&mut bytes.as_slice());
        }
    }

    #[test]
    fn commands(
        bytes: Vec<u8>,
        kind in prop::sample::select(&b"pQPBDECSHdcfX"[..]),
        payload in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..40),
    ) {
        let mut message = Vec::new();
        server::write_message(&mut message, kind, &payload).unwrap();
        for bytes in [bytes, message] {
            let _ = server::read_frontend(&mut bytes.as_slice(), 1000);
        }
    }

    #[test]
    fn first_messages(bytes: Vec<u8>, code in prop_oneof![Just(3 << 16), 80_877_102..80_877_105_u32], rest: Vec<u8>) {
        let _ = server::read_startup(&mut bytes.as_slice());
        let length = (8 + rest.len() as u32).to_be_bytes();
        let bytes = [&length[..], &code.to_be_bytes(), &rest].concat();
        let _ = server::read_startup(&mut bytes.as_slice());
    }
}
