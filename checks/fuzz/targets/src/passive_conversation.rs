//! Arbitrary bytes of both sides through the observer of database protocols, at once and in portions, with the same events.
//!
//! Input: one byte for the protocol, one for the portion size, then turns: a byte whose lowest bit is the side and whose other
//! bits are the length, and that many bytes.

use ciphertoll_wire::passive::{ConnectionSide, Content, Conversation, DatabaseProtocol, Event};

pub fn run(data: &[u8]) {
    let [protocol, size, turns @ ..] = data else { return };
    let protocol = DatabaseProtocol::ALL[usize::from(*protocol) % DatabaseProtocol::ALL.len()];
    assert_eq!(events(protocol, turns, usize::MAX), events(protocol, turns, usize::from(*size).max(1)));
}

fn events(protocol: DatabaseProtocol, mut turns: &[u8], portion: usize) -> Vec<Event> {
    let mut conversation = Conversation::new(Some(protocol));
    let mut events = Vec::new();
    while let [head, rest @ ..] = turns {
        let side = if head & 1 == 0 { ConnectionSide::Client } else { ConnectionSide::Server };
        let (bytes, rest) = rest.split_at(usize::from(head >> 1).min(rest.len()));
        turns = rest;
        for bytes in bytes.chunks(portion.min(bytes.len()).max(1)) {
            conversation.read(side, Content::Bytes(bytes), |event| events.push(event));
        }
    }
    events
}
