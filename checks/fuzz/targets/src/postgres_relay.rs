//! Messages of arbitrary clients and servers through a relay, at once and in portions, with the same result. The relay
//! forwards only bytes that it received.
//!
//! Input: one byte for the portion size, then turns: a byte whose lowest bit selects the sender and whose other bits are
//! the length, followed by the data.

use ciphertoll_wire::postgres::message::MAX_LOGIN_PAYLOAD_BYTES;
use ciphertoll_wire::postgres::relay::{ConnectionState, PostgresRelay};
use ciphertoll_wire::postgres::{Error, Parameters};
use ciphertoll_wire::relay::Goodbye;

use crate::HeldBytes;

#[derive(Default)]
struct Line {
    relay: PostgresRelay,
    parameters: Parameters,
    up: HeldBytes,
    down: HeldBytes,
    ended: Option<Result<Goodbye, Error>>,
}

impl Line {
    fn hear(&mut self, is_up: bool, said: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let side = if is_up { &mut self.up } else { &mut self.down };
        side.held.extend_from_slice(said);
        let pass_bytes = if is_up {
            self.relay.process_client(&side.held, &self.parameters, None).map(|taken| {
                if taken.goodbye == Goodbye::Said {
                    self.ended = Some(Ok(Goodbye::Said));
                }
                taken.pass_bytes
            })
        } else {
            self.relay
                .process_server(&side.held, &mut self.parameters, None)
                .map(|answers| answers.pass_bytes)
        };
        match pass_bytes {
            Ok(bytes) => {
                side.passed += bytes;
                side.held.drain(..bytes);
                assert!(side.held.len() < MAX_LOGIN_PAYLOAD_BYTES || self.ended.is_some());
            }
            Err(error) => self.ended = Some(Err(error)),
        }
    }
}

pub fn run(data: &[u8]) {
    let Some((&size, mut rest)) = data.split_first() else { return };
    let (mut whole, mut portions) = (Line::default(), Line::default());
    whole.relay.observe_remains();
    portions.relay.observe_remains();
    while let Some((&turn, said)) = rest.split_first() {
        let (said, later) = said.split_at(usize::from(turn >> 1).min(said.len()));
        rest = later;
        if said.is_empty() {
            continue;
        }
        let is_up = turn & 1 == 0;
        whole.hear(is_up, said);
        for portion in said.chunks(usize::from(size).max(1)) {
            portions.hear(is_up, portion);
        }
        assert_eq!(whole.ended, portions.ended);
        if whole.ended.is_none() {
            assert_eq!((whole.up.passed, whole.down.passed), (portions.up.passed, portions.down.passed));
            assert_eq!(whole.relay.connection_state(), portions.relay.connection_state());
            assert_eq!(whole.relay.remains(), portions.relay.remains());
            assert_eq!(whole.parameters, portions.parameters);
            if let ConnectionState::Clean(_) = whole.relay.connection_state() {
                assert!(whole.relay.between_answers());
            }
        }
    }
}
