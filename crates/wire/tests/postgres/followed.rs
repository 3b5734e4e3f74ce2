//! Sessions that move to another connection, with bytes split anywhere.

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{
    encode_bind, encode_close_statement, encode_execute, encode_parse, encode_query, encode_sync,
};
use ciphertoll_wire::postgres::relay::{
    ClientBytes, ClientStatements, ConnectionStatements, Followed, PostgresRelay, ServerBytes,
    SessionFollower, first_command_bytes,
};
use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::sql::{Discard, Effects};
use ciphertoll_wire::postgres::{Param, Parameters};
use proptest::prelude::*;

/// A client, its prepared statements, and its server connection.
#[derive(Default)]
struct Site {
    relay: PostgresRelay,
    follow: SessionFollower,
    parameters: Parameters,
    statements: ClientStatements,
    prepared: ConnectionStatements,
}

impl Site {
    fn process_client(&mut self, input: &[u8]) -> ClientBytes {
        let Self { relay, follow: follower, parameters, statements, prepared } = self;
        let session = Followed { follower, statements, prepared };
        relay.process_client(input, parameters, Some(session)).expect("commands")
    }

    fn process_server(&mut self, input: &[u8]) -> ServerBytes {
        let Self { relay, follow: follower, parameters, statements, prepared } = self;
        let session = Followed { follower, statements, prepared };
        relay.process_server(input, parameters, Some(session)).expect("answers")
    }

    /// What the server receives if these bytes arrive in such pieces.
    fn up(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut held, mut sent) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let until = self.process_client(&held);
                sent.extend(held.drain(..until.pass_bytes));
                if until.insert.is_empty() {
                    break;
                }
                sent.extend(until.insert);
            }
        }
        assert!(held.is_empty(), "{held:?}");
        sent
    }

    /// What the client receives of these bytes.
    fn down(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut held, mut told) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let answers = self.process_server(&held);
                told.extend(held.drain(..answers.pass_bytes));
                if answers.skip_bytes == 0 {
                    break;
                }
                held.drain(..answers.skip_bytes);
            }
        }
        assert!(held.is_empty(), "{held:?}");
        told
    }

    /// The next transaction runs on another, reset connection.
    fn moves(&mut self) {
        self.follow.settle();
        self.relay = PostgresRelay::new();
        self.follow = SessionFollower::default();
        self.prepared.clear();
    }
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, name, sql, &[]).expect("a statement");
    bytes
}

fn execute(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_bind(&mut bytes, "", name, &[] as &[Param<'_>], ValueFormat::Text).expect("a portal");
    encode_execute(&mut bytes, "", 0).expect("a command");
    bytes
}

fn sync() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_sync(&mut bytes);
    bytes
}

/// Replies, by their type bytes.
fn answers(kinds: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for kind in kinds.bytes() {
        let payload: &[u8] = match kind {
            b'Z' => b"I",
            b'S' => b"a\0b\0",
            _ => b"",
        };
        write_message(&mut bytes, kind, payload).expect("a message");
    }
    bytes
}

#[test]
fn a_statement_is_prepared_on_the_next_connection_unnoticed() {
    let both = [parse("s", "SELECT 1"), sync()].concat();
    for piece in [1, 2, 5, 1000] {
        let mut site = Site::default();
        assert_eq!(site.up(&both, piece), both);
        assert_eq!(site.down(&answers("1Z"), piece), answers("1Z"));
        let use_it = [execute("s"), sync()].concat();
        assert_eq!(site.up(&use_it, piece), use_it, "it is there");
        assert_eq!(site.down(&answers("2CZ"), piece), answers("2CZ"));
        site.moves();
        assert_eq!(site.up(&use_it, piece), [parse("s", "SELECT 1"), use_it.clone()].concat());
        assert_eq!(site.down(&answers("12CZ"), piece), answers("2CZ"));
        assert_eq!(site.up(&use_it, piece), use_it);
    }
}

#[test]
fn a_skipped_parse_is_repeated() {
    let mut site = Site::default();
    site.up(&[parse("s", "SELECT 1"), sync()].concat(), 1000);
    site.down(&answers("1Z"), 1000);
    site.moves();
    // Two pipelined batches; the first fails before the statement.
    let batch = [execute("other"), execute("s"), sync()].concat();
    let mut close = Vec::new();
    encode_close_statement(&mut close, "s").expect("a name");
    let sent = site.up(&[batch, [execute("s"), sync()].concat()].concat(), 1000);
    let expected = [
        execute("other"),
        parse("s", "SELECT 1"),
        execute("s"),
        sync(),
        close,
        parse("s", "SELECT 1"),
        execute("s"),
        sync(),
    ];
    assert_eq!(sent, expected.concat());
    assert_eq!(site.down(&answers("EZ312CZ"), 1000), answers("EZ2CZ"));
}

#[test]
fn a_failed_prepare_is_forgotten() {
    let mut site = Site::default();
    site.up(&[parse("s", "SELEC"), sync()].concat(), 1000);
    assert!(site.statements.bytes() > 0);
    site.down(&answers("EZ"), 1000);
    assert_eq!(site.statements.bytes(), 0);
    site.moves();
    let use_it = [execute("s"), sync()].concat();
    assert_eq!(site.up(&use_it, 1000), use_it);
}

#[test]
fn too_long_statements_pin() {
    const EIGHT_MB: usize = 8 << 20;
    let mut site = Site::default();
    let long = format!("SELECT '{}'", "x".repeat(EIGHT_MB / 3));
    for number in 0..5 {
        site.up(&[parse(&format!("s{number}"), &long), sync()].concat(), 1 << 20);
        site.down(&answers("1Z"), 1000);
    }
    assert!(site.statements.bytes() <= EIGHT_MB, "{}", site.statements.bytes());
    // Such a statement is used on its connection.
    let use_it = [execute("s4"), sync()].concat();
    assert_eq!(site.up(&use_it, 1000), use_it);
    assert_eq!(site.follow.settle().pin, Some("prepared statements that are too long"));
}

#[test]
fn a_command_ends_at_ready_for_query() {
    let mut query = Vec::new();
    encode_query(&mut query, "SELECT 1").expect("a query");
    let batch = [execute("s"), sync()].concat();
    assert_eq!(first_command_bytes(&[query.clone(), batch.clone()].concat()), Some(query.len()));
    assert_eq!(first_command_bytes(&[batch.clone(), query].concat()), Some(batch.len()));
    assert_eq!(first_command_bytes(&batch[..batch.len() - 1]), None);
}

/// The limit of pending replies.
const MAX_OWED: usize = 1 << 12;

#[test]
fn a_long_pipeline_waits_for_replies() {
    let (mut site, one) = (Site::default(), parse("", "SELECT 1"));
    let mut rest = [one.repeat(3 * MAX_OWED), sync()].concat();
    let mut passes = |site: &mut Site| {
        let until = site.process_client(&rest);
        rest.drain(..until.pass_bytes).count() / one.len()
    };
    assert_eq!((passes(&mut site), site.follow.is_full()), (MAX_OWED, true));
    assert_eq!((passes(&mut site), site.follow.is_full()), (0, true));
    site.down(&answers(&"1".repeat(100)), 7);
    assert!(!site.follow.is_full());
    assert_eq!((passes(&mut site), site.follow.is_full()), (100, true));
    site.down(&answers(&"1".repeat(MAX_OWED)), 4096);
    assert_eq!(passes(&mut site), MAX_OWED);
    // After an error the server skips commands up to the `Sync`, so no reply to them is pending.
    site.down(&answers("E"), 4096);
    assert_eq!(passes(&mut site), MAX_OWED - 100);
    assert!(!site.follow.is_full());
    site.down(&answers("Z"), 4096);
    assert_eq!(site.up(&parse("s", "SELECT 1"), 1000), parse("s", "SELECT 1"), "it goes on");
    // Consecutive `ReadyForQuery`s are not limited.
    let mut query = Vec::new();
    encode_query(&mut query, "SELECT 1").expect("a query");
    site.up(&query.repeat(2 * MAX_OWED), 1 << 20);
    assert!(!site.follow.is_full());
}

#[test]
fn texts_follow_the_server_setting() {
    let query = |sql: &str| {
        let mut bytes = Vec::new();
        encode_query(&mut bytes, sql).expect("a query");
        bytes
    };
    let set = |site: &mut Site, value: &[u8]| {
        site.parameters.set(b"standard_conforming_strings", value).expect("a setting");
    };
    let (behind, within) = (r"SELECT '\'; LISTEN y", r"SELECT '\'; LISTEN y; --'");
    let pin = |commands: &[Vec<u8>], value: &[u8]| {
        let mut site = Site::default();
        set(&mut site, value);
        site.up(&commands.concat(), 1000);
        site.follow.settle().pin
    };
    assert_eq!(pin(&[query(behind)], b"on"), Some("LISTEN"));
    assert_eq!(pin(&[query(within)], b"off"), None);
    assert_eq!(pin(&[query("SELECT 1"), query(within)], b"off"), None);
    // The setting is unknown between a command that may change it and the server's report.
    let not_known = Some("a literal that ends elsewhere if standard_conforming_strings has changed");
    assert_eq!(pin(&[query("DISCARD ALL"), query(within)], b"off"), not_known);
    let mut site = Site::default();
    set(&mut site, b"off");
    site.up(&query("DISCARD ALL"), 1000);
    site.down(&answers("CZ"), 1000);
    set(&mut site, b"on");
    site.up(&query(behind), 1000);
    assert_eq!(site.follow.settle().pin, Some("LISTEN"));
    // A portal changes it when it is executed, which the server reports before the `ReadyForQuery`.
    let mut site = Site::default();
    set(&mut site, b"on");
    site.up(&[parse("s", "SET standard_conforming_strings = off"), sync()].concat(), 1000);
    site.down(&answers("1Z"), 1000);
    site.up(&[execute("s"), parse("", within), execute("")].concat(), 1000);
    assert!(site.follow.settle().pin.is_some());
}

#[test]
fn a_failed_discard_undoes_nothing() {
    let query = |sql: &str| {
        let mut bytes = Vec::new();
        encode_query(&mut bytes, sql).expect("a query");
        bytes
    };
    let confirmed = || {
        let mut bytes = Vec::new();
        write_message(&mut bytes, b'C', b"DISCARD ALL\0").expect("a message");
        [bytes, answers("Z")].concat()
    };
    let settled = |down: &[u8], later: &str| {
        let mut effects = Vec::new();
        for piece in [1, 5, 1000] {
            let mut site = Site::default();
            site.up(&[query("LISTEN x"), query("DISCARD ALL"), query(later)].concat(), piece);
            assert_eq!(site.down(down, piece), down);
            effects.push(site.follow.settle());
        }
        assert!(effects.windows(2).all(|pair| pair[0] == pair[1]), "{effects:?}");
        let Effects { pin, discard, .. } = effects.remove(0);
        (pin, discard)
    };
    let succeeded = [answers("CZ"), confirmed(), answers("CZ")].concat();
    assert_eq!(settled(&succeeded, "SELECT 1"), (None, Discard::All));
    assert_eq!(settled(&succeeded, "LISTEN y"), (Some("LISTEN"), Discard::All));
    // In a transaction block it fails.
    assert_eq!(settled(&answers("CZEZCZ"), "SELECT 1"), (Some("LISTEN"), Discard::None));
    // Of two, the last one fails.
    let earlier_succeeded = [answers("CZ"), confirmed(), answers("EZ")].concat();
    assert_eq!(settled(&earlier_succeeded, "DISCARD ALL").0, Some("LISTEN"));
    // Another command's tag is not taken for it.
    assert_eq!(settled(&answers("CZCZCZ"), "SELECT 1"), (Some("LISTEN"), Discard::None));
}

fn command() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["", "a", "b"]);
    let query =
        prop::sample::select(vec!["SELECT 1", "SET a = 1", "DEALLOCATE a", "DISCARD ALL", "LISTEN x"]);
    prop_oneof![
        (name.clone(), query.clone()).prop_map(|(name, sql)| parse(name, sql)),
        name.clone().prop_map(execute),
        name.prop_map(|name| {
            let mut bytes = Vec::new();
            encode_close_statement(&mut bytes, name).expect("a name");
            bytes
        }),
        query.prop_map(|sql| {
            let mut bytes = Vec::new();
            encode_query(&mut bytes, sql).expect("a query");
            bytes
        }),
        Just(sync()),
    ]
}

proptest! {
    #[test]
    fn bytes_may_be_cut_anywhere(
        commands in prop::collection::vec(command(), 0..12),
        kinds in "[123CDEZSNT]{0,20}",
        piece in 1_usize..40,
    ) {
        let (up, down) = (commands.concat(), answers(&kinds));
        let run = |piece: usize| {
            let mut site = Site::default();
            let sent = site.up(&up, piece);
            let told = site.down(&down, piece);
            let effects: Effects = site.follow.settle();
            (sent, told, effects, site.statements)
        };
        prop_assert_eq!(run(piece), run(usize::MAX));
    }
}
