//! A login with a hostile server.
//!
//! Input: one byte of options, then portions, each preceded by its length in one byte.

use std::sync::Arc;

use ciphertoll_wire::postgres::{ChannelBinding, Error, PostgresConnect, PostgresLogin, PostgresTlsMode};
use ciphertoll_wire::{Phase, Secret, Step};

const PASSWORD: &[u8] = b"correct horse";

pub fn run(data: &[u8]) {
    let Some((choices, mut data)) = data.split_first() else { return };
    // Limits the iterations of key derivation, which would take most of the fuzzer's time.
    if asks_for_many_iterations(data) {
        return;
    }
    let encryption =
        [PostgresTlsMode::Plain, PostgresTlsMode::Tls, PostgresTlsMode::DirectTls, PostgresTlsMode::EagerTls]
            [usize::from(choices & 3)];
    let bind = choices & 4 != 0 && encryption != PostgresTlsMode::Plain;
    let mut connect = PostgresConnect::new(Arc::new(PostgresLogin {
        startup: Vec::new(),
        user: "toll".to_owned(),
        password: Secret::new(PASSWORD.to_vec()),
        database: (choices & 8 != 0).then(|| "orders".to_owned()),
        encryption,
        channel_binding: if bind { ChannelBinding::Required } else { ChannelBinding::Disabled },
    }));
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut encrypted = false;
    loop {
        let mut input = received.as_slice();
        let step = connect.step(&mut input, &mut out);
        let unread = input.len();
        received.drain(..received.len() - unread);
        assert!(encrypted || !out.windows(PASSWORD.len()).any(|window| window == PASSWORD));
        match step {
            Err(_) => {
                assert_eq!(connect.step(&mut &b""[..], &mut out), Err(Error::NotReset));
                return;
            }
            Ok(Step::Done) => {
                assert!(connect.server().is_some());
                return;
            }
            Ok(Step::StartTls) => {
                assert!((received.is_empty() || encryption == PostgresTlsMode::EagerTls) && !encrypted);
                // The rest of the input would be TLS.
                received.clear();
                encrypted = true;
                out.clear();
                connect.bind_channel(b"hash");
            }
            Ok(Step::OfferTls) => assert!(encryption == PostgresTlsMode::EagerTls && !encrypted),
            Ok(Step::Phase(phase)) => {
                assert!(phase == Phase::TlsRequest || encrypted == (encryption != PostgresTlsMode::Plain));
                // The input cannot contain a valid proof, which depends on a random nonce.
                assert!(phase != Phase::Auth || !bind);
            }
            Ok(Step::NeedInput) => {
                let Some((&length, rest)) = data.split_first() else { return };
                let (portion, rest) = rest.split_at(rest.len().min(usize::from(length)));
                received.extend_from_slice(portion);
                data = rest;
            }
        }
    }
}

fn asks_for_many_iterations(mut data: &[u8]) -> bool {
    let mut all = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let (portion, rest) = rest.split_at(rest.len().min(usize::from(length)));
        all.extend_from_slice(portion);
        data = rest;
    }
    all.windows(4).any(|window| window.starts_with(b"i=") && window[2..].iter().all(u8::is_ascii_digit))
}
