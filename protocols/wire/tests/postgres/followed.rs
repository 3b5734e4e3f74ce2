//! Sessions that move to another connection, with bytes split anywhere.

use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{
    encode_bind, encode_close_statement, encode_describe_statement, encode_execute, encode_flush,
    encode_parse, encode_query, encode_sync,
};
use ciphertoll_wire::postgres::relay::{
    ClientBytes, ClientStatements, ConnectionStatements, FirstMessage, Followed, PostgresRelay, ServerBytes,
    SessionFollower, first_command_bytes, first_message,
};
use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::sql::{Discard, Effects};
use ciphertoll_wire::postgres::{Param, Parameters};
use ciphertoll_wire::relay::Departure;
use proptest::prelude::*;

/// A client, its prepared statements, and its server connection.
#[derive(Default)]
pub(crate) struct Fixture {
    pub(crate) relay: PostgresRelay,
    pub(crate) follow: SessionFollower,
    pub(crate) parameters: Parameters,
    pub(crate) statements: ClientStatements,
    pub(crate) prepared: ConnectionStatements,
    /// Bytes of the client that wait for answers.
    held: Vec<u8>,
}

impl Fixture {
    pub(crate) fn process_client(&mut self, input: &[u8]) -> ClientBytes {
        let Self { relay, follow: follower, parameters, statements, prepared, .. } = self;
        let session = Followed { follower, statements, prepared };
        relay.process_client(input, parameters, Some(session)).expect("commands")
    }

    fn process_server(&mut self, input: &[u8]) -> ServerBytes {
        let Self { relay, follow: follower, parameters, statements, prepared, .. } = self;
        let session = Followed { follower, statements, prepared };
        relay.process_server(input, parameters, Some(session)).expect("answers")
    }

    /// What the server receives if these bytes arrive in such pieces.
    pub(crate) fn up(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        for piece in bytes.chunks(piece) {
            self.held.extend_from_slice(piece);
            sent.extend(self.continue_client());
        }
        sent
    }

    /// What the server receives of the bytes that were held back.
    pub(crate) fn continue_client(&mut self) -> Vec<u8> {
        let (mut held, mut sent) = (std::mem::take(&mut self.held), Vec::new());
        loop {
            let until = self.process_client(&held);
            sent.extend(held.drain(..until.pass_bytes));
            if until.insert.is_empty() {
                break;
            }
            sent.extend(until.insert);
        }
        self.held = held;
        sent
    }

    /// What the client receives of these bytes.
    pub(crate) fn down(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut held, mut told) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let answers = self.process_server(&held);
                told.extend(held.drain(..answers.pass_bytes));
                held.drain(..answers.skip_bytes);
                told.extend(answers.insert);
                if answers.skip_bytes == 0 {
                    break;
                }
            }
        }
        assert!(held.is_empty(), "{held:?}");
        told
    }

    /// The next transaction runs on another, reset connection.
    pub(crate) fn moves(&mut self) {
        self.follow.settle();
        self.relay = PostgresRelay::new();
        self.follow = SessionFollower::default();
        self.prepared.clear();
    }
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, name, sql, &[]).expect("a statement");
    bytes
}

pub(crate) fn execute(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_bind(&mut bytes, "", name, &[] as &[Param<'_>], ValueFormat::Text).expect("a portal");
    encode_execute(&mut bytes, "", 0).expect("a command");
    bytes
}

pub(crate) fn sync() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_sync(&mut bytes);
    bytes
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_query(&mut bytes, sql).expect("a query");
    bytes
}

pub(crate) fn describe(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_describe_statement(&mut bytes, name).expect("a name");
    bytes
}

pub(crate) fn close(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_close_statement(&mut bytes, name).expect("a name");
    bytes
}

pub(crate) fn flush() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_flush(&mut bytes);
    bytes
}

/// The same with the type of one parameter.
pub(crate) fn typed_parse(name: &str, sql: &str, oid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_parse(&mut bytes, name, sql, &[oid]).expect("a statement");
    bytes
}

pub(crate) fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(&mut bytes, kind, payload).expect("a message");
    bytes
}

/// A `ParameterDescription` with one parameter.
pub(crate) fn parameter(oid: u32) -> Vec<u8> {
    message(b't', &[&[0, 1][..], &oid.to_be_bytes()].concat())
}

/// A `RowDescription` with one column, of a table that may be another one.
pub(crate) fn column(name: &str, oid: u32, table: u32) -> Vec<u8> {
    let parts = [
        &[0, 1][..],
        name.as_bytes(),
        &[0],
        &table.to_be_bytes(),
        &[0, 1],
        &oid.to_be_bytes(),
        &[0, 4, 255, 255, 255, 255, 0, 0],
    ];
    message(b'T', &parts.concat())
}

/// Replies, by their type bytes. `T` describes no column, `t` no parameter.
pub(crate) fn answers(kinds: &str) -> Vec<u8> {
    let reply = |kind| match kind {
        b'Z' => message(kind, b"I"),
        b'S' => message(kind, b"a\0b\0"),
        b't' | b'T' => message(kind, &[0, 0]),
        b'E' => message(kind, b"SERROR\0VERROR\0C42601\0Msyntax\0\0"),
        b'C' => message(kind, b"SELECT 1\0"),
        _ => message(kind, b""),
    };
    kinds.bytes().flat_map(reply).collect()
}

/// A fixture where a client has prepared this statement, whose columns are `columns`, and is now on another connection.
pub(crate) fn moved(sql: &str, oid: u32, columns: &[u8]) -> Fixture {
    let mut fixture = Fixture::default();
    fixture.parameters.set(b"TimeZone", b"UTC").expect("a setting");
    let sent = fixture.up(&[parse("s", sql), sync()].concat(), 1000);
    assert_eq!(sent, [parse("s", sql), describe("s"), sync()].concat(), "the server describes it");
    let down = [&answers("1")[..], &parameter(oid), columns, &answers("Z")].concat();
    assert_eq!(fixture.down(&down, 1), answers("1Z"), "the client has not asked");
    fixture.moves();
    fixture
}

pub(crate) const INT: u32 = 23;
pub(crate) const TEXT: u32 = 25;

#[test]
fn a_statement_is_prepared_on_the_next_connection_unnoticed() {
    for piece in [1, 2, 5, 1000] {
        let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
        let use_it = [execute("s"), sync()].concat();
        let again = typed_parse("s", "INSERT INTO t VALUES ($1)", INT);
        assert_eq!(fixture.up(&use_it, piece), [&again[..], &use_it].concat(), "with the type that it had");
        assert_eq!(fixture.down(&answers("12CZ"), piece), answers("2CZ"));
        assert_eq!(fixture.up(&use_it, piece), use_it, "it is there");
        assert_eq!(fixture.down(&answers("2CZ"), piece), answers("2CZ"));
    }
}

#[test]
fn a_setting_that_is_not_reported_is_what_it_was_at_the_last_report() {
    let mut fixture = Fixture::default();
    fixture.parameters.set(b"TimeZone", b"GMT").expect("a setting");
    fixture.parameters.assume(b"TimeZone", b"Asia/Tokyo").expect("a setting");
    let set_back = query("SET TimeZone = 'GMT'");
    assert_eq!(fixture.up(&set_back, 1000), set_back);
    let told = message(b'S', b"TimeZone\0GMT\0");
    assert_eq!(fixture.down(&answers("CZ"), 3), [answers("C"), told.clone(), answers("Z")].concat());
    assert_eq!(fixture.parameters.get(b"TimeZone"), Some(&b"GMT"[..]));

    // The server reports it: nothing is added.
    fixture.parameters.assume(b"TimeZone", b"Asia/Tokyo").expect("a setting");
    fixture.up(&query("SELECT 1"), 1000);
    let reported = message(b'S', b"TimeZone\0Asia/Tokyo\0");
    let down = [answers("C"), reported, answers("Z")].concat();
    assert_eq!(fixture.down(&down, 3), down);
}

/// A `Sync` behind the data of a COPY that has failed is ignored or answered: when the client leaves, only the server knows.
#[test]
fn a_client_that_leaves_behind_a_failed_copy_gets_all_answers() {
    let mut fixture = Fixture::default();
    let data = [message(b'd', b"7"), message(b'd', b"1\tone\n")].concat();
    fixture.up(&[&query("COPY u FROM STDIN")[..], &data, &sync()].concat(), 1000);
    let copy_in = message(b'G', &[0, 0, 1, 0, 0]);
    let failed = message(b'E', b"SERROR\0C22P04\0WCOPY u, line 1\0RNextCopyFrom\0\0");
    let ready = answers("Z");
    let down = [&copy_in[..], &failed, &ready].concat();
    assert_eq!(fixture.down(&down, 1000), down);
    assert_eq!(fixture.relay.departure(), Departure::WhenClosed);
    assert_eq!(fixture.down(&ready, 1000), ready);
    assert_eq!(fixture.relay.departure(), Departure::Now);
}

#[test]
fn an_error_of_a_copy_may_have_any_length() {
    let mut fixture = Fixture::default();
    fixture.up(&[query("COPY u FROM STDIN"), message(b'd', b"1\tone\n")].concat(), 1000);
    let text = "x".repeat(17 << 20);
    let failed = ["SERROR\0CP0001\0M", &text, "\0WCOPY u, line 1\0Rexec_stmt_raise\0\0"].concat();
    let down = [message(b'G', &[0, 0, 1, 0, 0]), message(b'E', failed.as_bytes()), answers("Z")].concat();
    assert!(fixture.down(&down, down.len()) == down);
    assert_eq!(fixture.relay.departure(), Departure::Now);
}

#[test]
fn what_was_read_and_not_passed_on_is_owed() {
    let mut fixture = Fixture::default();
    fixture.up(&[parse("s", "SELECT $1"), sync()].concat(), 1000);
    let hidden = [parameter(INT), column("a", TEXT, 0)].concat();
    let down = [&answers("1")[..], &hidden, &answers("Z")].concat();
    let first = fixture.process_server(&down);
    assert_eq!((first.pass_bytes, first.skip_bytes), (5, hidden.len()));
    assert_eq!(fixture.relay.departure(), Departure::WhenAnswered);
    fixture.process_server(&down[5 + hidden.len()..]);
    assert_eq!(fixture.relay.departure(), Departure::Now);
}

#[test]
fn a_client_that_asks_for_the_description_gets_it_once() {
    let mut fixture = Fixture::default();
    let up = [parse("s", "SELECT $1"), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&up, 3), up);
    let down = [answers("1"), parameter(INT), column("a", TEXT, 0), answers("Z")].concat();
    assert_eq!(fixture.down(&down, 3), down);
    fixture.moves();
    let sent = fixture.up(&[execute("s"), sync()].concat(), 1000);
    assert!(sent.starts_with(&typed_parse("s", "SELECT $1", INT)), "its types are known");
}

#[test]
fn a_query_is_executed_before_its_columns_are_compared() {
    let same = [answers("1"), parameter(INT), column("a", TEXT, 77), answers("2DCZ")].concat();
    let mut fixture = moved("SELECT a FROM t WHERE b = $1", INT, &column("a", TEXT, 1));
    let use_it = [execute("s"), sync()].concat();
    let again = [typed_parse("s", "SELECT a FROM t WHERE b = $1", INT), describe("s")].concat();
    assert_eq!(fixture.up(&use_it, 1000), [&again[..], &use_it].concat());
    assert_eq!(fixture.up(&query("COMMIT"), 1000), b"", "nothing may follow yet");
    assert_eq!(fixture.down(&same, 4), answers("2DCZ"), "the table may be another one");
    assert_eq!(fixture.continue_client(), query("COMMIT"));

    // Another type: the client gets the server's own error, and no row.
    let other = [answers("1"), parameter(INT), column("a", INT, 1), answers("2DCZ")].concat();
    let mut fixture = moved("SELECT a FROM t WHERE b = $1", INT, &column("a", TEXT, 1));
    fixture.up(&use_it, 1000);
    assert_eq!(fixture.down(&other, 4), b"");
    assert!(fixture.relay.owes_own(&fixture.follow));
    let mut own = Vec::new();
    fixture.relay.write_own(&mut fixture.follow, &mut own).expect("commands");
    assert!(own.starts_with(&close("s")), "it is prepared anew next time");
    assert_eq!(fixture.up(&query("COMMIT"), 1000), b"", "its error comes first");
    let down = fixture.down(&answers("3EZ"), 4);
    assert!(down.windows(7).any(|bytes| bytes == b"C0A000\0") && down.ends_with(&answers("Z")));
    assert_eq!(fixture.continue_client(), query("COMMIT"));
}

#[test]
fn a_statement_that_changes_something_waits_for_its_columns() {
    let sql = "DELETE FROM t WHERE b = $1 RETURNING a";
    let use_it = [execute("s"), sync()].concat();
    let again = [typed_parse("s", sql, INT), describe("s"), flush()].concat();
    let mut fixture = moved(sql, INT, &column("a", TEXT, 1));
    assert_eq!(fixture.up(&use_it, 1000), again);
    assert!(fixture.follow.is_waiting());
    assert_eq!(fixture.down(&[answers("1"), parameter(INT), column("a", TEXT, 2)].concat(), 3), b"");
    assert_eq!(fixture.continue_client(), use_it);
    assert_eq!(fixture.down(&answers("2DCZ"), 3), answers("2DCZ"));

    let mut fixture = moved(sql, INT, &column("a", TEXT, 1));
    fixture.up(&use_it, 1000);
    fixture.down(&[answers("1"), parameter(INT), column("b", TEXT, 1)].concat(), 3);
    let sent = fixture.continue_client();
    assert!(sent.starts_with(&close("s")) && sent.ends_with(&use_it), "a message that fails is in front");
    let down = fixture.down(&answers("3EZ"), 4);
    assert!(down.windows(7).any(|bytes| bytes == b"C0A000\0") && down.ends_with(&answers("Z")));
}

#[test]
fn a_batch_behind_one_that_may_have_failed_waits() {
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    // Two pipelined batches; the first fails before the statement.
    let (first, second) =
        ([execute("other"), execute("s"), sync()].concat(), [execute("s"), sync()].concat());
    let again = typed_parse("s", "INSERT INTO t VALUES ($1)", INT);
    let sent = fixture.up(&[&first[..], &second].concat(), 1000);
    assert_eq!(sent, [execute("other"), again.clone(), execute("s"), sync()].concat());
    assert_eq!(fixture.down(&answers("EZ"), 1000), answers("EZ"));
    assert_eq!(fixture.continue_client(), [&again[..], &second].concat());
    assert_eq!(fixture.down(&answers("12CZ"), 1000), answers("2CZ"));
}

#[test]
fn a_failed_prepare_is_forgotten() {
    let mut fixture = Fixture::default();
    fixture.up(&[parse("s", "SELEC"), sync()].concat(), 1000);
    fixture.down(&answers("EZ"), 1000);
    assert_eq!(fixture.statements.bytes(), 0);
    fixture.moves();
    let use_it = [execute("s"), sync()].concat();
    assert_eq!(fixture.up(&use_it, 1000), use_it);
}

/// The server has executed a command with this tag.
pub(crate) fn tag(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

/// Commands that the server skips or refuses change nothing.
#[test]
fn what_the_server_has_not_confirmed_is_not_done() {
    for (up, down, remains) in [
        ([parse("", "SELEC"), close("s"), sync()].concat(), answers("EZ"), true),
        ([parse("", "SELEC"), close("s"), parse("s", "SELECT 2"), sync()].concat(), answers("EZ"), true),
        ([close("s"), sync()].concat(), answers("3Z"), false),
        (query("DEALLOCATE s"), answers("EZ"), true),
        (query("DEALLOCATE s"), [tag("DEALLOCATE"), answers("Z")].concat(), false),
        (query("SELECT 1; DEALLOCATE ALL"), answers("TDCEZ"), true),
        (query("DEALLOCATE x; DEALLOCATE s"), [tag("DEALLOCATE"), answers("EZ")].concat(), true),
        (query("DISCARD ALL"), answers("EZ"), true),
        (query("DISCARD ALL"), [tag("DISCARD ALL"), answers("Z")].concat(), false),
        ([parse("", "DEALLOCATE ALL"), sync()].concat(), answers("1Z"), true),
        (
            [parse("", "DEALLOCATE ALL"), execute(""), sync()].concat(),
            [answers("12"), tag("DEALLOCATE ALL"), answers("Z")].concat(),
            false,
        ),
        ([parse("", "SELEC"), query("DEALLOCATE ALL"), sync()].concat(), answers("EZ"), true),
    ] {
        for piece in [1, 1000] {
            let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
            fixture.up(&[execute("s"), sync()].concat(), 1000);
            fixture.down(&answers("12CZ"), 1000);
            fixture.up(&up, piece);
            fixture.down(&down, piece);
            fixture.moves();
            let again =
                fixture.up(&[execute("s"), sync()].concat(), piece) != [execute("s"), sync()].concat();
            assert_eq!(again, remains, "{}", String::from_utf8_lossy(&up));
        }
    }
}

#[test]
fn sql_finds_statements_of_the_protocol() {
    let stand_in = [typed_parse("s", "", INT), sync()].concat();
    for sql in ["BEGIN; DEALLOCATE s", "PREPARE s AS SELECT 1"] {
        let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
        assert_eq!(fixture.up(&query(sql), 3), stand_in, "{sql}");
        assert_eq!(fixture.down(&answers("1Z"), 1), b"");
        assert_eq!(fixture.continue_client(), query(sql));
    }
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    let again = [typed_parse("s", "INSERT INTO t VALUES ($1)", INT), sync()].concat();
    assert_eq!(fixture.up(&query("EXECUTE s(1)"), 1000), again);
    assert_eq!(fixture.down(&answers("1Z"), 1), b"");
    assert_eq!(fixture.continue_client(), query("EXECUTE s(1)"));
    // It cannot be prepared: the client gets the reason when its text fails.
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    fixture.up(&query("EXECUTE s(1)"), 1000);
    assert_eq!(fixture.down(&answers("EZ"), 1), b"");
    assert_eq!(fixture.continue_client(), query("EXECUTE s(1)"));
    let missing = message(b'E', b"SERROR\0C26000\0Mno\0\0");
    assert_eq!(fixture.down(&[missing, answers("Z")].concat(), 1), answers("EZ"));
    // Its columns have changed.
    let mut fixture = moved("SELECT a FROM t WHERE b = $1", INT, &column("a", TEXT, 1));
    let again = typed_parse("s", "SELECT a FROM t WHERE b = $1", INT);
    assert_eq!(fixture.up(&query("EXECUTE s(1)"), 1000), [&again[..], &describe("s"), &sync()].concat());
    let changed = [&answers("1")[..], &parameter(INT), &column("a", INT, 1), &answers("Z")].concat();
    assert_eq!(fixture.down(&changed, 1), b"");
    assert_eq!(fixture.continue_client(), [close("s"), sync()].concat());
    assert_eq!(fixture.down(&answers("3Z"), 1), b"");
    assert_eq!(fixture.continue_client(), query("EXECUTE s(1)"));
    let missing = message(b'E', b"SERROR\0C26000\0Mno\0\0");
    let down = fixture.down(&[missing, answers("Z")].concat(), 1);
    assert!(down.windows(7).any(|bytes| bytes == b"C0A000\0"));
    // Other texts need nothing.
    let mut fixture = moved("INSERT INTO t VALUES ($1)", INT, &answers("n"));
    assert_eq!(fixture.up(&query("SELECT 1"), 1000), query("SELECT 1"));
}

#[test]
fn too_long_statements_pin() {
    const EIGHT_MB: usize = 8 << 20;
    let mut fixture = Fixture::default();
    let long = format!("SELECT '{}'", "x".repeat(EIGHT_MB / 3));
    for number in 0..5 {
        fixture.up(&[parse(&format!("s{number}"), &long), sync()].concat(), 1 << 20);
        // The server describes the statements that are kept.
        fixture.down(&answers(if number < 2 { "1tnZ" } else { "1Z" }), 1000);
    }
    assert!(fixture.statements.bytes() <= EIGHT_MB, "{}", fixture.statements.bytes());
    // Such a statement is used on its connection.
    let use_it = [execute("s4"), sync()].concat();
    assert_eq!(fixture.up(&use_it, 1000), use_it);
    assert_eq!(
        fixture.follow.settle().unwrap_or_default().pin,
        Some("prepared statements that are too long")
    );
}

#[test]
fn a_command_ends_at_ready_for_query() {
    let query = query("SELECT 1");
    let batch = [execute("s"), sync()].concat();
    assert_eq!(first_command_bytes(&[query.clone(), batch.clone()].concat()), Some(query.len()));
    assert_eq!(first_command_bytes(&[batch.clone(), query].concat()), Some(batch.len()));
    assert_eq!(first_command_bytes(&batch[..batch.len() - 1]), None);
}

#[test]
fn a_client_without_a_connection_gets_one_for_what_the_server_answers() {
    let (query, end) = (query("SELECT 1"), b"Q\0\0\0\x0dSELECT 1\0");
    assert_eq!((first_message(&query), query.as_slice()), (FirstMessage::Command, &end[..]));
    for bytes in 0..query.len() {
        assert_eq!(first_message(&query[..bytes]), FirstMessage::Incomplete, "{bytes}");
    }
    // What does not fit in a buffer is passed on while it arrives.
    assert_eq!(first_message(b"Q\0\0\x3f\xffSELECT"), FirstMessage::Incomplete);
    assert_eq!(first_message(b"Q\0\0\x40\0SELECT"), FirstMessage::Command);
    for (message, bytes) in [
        (&b"H\0\0\0\x04"[..], 5),
        (b"c\0\0\0\x04", 5),
        (b"f\0\0\0\x06no", 7),
        (b"d\0\0\0\x06a\nQ", 7),
        (b"d\0\x01\0\0the rest comes later", 65_537),
    ] {
        assert_eq!(first_message(message), FirstMessage::Ignored(bytes));
        assert_eq!(first_message(&message[..4]), FirstMessage::Incomplete);
    }
    // Messages that are refused.
    for message in [&b"?\0\0\0\x09"[..], b"Q\0\0\0\x03", b"H\0\0\0\x06"] {
        assert_eq!(first_message(message), FirstMessage::Command);
    }
}

/// The limit of messages without an answer.
const MAX_OWED: usize = 1 << 12;

#[test]
fn a_long_pipeline_waits_for_replies() {
    let (mut fixture, one) = (Fixture::default(), parse("", "SELECT 1"));
    let mut rest = [one.repeat(3 * MAX_OWED), sync()].concat();
    let mut passes = |fixture: &mut Fixture| {
        let until = fixture.process_client(&rest);
        rest.drain(..until.pass_bytes).count() / one.len()
    };
    assert_eq!((passes(&mut fixture), fixture.relay.is_full()), (MAX_OWED, true));
    assert_eq!((passes(&mut fixture), fixture.relay.is_full()), (0, true));
    fixture.down(&answers(&"1".repeat(100)), 7);
    assert!(!fixture.relay.is_full());
    assert_eq!((passes(&mut fixture), fixture.relay.is_full()), (100, true));
    fixture.down(&answers(&"1".repeat(MAX_OWED)), 4096);
    assert_eq!(passes(&mut fixture), MAX_OWED);
    // After an error the server skips commands up to the `Sync`, so no reply to them is pending.
    fixture.down(&answers("E"), 4096);
    assert_eq!(passes(&mut fixture), MAX_OWED - 100);
    assert!(!fixture.relay.is_full());
    fixture.down(&answers("Z"), 4096);
    let goes_on = [parse("s", "SELECT 1"), describe("s"), sync()].concat();
    assert_eq!(fixture.up(&goes_on, 1000), goes_on, "it goes on");
}

#[test]
fn a_discard_leaves_that_custom_settings_exist() {
    let mut fixture = Fixture::default();
    let custom =
        [query("RESET App.x"), query("SET work_mem = '1MB'"), query("SET LOCAL app.y = '1'")].concat();
    fixture.up(&[custom, query("DISCARD ALL")].concat(), 1000);
    fixture.down(&[answers("CZCZCZ"), message(b'C', b"DISCARD ALL\0"), answers("Z")].concat(), 1000);
    let effects = fixture.follow.settle().unwrap();
    assert_eq!((effects.discard, &effects.settings[..]), (Discard::All, &[b"app.x".to_vec()][..]));
    assert_eq!(effects.local_custom, [b"app.y".to_vec()]);
    assert!(effects.may_define_custom());
}

#[test]
fn a_failed_discard_undoes_nothing() {
    let confirmed = || [message(b'C', b"DISCARD ALL\0"), answers("Z")].concat();
    let settled = |down: &[u8], later: &str| {
        let mut effects = Vec::new();
        for piece in [1, 5, 1000] {
            let mut fixture = Fixture::default();
            fixture.up(&[query("LISTEN x"), query("DISCARD ALL"), query(later)].concat(), piece);
            assert_eq!(fixture.down(down, piece), down);
            effects.push(fixture.follow.settle().unwrap_or_default());
        }
        assert!(effects.windows(2).all(|pair| pair[0] == pair[1]), "{effects:?}");
        let Effects { pin, discard, .. } = *effects.remove(0);
        (pin, discard)
    };
    let succeeded = [answers("CZ"), confirmed(), answers("CZ")].concat();
    assert_eq!(settled(&succeeded, "SELECT 1"), (None, Discard::All));
    assert_eq!(settled(&succeeded, "LISTEN y"), (Some("LISTEN"), Discard::All));
    // In a transaction block it fails.
    assert_eq!(settled(&answers("CZEZCZ"), "SELECT 1"), (Some("LISTEN"), Discard::None));
    // Of two, the last one fails.
    let earlier_succeeded = [answers("CZ"), confirmed(), answers("EZ")].concat();
    assert_eq!(settled(&earlier_succeeded, "DISCARD ALL"), (None, Discard::All));
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
            let mut fixture = Fixture::default();
            let sent = fixture.up(&up, piece);
            let told = fixture.down(&down, piece);
            let effects = fixture.follow.settle();
            (sent, told, effects, fixture.statements)
        };
        prop_assert_eq!(run(piece), run(usize::MAX));
    }
}
