//! A login with a hostile server.
//!
//! Input: one byte of options, then portions, each preceded by its length in one byte.

use std::sync::Arc;

use ciphertoll_wire::mysql::{MySqlConnect, MySqlLogin, MySqlTlsMode, Plugin, StatementsPerQuery, Transport};
use ciphertoll_wire::{Phase, Secret, Step};

const PASSWORD: &[u8] = b"correct horse";

pub fn run(data: &[u8]) {
    let Some((choices, mut data)) = data.split_first() else { return };
    let encryption = match choices & 0x81 {
        1 => MySqlTlsMode::Tls,
        0x81 => MySqlTlsMode::EagerTls,
        _ => MySqlTlsMode::Plain,
    };
    let transport = if choices & 8 == 0 { Transport::Tcp } else { Transport::UnixSocket };
    let password = if choices & 2 == 0 { PASSWORD.to_vec() } else { Vec::new() };
    let mut connect = MySqlConnect::new(Arc::new(MySqlLogin {
        database: (choices & 4 != 0).then(|| "orders".to_owned()),
        encryption,
        transport,
        plugin: Plugin::ALL[usize::from(choices >> 4 & 3)],
        statements: if choices & 64 == 0 { StatementsPerQuery::One } else { StatementsPerQuery::Several },
        ..MySqlLogin::new("toll", Secret::new(password))
    }));
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut encrypted = encryption == MySqlTlsMode::Plain;
    loop {
        let mut input = received.as_slice();
        let step = connect.step(&mut input, &mut out);
        let unread = input.len();
        received.drain(..received.len() - unread);
        let private = transport == Transport::UnixSocket || (encryption != MySqlTlsMode::Plain && encrypted);
        assert!(private || !out.windows(PASSWORD.len()).any(|window| window == PASSWORD));
        match step {
            Err(_) => {
                assert!(connect.server().is_none());
                assert!(connect.step(&mut &b""[..], &mut out).is_err());
                return;
            }
            Ok(Step::Done) => {
                assert!(encrypted && connect.server().is_some());
                return;
            }
            Ok(Step::StartTls) => {
                assert!((received.is_empty() || encryption == MySqlTlsMode::EagerTls) && !encrypted);
                // The rest of the input would be TLS.
                received.clear();
                encrypted = true;
                out.clear();
            }
            Ok(Step::OfferTls) => assert!(encryption == MySqlTlsMode::EagerTls && !encrypted),
            Ok(Step::Phase(phase)) => assert!(phase != Phase::Auth || encrypted),
            Ok(Step::NeedInput) => {
                let Some((&length, rest)) = data.split_first() else { return };
                let (portion, rest) = rest.split_at(rest.len().min(usize::from(length)));
                received.extend_from_slice(portion);
                data = rest;
            }
        }
    }
}
