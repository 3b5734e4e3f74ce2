//! A login with a hostile server.
//!
//! Input: one byte of options, then portions, each preceded by its length in two bytes.

use std::sync::Arc;

use ciphertoll_wire::mongodb::{Error, Mechanism, MongoDbConnect, MongoDbLogin, MongoDbTlsMode};
use ciphertoll_wire::{Phase, Secret, Step};

const PASSWORD: &[u8] = b"correct horse";
const MECHANISMS: [Mechanism; 5] =
    [Mechanism::None, Mechanism::ScramSha256, Mechanism::ScramSha1, Mechanism::X509, Mechanism::Negotiated];

pub fn run(data: &[u8]) {
    let Some((choices, mut data)) = data.split_first() else { return };
    // Limits the iterations of key derivation, which would take most of the fuzzer's time.
    if asks_for_iterations(data) {
        return;
    }
    let tls = if choices & 1 == 0 { MongoDbTlsMode::Plain } else { MongoDbTlsMode::Tls };
    let mechanism = MECHANISMS[usize::from(choices >> 1) % MECHANISMS.len()];
    let login = MongoDbLogin { tls, mechanism, ..MongoDbLogin::new("toll", Secret::new(PASSWORD.to_vec())) };
    let mut connect = MongoDbConnect::new(Arc::new(login));
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut encrypted = false;
    loop {
        let mut input = received.as_slice();
        let step = connect.step(&mut input, &mut out);
        let unread = input.len();
        received.drain(..received.len() - unread);
        assert!(!out.windows(PASSWORD.len()).any(|window| window == PASSWORD));
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
                assert!(tls == MongoDbTlsMode::Tls && !encrypted && out.is_empty() && received.is_empty());
                encrypted = true;
            }
            Ok(Step::OfferTls) => panic!("TLS is never offered behind a request"),
            Ok(Step::Phase(phase)) => {
                assert_eq!(encrypted, tls == MongoDbTlsMode::Tls);
                // The input cannot contain a valid proof, which depends on a random nonce.
                let proves = matches!(mechanism, Mechanism::None | Mechanism::X509);
                assert!(phase == Phase::ServerGreeting || (phase == Phase::Auth && proves));
            }
            Ok(Step::NeedInput) => {
                let Some((length, rest)) = data.split_first_chunk() else { return };
                let length = usize::from(u16::from_le_bytes(*length));
                let (portion, rest) = rest.split_at(rest.len().min(length));
                received.extend_from_slice(portion);
                data = rest;
            }
        }
    }
}

fn asks_for_iterations(mut data: &[u8]) -> bool {
    let mut all = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let (portion, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
        all.extend_from_slice(portion);
        data = rest;
    }
    all.windows(7).any(|window| window.starts_with(b"i=") && window[2..].iter().all(u8::is_ascii_digit))
}
