//! A hostile client's login, at once and in portions: the result must be the same, and no client without the password
//! is accepted.
//!
//! Input: one byte of choices, one byte for the portions' size, then the client's bytes.
#![no_main]

use std::sync::{Arc, LazyLock};

use ciphertoll_proxy::HandshakeStep;
use ciphertoll_proxy::mysql::{AuthRequirement, ClientHandshake, CredentialStore, GreetingContext, TlsState};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{greeting::Greeting, greeting_template::GreetingTemplate, relay::RELAYED, Capabilities, Plugin, Terms};
use libfuzzer_sys::fuzz_target;

static CREDENTIALS: LazyLock<Arc<CredentialStore>> = LazyLock::new(|| {
    Arc::new(CredentialStore::new("toll", &Secret::new(b"correct horse".to_vec())).expect("OpenSSL has random bytes"))
});

fuzz_target!(|data: &[u8]| {
    let &[choices, size, ref bytes @ ..] = data else { return };
    let (granted, sha2) = (choices & 1 == 0, choices & 2 == 0);
    let plugin = if sha2 { Plugin::CachingSha2Password } else { Plugin::NativePassword };
    let template = Arc::new(GreetingTemplate::of(&Greeting {
        version: b"8.0.33",
        connection_id: 1,
        nonce: *b"abcdefghijklmnopqrst",
        capabilities: Capabilities::from_bits(u64::MAX),
        character_set: 255,
        status: 2,
        plugin: plugin.name(),
    }));
    let run = |size: usize| {
        let auth = if granted { AuthRequirement::Granted } else { AuthRequirement::Password(Arc::clone(&CREDENTIALS)) };
        let greeting = GreetingContext::new(Arc::clone(&template), 7, [b'x'; 20]);
        let terms = Terms { capabilities: RELAYED, character_set: 45 };
        let mut handshake = match choices >> 2 & 3 {
            0 => ClientHandshake::new(auth, greeting),
            1 => ClientHandshake::by_tls(auth, greeting),
            2 => ClientHandshake::change_user(auth, TlsState::Off, greeting, terms),
            _ => ClientHandshake::change_user(auth, TlsState::Established { name: None }, greeting, terms),
        };
        let (mut received, mut out) = (Vec::new(), Vec::new());
        let mut step = handshake.step(&mut &b""[..], &mut out);
        assert_eq!(step, HandshakeStep::NeedInput);
        for portion in bytes.chunks(size) {
            received.extend_from_slice(portion);
            let mut input = received.as_slice();
            step = handshake.step(&mut input, &mut out);
            if step == HandshakeStep::StartTls {
                handshake.tls_established(None);
                step = handshake.step(&mut input, &mut out);
            }
            let unread = input.len();
            received.drain(..received.len() - unread);
            if step != HandshakeStep::NeedInput {
                break;
            }
        }
        (step, out)
    };
    let (step, out) = run(usize::MAX);
    if let HandshakeStep::Login(request) = &step {
        assert!(granted, "a client without the password was accepted");
        assert!(RELAYED.contains(request.terms.capabilities));
    }
    assert_eq!((step, out), run(usize::from(size).max(1)));
});
