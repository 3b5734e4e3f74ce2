//! A hostile client's login, at once and in portions: the result must be the same, and no client without the password
//! is accepted.
//!
//! Input: one byte of choices, one byte for the portions' size, then the client's bytes.

use std::sync::{Arc, LazyLock};

use ciphertoll_proxy::mysql::{ClientHandshake, CredentialStore, GreetingContext, LoginContext};
use ciphertoll_proxy::{ClientAuth, HandshakeStep, TlsState};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{
    Capabilities, Plugin, Terms, greeting::Greeting, greeting_template::GreetingTemplate, relay::RELAYED,
};

static CREDENTIALS: LazyLock<Arc<CredentialStore>> = LazyLock::new(|| {
    let password = Secret::new(b"correct horse".to_vec());
    Arc::new(CredentialStore::for_users([("toll", &password)]).expect("OpenSSL has random bytes"))
});

pub fn run(data: &[u8]) {
    let &[choices, size, ref bytes @ ..] = data else { return };
    let sha2 = choices & 2 == 0;
    let auth = match (choices & 1 == 0, choices >> 2 & 3) {
        (true, 1) => ClientAuth::Certificate,
        (true, _) => ClientAuth::Granted,
        (false, 1) => ClientAuth::PasswordByTls,
        (false, _) => ClientAuth::PasswordByUnix,
    };
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
        let credentials = Some(Arc::clone(&CREDENTIALS));
        let change_user = |tls: TlsState, credentials| {
            let terms = Terms { capabilities: RELAYED, character_set: 45 };
            let context = LoginContext { auth, tls, nonce: [b'x'; 20], terms, connection_id: 7 };
            ClientHandshake::change_user(context, credentials, Arc::clone(&template))
        };
        let mut handshake = match choices >> 2 & 3 {
            0 | 1 => {
                let greeting = GreetingContext::new(Arc::clone(&template), 7, [b'x'; 20]);
                ClientHandshake::new(auth, credentials, greeting)
            }
            2 => change_user(TlsState::Off, credentials),
            _ => change_user(TlsState::Established { name: None }, credentials),
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
        assert_eq!(auth, ClientAuth::Granted, "a client without the password was accepted");
        assert!(RELAYED.contains(request.terms.capabilities));
    }
    assert_eq!((step, out), run(usize::from(size).max(1)));
}
