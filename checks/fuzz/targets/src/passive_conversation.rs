//! Arbitrary bytes of both sides through the observer of database protocols, at once and in portions, with the same events.
//! Names of users and databases are in these events only if they are read, and change no other one.
//!
//! Input: one byte for the protocol, one for the portion size, then turns: a byte whose lowest bit is the side and whose other
//! bits are the length, and that many bytes.

use ciphertoll_wire::passive::{
    Account, AccountNames, ConnectionSide, Content, Conversation, DatabaseProtocol, Event,
};
use ciphertoll_wire::printable::is_printable;

/// Of the head of a TLS record, by which it is told from a message. Clients send it at once.
const HEAD_BYTES: usize = 3;

pub fn run(data: &[u8]) {
    let [protocol, size, turns @ ..] = data else { return };
    let protocol = DatabaseProtocol::ALL[usize::from(*protocol) % DatabaseProtocol::ALL.len()];
    let portion = usize::from(*size).max(HEAD_BYTES);
    let mut whole = events(protocol, turns, usize::MAX, AccountNames::Read);
    assert_eq!(whole, events(protocol, turns, portion, AccountNames::Read));
    whole.retain(|event| !is_account(event));
    assert_eq!(whole, events(protocol, turns, portion, AccountNames::Ignored));
}

/// Checks its names.
fn is_account(event: &Event) -> bool {
    let Event::Account(account) = event else { return false };
    for name in [Some(account.user()), account.database()].into_iter().flatten() {
        assert!(name.chars().count() <= Account::MAX_CHARACTERS + 1, "{name:?}");
        assert!(name.chars().all(is_printable), "{name:?}");
    }
    true
}

fn events(protocol: DatabaseProtocol, mut turns: &[u8], portion: usize, names: AccountNames) -> Vec<Event> {
    let mut conversation = Conversation::new(Some(protocol), names);
    let mut events = Vec::new();
    while let [head, rest @ ..] = turns {
        let side = if head & 1 == 0 { ConnectionSide::Client } else { ConnectionSide::Server };
        let (bytes, rest) = rest.split_at(usize::from(head >> 1).min(rest.len()));
        turns = rest;
        for bytes in bytes.chunks(portion) {
            conversation.read(side, Content::Bytes(bytes), |event| events.push(event));
        }
    }
    events
}
