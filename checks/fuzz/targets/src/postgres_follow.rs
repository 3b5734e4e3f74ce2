//! Messages of arbitrary clients and servers through a relay that tracks prepared statements, at once and in portions, with
//! the same result; no message is lost, and only inserted messages are dropped.
//!
//! Input: one byte for the portion size, then turns: a byte whose lowest bit selects the sender and whose other bits are
//! the length, followed by the data.

use ciphertoll_wire::postgres::relay::{
    ClientStatements, ConnectionStatements, Followed, PostgresRelay, SessionFollower, first_command_bytes,
};
use ciphertoll_wire::postgres::sql::Effects;
use ciphertoll_wire::postgres::{Error, Parameters};

#[derive(Default)]
struct FollowedSession {
    relay: PostgresRelay,
    follow: SessionFollower,
    parameters: Parameters,
    statements: ClientStatements,
    prepared: ConnectionStatements,
    up: Vec<u8>,
    down: Vec<u8>,
    /// What the server and the client have received.
    sent: Vec<u8>,
    told: Vec<u8>,
    ended: Option<Error>,
}

impl FollowedSession {
    fn hear(&mut self, is_up: bool, said: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let heard = if is_up { self.hear_client(said) } else { self.hear_server(said) };
        self.ended = heard.err();
    }

    fn hear_client(&mut self, said: &[u8]) -> Result<(), Error> {
        self.up.extend_from_slice(said);
        loop {
            let Self { relay, follow: follower, statements, prepared, .. } = self;
            let session = Followed { follower, statements, prepared };
            let until = relay.process_client(&self.up, &self.parameters, Some(session))?;
            self.sent.extend(self.up.drain(..until.pass_bytes));
            if until.insert.is_empty() {
                return Ok(());
            }
            self.sent.extend(until.insert);
        }
    }

    fn hear_server(&mut self, said: &[u8]) -> Result<(), Error> {
        self.down.extend_from_slice(said);
        loop {
            let Self { relay, follow: follower, statements, prepared, .. } = self;
            let session = Followed { follower, statements, prepared };
            let answers = relay.process_server(&self.down, &mut self.parameters, Some(session))?;
            self.told.extend(self.down.drain(..answers.pass_bytes));
            if answers.skip_bytes == 0 {
                return Ok(());
            }
            self.down.drain(..answers.skip_bytes.min(self.down.len()));
        }
    }

    fn moves(&mut self) -> Option<Box<Effects>> {
        let effects = self.follow.settle();
        self.relay = PostgresRelay::new();
        self.follow = SessionFollower::default();
        self.prepared.clear();
        effects
    }
}

pub fn run(data: &[u8]) {
    let Some((&size, mut rest)) = data.split_first() else { return };
    let (mut whole, mut portions) = (FollowedSession::default(), FollowedSession::default());
    let _ = first_command_bytes(rest);
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
        assert_eq!(whole.ended.is_some(), portions.ended.is_some());
        if whole.ended.is_some() {
            return;
        }
        assert_eq!((&whole.sent, &whole.told), (&portions.sent, &portions.told));
        assert_eq!(whole.statements, portions.statements);
    }
    assert_eq!(whole.moves(), portions.moves());
}
