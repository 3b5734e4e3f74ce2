//! Messages of arbitrary clients and servers through a relay, at once and in portions, with the same result. The relay
//! forwards only bytes that it received.
//!
//! Input: one byte of options, one byte for the portion size, then turns: a byte whose lowest bit selects the sender
//! and whose other bits are the length, followed by the data.

use ciphertoll_wire::mysql::relay::{ConnectionState, MySqlRelay, RELAYED};
use ciphertoll_wire::mysql::sql::Remains;
use ciphertoll_wire::mysql::{Capabilities, Error};
use ciphertoll_wire::relay::Goodbye;

use crate::HeldBytes;

struct Line {
    relay: MySqlRelay,
    up: HeldBytes,
    down: HeldBytes,
    ended: Option<Result<Goodbye, Error>>,
}

impl Line {
    fn new(agreed: Capabilities) -> Self {
        Self {
            relay: MySqlRelay::new(agreed).observing_remains(Remains::StateOfRoutines),
            up: HeldBytes::default(),
            down: HeldBytes::default(),
            ended: None,
        }
    }

    fn hear(&mut self, is_up: bool, said: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let side = if is_up { &mut self.up } else { &mut self.down };
        side.held.extend_from_slice(said);
        let pass_bytes = if is_up {
            match self.relay.process_client(&side.held) {
                Ok(taken) => {
                    if taken.goodbye != Goodbye::None {
                        self.ended = Some(Ok(taken.goodbye));
                    }
                    Ok(taken.pass_bytes)
                }
                Err(error) => Err(error),
            }
        } else {
            self.relay.process_server(&side.held)
        };
        match pass_bytes {
            Ok(bytes) => {
                side.passed += bytes;
                side.held.drain(..bytes);
                // The relay holds less than it must examine, unless many responses are owed.
                assert!(side.held.len() < 64 || self.ended.is_some() || self.relay.is_full());
            }
            Err(error) => self.ended = Some(Err(error)),
        }
    }
}

pub fn run(data: &[u8]) {
    let &[choices, size, ref turns @ ..] = data else { return };
    let mut agreed = RELAYED;
    for (bit, capability) in
        [Capabilities::DEPRECATE_EOF, Capabilities::CACHE_METADATA, Capabilities::LOCAL_FILES]
            .into_iter()
            .enumerate()
    {
        if choices >> bit & 1 == 1 {
            agreed = agreed.without(capability);
        }
    }
    let (mut whole, mut portions) = (Line::new(agreed), Line::new(agreed));
    let mut rest = turns;
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
            assert_eq!(whole.relay.next_sequence(), portions.relay.next_sequence());
            // A report that has not arrived completely counts as a change.
            assert!(whole.relay.remains() <= portions.relay.remains());
            if let ConnectionState::Clean(_) = whole.relay.connection_state() {
                assert!(whole.relay.between_answers());
            }
        }
    }
}
