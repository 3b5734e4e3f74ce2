//! A hostile server's bytes into a client's login.
//!
//! Input: one byte of choices, then portions, each with its length in one byte before it.
#![no_main]

use std::sync::Arc;

use ciphertoll_wire::{
    Phase, Secret, Step,
    mysql::{Connect, Encryption, Login},
};
use libfuzzer_sys::fuzz_target;

const PASSWORD: &[u8] = b"correct horse";

fuzz_target!(|data: &[u8]| {
    let Some((choices, mut data)) = data.split_first() else { return };
    let encryption = if choices & 1 == 0 { Encryption::Plain } else { Encryption::Tls };
    let mut connect = Connect::new(Arc::new(Login {
        user: "toll".to_owned(),
        password: Secret::new(if choices & 2 == 0 { PASSWORD.to_vec() } else { Vec::new() }),
        database: (choices & 4 != 0).then(|| "orders".to_owned()),
        encryption,
    }));
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut encrypted = encryption == Encryption::Plain;
    loop {
        let mut input = received.as_slice();
        let step = connect.step(&mut input, &mut out);
        let unread = input.len();
        received.drain(..received.len() - unread);
        assert!(!out.windows(PASSWORD.len()).any(|window| window == PASSWORD));
        match step {
            Err(_) => {
                assert!(connect.step(&mut &b""[..], &mut out).is_err());
                return;
            }
            Ok(Step::Done) => {
                assert!(encrypted);
                return;
            }
            Ok(Step::StartTls) => {
                assert!(received.is_empty() && !encrypted);
                encrypted = true;
                out.clear();
            }
            Ok(Step::Phase(phase)) => assert!(phase != Phase::Auth || encrypted),
            Ok(Step::NeedInput) => {
                let Some((&length, rest)) = data.split_first() else { return };
                let (portion, rest) = rest.split_at(rest.len().min(usize::from(length)));
                received.extend_from_slice(portion);
                data = rest;
            }
        }
    }
});
