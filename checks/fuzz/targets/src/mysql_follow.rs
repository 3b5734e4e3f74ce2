//! Messages of arbitrary clients and servers through the tracking of prepared statements, at once and in portions, with
//! the same result; and the texts of statements, byte by byte.
//!
//! Input: one byte of options, one byte for the portion size, then turns: a byte whose lowest bit selects the sender
//! and whose other bits are the length, followed by the data.

use ciphertoll_wire::mysql::relay::{
    ClientStatements, ConnectionStatements, MySqlRelay, RELAYED, SessionChanges, SessionFollower,
    SettingFlags, begins_with_quit, first_command_bytes,
};
use ciphertoll_wire::mysql::sql::{Effects, Escapes, RemainsReader, TextReader};
use ciphertoll_wire::mysql::{Capabilities, Error};

/// `SERVER_STATUS_NO_BACKSLASH_ESCAPES`.
const NO_BACKSLASH_ESCAPES: u16 = 0x0200;
/// Statements that are not prepared here cannot be prepared.
const UNKNOWN_COLUMN: &[u8] = b"\xff\x1e\x04#42S22Unknown column 'a'";

/// The client has ended its session, or needs a statement that is not prepared here.
#[derive(Debug, PartialEq, Eq)]
struct Stopped {
    needs: Option<u32>,
}

struct FollowedSession {
    relay: MySqlRelay,
    follow: SessionFollower,
    statements: ClientStatements,
    prepared: ConnectionStatements,
    up: Vec<u8>,
    down: Vec<u8>,
    /// What the server and the client have received.
    sent: Vec<u8>,
    told: Vec<u8>,
    /// Also stops if the client must wait.
    ended: Option<Result<Stopped, Error>>,
    preparations: Preparations,
}

/// How the server answers when a statement is prepared again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preparations {
    Awaited,
    Refused,
}

impl FollowedSession {
    fn new(agreed: Capabilities, flags: SettingFlags, preparations: Preparations) -> Self {
        Self {
            relay: MySqlRelay::new(agreed).watched(),
            follow: SessionFollower::new(flags),
            statements: ClientStatements::default(),
            prepared: ConnectionStatements::default(),
            up: Vec::new(),
            down: Vec::new(),
            sent: Vec::new(),
            told: Vec::new(),
            ended: None,
            preparations,
        }
    }

    fn hear(&mut self, is_up: bool, said: &[u8]) {
        if self.ended.is_none() {
            let heard = if is_up { self.hear_client(said) } else { self.hear_server(said) };
            self.ended = heard.transpose();
        }
    }

    fn hear_client(&mut self, said: &[u8]) -> Result<Option<Stopped>, Error> {
        self.up.extend_from_slice(said);
        loop {
            let Self { relay, follow, statements, prepared, up, .. } = self;
            let taken = follow.process_client(relay, up, statements, prepared)?;
            self.sent.extend(self.up.drain(..taken.pass_bytes));
            self.up.drain(..taken.drop_bytes);
            self.sent.extend_from_slice(&taken.insert);
            if let Some(own) = taken.needs
                && self.preparations == Preparations::Refused
            {
                self.follow.preparation_failed(own, UNKNOWN_COLUMN.to_vec());
                continue;
            }
            if taken.goodbye.is_some() || taken.needs.is_some() {
                return Ok(Some(Stopped { needs: taken.needs }));
            }
            if taken.insert.is_empty() {
                // The rest of a command that is not forwarded has not arrived.
                assert!(taken.drop_bytes == 0 || self.up.is_empty() || self.up.len() < 4);
                return Ok(None);
            }
        }
    }

    fn hear_server(&mut self, said: &[u8]) -> Result<Option<Stopped>, Error> {
        self.down.extend_from_slice(said);
        loop {
            let Self { relay, follow, statements, prepared, down, .. } = self;
            let answers = follow.process_server(relay, down, statements, prepared)?;
            self.told.extend(self.down.drain(..answers.bytes));
            self.down.drain(..answers.drop_bytes);
            assert_eq!(answers.drop_bytes == 0, answers.insert.is_empty());
            self.told.extend_from_slice(&answers.insert);
            if answers.drop_bytes == 0 {
                return Ok(None);
            }
        }
    }

    fn settle(&mut self) -> (SessionChanges, bool) {
        (self.follow.settle(), self.follow.is_open())
    }
}

pub fn run(data: &[u8]) {
    let &[choices, size, ref turns @ ..] = data else { return };
    let size = usize::from(size).max(1);
    let escapes = if choices & 1 == 0 { Escapes::Backslash } else { Escapes::None };
    let mut agreed = RELAYED.without(Capabilities::CACHE_METADATA).without(Capabilities::QUERY_ATTRIBUTES);
    if choices & 2 == 0 {
        agreed = agreed.without(Capabilities::DEPRECATE_EOF);
    }
    let mut reader = TextReader::new(escapes);
    turns.chunks(size).for_each(|piece| reader.read(piece));
    assert_eq!(reader.end(), Effects::of(turns, escapes));
    let mut remains = RemainsReader::default();
    turns.chunks(size).for_each(|piece| remains.read(piece));
    assert_eq!(remains.end(), RemainsReader::of(turns));
    let _ = (first_command_bytes(turns), begins_with_quit(turns));
    let flags = SettingFlags::of(if choices & 1 == 0 { 0 } else { NO_BACKSLASH_ESCAPES });
    let preparations = if choices & 4 == 0 { Preparations::Awaited } else { Preparations::Refused };
    let begin = || FollowedSession::new(agreed, flags, preparations);
    let (mut whole, mut portions) = (begin(), begin());
    let mut rest = turns;
    while let Some((&turn, said)) = rest.split_first() {
        let (said, later) = said.split_at(usize::from(turn >> 1).min(said.len()));
        rest = later;
        if said.is_empty() {
            continue;
        }
        let is_up = turn & 1 == 0;
        whole.hear(is_up, said);
        for portion in said.chunks(size) {
            portions.hear(is_up, portion);
        }
        if preparations == Preparations::Refused {
            // As if the client had moved to another connection.
            whole.prepared.clear();
            portions.prepared.clear();
        }
        assert_eq!(whole.ended, portions.ended);
        if whole.ended.is_some() {
            return;
        }
        assert_eq!((&whole.sent, &whole.told), (&portions.sent, &portions.told));
        assert_eq!(whole.statements, portions.statements);
    }
    assert_eq!(whole.settle(), portions.settle());
}
