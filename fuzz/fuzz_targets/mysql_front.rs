//! The login of a hostile client, read at once and in portions, with the same result. No client without the password is
//! accepted.
//!
//! Input: one byte of options, one byte for the portion size, then the client's data.
#![no_main]

use std::sync::{Arc, LazyLock};

use ciphertoll_proxy::FrontStep;
use ciphertoll_proxy::mysql::{Admission, Front, Gate, Greeter, Way};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{
    Capabilities, Plugin, Terms, greeting::Greeting, greeting_template::GreetingTemplate, relay::RELAYED,
};
use libfuzzer_sys::fuzz_target;

static GATE: LazyLock<Arc<Gate>> = LazyLock::new(|| {
    Arc::new(Gate::new("toll", &Secret::new(b"correct horse".to_vec())).expect("OpenSSL has random bytes"))
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
        let admission = if granted { Admission::Granted } else { Admission::Password(Arc::clone(&GATE)) };
        let greeter = Greeter::new(Arc::clone(&template), 7, [b'x'; 20]);
        let terms = Terms { capabilities: RELAYED, character_set: 45 };
        let mut front = match choices >> 2 & 3 {
            0 => Front::new(admission, greeter),
            1 => Front::by_tls(admission, greeter),
            2 => Front::anew(admission, Way::Plain, greeter, terms),
            _ => Front::anew(admission, Way::Encrypted { name: None }, greeter, terms),
        };
        let (mut received, mut out) = (Vec::new(), Vec::new());
        let mut step = front.step(&mut &b""[..], &mut out);
        assert_eq!(step, FrontStep::NeedInput);
        for portion in bytes.chunks(size) {
            received.extend_from_slice(portion);
            let mut input = received.as_slice();
            step = front.step(&mut input, &mut out);
            if step == FrontStep::StartTls {
                front.encrypted(None);
                step = front.step(&mut input, &mut out);
            }
            let unread = input.len();
            received.drain(..received.len() - unread);
            if step != FrontStep::NeedInput {
                break;
            }
        }
        (step, out)
    };
    let (step, out) = run(usize::MAX);
    if let FrontStep::Login(wanted) = &step {
        assert!(granted, "nobody has said the password");
        assert!(RELAYED.contains(wanted.terms.capabilities));
    }
    assert_eq!((step, out), run(usize::from(size).max(1)));
});
