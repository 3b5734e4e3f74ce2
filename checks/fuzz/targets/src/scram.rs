//! Both roles of SCRAM with a hostile peer, and the parser of verifiers. No peer without the password is accepted.
//!
//! Input: one byte that selects the hostile role, then the peer's two messages, separated by a NUL.

use ciphertoll_wire::scram::{Binding, ClientFirst, Mechanism, ServerFirst, Verifier};

const PASSWORD: &[u8] = b"correct horse";
const NONCE: &str = "abc";

pub fn run(data: &[u8]) {
    let Some((&role, data)) = data.split_first() else { return };
    let mut messages = data.splitn(2, |&byte| byte == 0);
    let (Some(first), last) = (messages.next(), messages.next().unwrap_or_default()) else { return };
    let binding = if role & 4 == 0 { Binding::None } else { Binding::ServerEndPoint(b"hash") };
    match role & 3 {
        0 => {
            // Many iterations would take most of the fuzzer's time.
            if first
                .windows(4)
                .any(|window| window.starts_with(b"i=") && window[2..].iter().all(u8::is_ascii_digit))
            {
                return;
            }
            let client = ClientFirst::with_nonce("toll", binding, NONCE);
            if let Ok(client) = client.answer(PASSWORD, first) {
                assert!(!client.message().windows(PASSWORD.len()).any(|window| window == PASSWORD));
                assert!(client.verify(last).is_err());
            }
        }
        1 => {
            let verifier = Verifier::with_salt(PASSWORD, 1, b"salt").expect("OpenSSL has SHA-256");
            let mechanism = if role & 8 == 0 { Mechanism::Sha256 } else { Mechanism::Sha256Plus };
            if let Ok(server) = ServerFirst::with_nonce(&verifier, mechanism, binding, first, NONCE) {
                assert!(server.judge(last).is_err());
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            if let Ok(verifier) = Verifier::parse(text) {
                let printed = verifier.text();
                assert_eq!(Verifier::parse(&printed).expect("it was printed").text(), printed);
            }
        }
    }
}
