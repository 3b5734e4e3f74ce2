use crate::mysql::{
    codec::{
        capabilities::Capabilities,
        command::{
            Param, encode_execute, encode_ping, encode_prepare, encode_query, encode_quit,
            encode_reset_connection, encode_statement_close, encode_statement_reset,
        },
        err::ErrPacket,
        ok::OkPacket,
        prepare_ok::PrepareOk,
    },
    relay::traffic::{ConnectionState, Transaction},
    server::{write_err, write_ok, write_payload},
};

mod bulk;
mod moves;

use super::*;
use crate::mysql::sql::effects::DefaultDatabase;
use crate::mysql::sql::lexer::Escapes;

/// A client and its server connection.
struct Fixture {
    relay: MySqlRelay,
    follow: SessionFollower,
    statements: ClientStatements,
    prepared: ConnectionStatements,
}

impl Fixture {
    fn new() -> Self {
        Self {
            relay: MySqlRelay::new(Capabilities::DEPRECATE_EOF).watched(),
            follow: SessionFollower::default(),
            statements: ClientStatements::default(),
            prepared: ConnectionStatements::default(),
        }
    }

    /// What the server receives if the client sends `bytes` in portions of `size`, and the statement that
    /// must be prepared first.
    fn says(&mut self, bytes: &[u8], size: usize) -> (Vec<u8>, Option<u32>) {
        let (mut held, mut sent) = (Vec::new(), Vec::new());
        for portion in bytes.chunks(size) {
            held.extend_from_slice(portion);
            loop {
                let Self { relay, follow, statements, prepared } = self;
                let client_bytes = follow.process_client(relay, &held, statements, prepared).unwrap();
                sent.extend(held.drain(..client_bytes.pass_bytes));
                held.drain(..client_bytes.drop_bytes);
                sent.extend_from_slice(&client_bytes.insert);
                if client_bytes.needs.is_some() {
                    return (sent, client_bytes.needs);
                }
                if client_bytes.insert.is_empty() {
                    break;
                }
            }
        }
        assert!(held.is_empty(), "{held:?}");
        (sent, None)
    }

    /// What the client receives if the server sends `bytes`.
    fn hears(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut held, mut told) = (bytes.to_vec(), Vec::new());
        loop {
            let Self { relay, follow, statements, prepared } = self;
            let server_bytes = follow.process_server(relay, &held, statements, prepared).unwrap();
            told.extend(held.drain(..server_bytes.bytes));
            held.drain(..server_bytes.drop_bytes);
            told.extend_from_slice(&server_bytes.insert);
            if server_bytes.drop_bytes == 0 {
                assert!(held.is_empty(), "{held:?}");
                return told;
            }
        }
    }

    fn moves(&mut self) {
        self.relay = MySqlRelay::new(Capabilities::DEPRECATE_EOF).watched();
        self.follow = SessionFollower::default();
        self.prepared.clear();
    }

    fn is_clean(&self) -> bool {
        matches!(self.relay.connection_state(), ConnectionState::Clean(remains) if remains.transaction == Transaction::None)
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn query(text: &str) -> Vec<u8> {
    written(|out| encode_query(out, text).unwrap())
}

fn ok(packet: &OkPacket) -> Vec<u8> {
    written(|out| write_ok(out, 1, packet).unwrap())
}

fn refusal() -> Vec<u8> {
    let err = ErrPacket { code: 1064, sql_state: *b"42000", message: b"no" };
    written(|out| write_err(out, 1, &err).unwrap())
}

fn complete_prepare(id: u32, params: u16) -> Vec<u8> {
    complete_prepare_with(PrepareOk { statement_id: id, params, columns: 0, warnings: 0 })
}

/// The server's response to a prepare, with the definitions of the parameters.
fn complete_prepare_with(prepare_ok: PrepareOk) -> Vec<u8> {
    let params = prepare_ok.params;
    let mut payload = Vec::new();
    prepare_ok.encode(&mut payload);
    let mut bytes = written(|out| {
        write_payload(out, 1, &payload).unwrap();
    });
    for number in 0..params {
        write_payload(&mut bytes, 2 + number as u8, b"\x03def a parameter").unwrap();
    }
    bytes
}

/// The client's identifier of a newly prepared statement, which the server calls `id`.
fn prepare(fixture: &mut Fixture, text: &str, id: u32, params: u16) -> u32 {
    let command = written(|out| encode_prepare(out, text).unwrap());
    assert_eq!(fixture.says(&command, 3), (command, None));
    let told = fixture.hears(&complete_prepare(id, params));
    PrepareOk::parse(&told[4..16]).unwrap().statement_id
}

fn execute(id: u32, params: &[Param<'_>]) -> Vec<u8> {
    written(|out| encode_execute(out, id, params).unwrap())
}

const OK: OkPacket = OkPacket { affected_rows: 0, last_insert_id: 0, status: 2, warnings: 0 };

#[test]
fn statement_identifiers_are_translated_per_connection() {
    for size in [1, 2, 5, 1000] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT 1", 77, 0);
        assert_eq!(fixture.says(&execute(own, &[]), size), (execute(77, &[]), None));
        assert_eq!(fixture.hears(&ok(&OK)), ok(&OK));
        fixture.moves();
        // Preceding commands are forwarded.
        let bytes = [written(encode_ping), execute(own, &[])].concat();
        assert_eq!(fixture.says(&bytes, 1000), (written(encode_ping), Some(own)));
        fixture.hears(&ok(&OK));
        assert_eq!(fixture.statements.text(own), Some(&b"SELECT 1"[..]));
        fixture.prepared.insert(own, 5);
        assert_eq!(fixture.says(&execute(own, &[]), size), (execute(5, &[]), None));
        fixture.hears(&ok(&OK));
        // A reset of a statement that is not prepared here becomes a ping. A closed statement is gone.
        fixture.moves();
        let reset = written(|out| encode_statement_reset(out, own));
        assert_eq!(fixture.says(&reset, size), (written(encode_ping), None));
        fixture.hears(&ok(&OK));
        let close = |id| written(|out| encode_statement_close(out, id));
        assert_eq!(fixture.says(&close(own), size), (close(0), None));
        assert_eq!(fixture.says(&execute(own, &[]), size), (execute(0, &[]), None));
        assert_eq!(fixture.statements.bytes(), 0);
    }
}

#[test]
fn parameter_types_are_added_on_a_new_connection() {
    let params = [Param::I64(7), Param::Bytes(b"x")];
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SELECT ?, ?", 77, 2);
    assert_eq!(fixture.says(&execute(own, &params), 1).0, execute(77, &params));
    fixture.hears(&ok(&OK));
    // The same without types: the flag is 0 and two bytes per parameter are missing.
    let shorter = |id: u32| {
        let mut bytes = execute(id, &params);
        bytes[15] = 0;
        bytes.drain(16..20);
        bytes[0] -= 4;
        bytes
    };
    assert_eq!(fixture.says(&shorter(own), 1).0, shorter(77));
    fixture.hears(&ok(&OK));
    for size in [1, 4, 1000] {
        fixture.moves();
        fixture.prepared.insert(own, 5);
        assert_eq!(fixture.says(&shorter(own), size).0, execute(5, &params));
        fixture.hears(&ok(&OK));
        assert_eq!(fixture.says(&shorter(own), size).0, shorter(5));
        fixture.hears(&ok(&OK));
    }
}

#[test]
fn changes_are_reported_once() {
    let mut fixture = Fixture::new();
    fixture.says(&query("SET sql_mode = ''; INSERT INTO t VALUES (1)"), 7);
    let more = OkPacket { status: 10, ..OK };
    let insert = OkPacket { last_insert_id: 9, warnings: 1, status: 0x202, ..OK };
    fixture.hears(&[ok(&more), ok(&insert)].concat());
    assert!(fixture.is_clean());
    let changes = fixture.follow.settle();
    assert!(changes.effects.pin.is_some(), "the statement after SET sql_mode is ambiguous");
    assert_eq!((changes.effects.settings, changes.insert_id), (vec!["sql_mode".to_owned()], Some(9)));
    assert_eq!(
        (changes.diagnostics, fixture.follow.flags().escapes()),
        (Some(Diagnostics::Some), Escapes::None)
    );
    assert_eq!(fixture.follow.settle(), SessionChanges::default());
    // A refused command has no effect, except state that only its connection can have.
    fixture.says(&query("SET time_zone = 'x'"), 7);
    fixture.hears(&refusal());
    let changes = fixture.follow.settle();
    assert_eq!((changes.effects.is_none(), changes.status), (true, StatusFlags::Unknown));
    fixture.says(&query("SELECT GET_LOCK('a', 1), nonsense"), 7);
    fixture.hears(&refusal());
    assert_eq!(fixture.follow.settle().effects.pin, Some("GET_LOCK"));
    // The client's own reset discards all changes.
    fixture.says(&query("SET @x = 1"), 7);
    fixture.hears(&ok(&OK));
    fixture.says(&written(encode_reset_connection), 7);
    fixture.hears(&ok(&OK));
    let changes = fixture.follow.settle();
    assert_eq!((changes.reset, changes.effects.is_none()), (SessionReset::Yes, true));
    // But not the default database.
    fixture.says(&query("USE other"), 7);
    fixture.hears(&ok(&OK));
    fixture.says(&written(encode_reset_connection), 7);
    fixture.hears(&ok(&OK));
    assert_eq!(fixture.follow.settle().effects.database, DefaultDatabase::MayDiffer);
}

#[test]
fn open_state_keeps_the_connection() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SELECT ?", 77, 1);
    let long_data = written(|out| {
        let payload = [&b"\x18"[..], &own.to_le_bytes(), b"\0\0long"].concat();
        write_payload(out, 0, &payload).unwrap();
    });
    assert_eq!(&fixture.says(&long_data, 3).0[5..9], &77_u32.to_le_bytes());
    assert!(fixture.follow.is_open());
    fixture.says(&execute(own, &[Param::Bytes(b"")]), 3);
    assert!(!fixture.follow.is_open());
    // An execute that asked for no cursor has none, whatever its status flags are.
    fixture.hears(&cursor_response(CURSOR));
    assert!(!fixture.follow.is_open());
    open_cursor(&mut fixture, own, CURSOR);
    assert!(fixture.follow.is_open());
    let fetch = [&b"\x1c"[..], &own.to_le_bytes(), b"\x01\0\0\0"].concat();
    fixture.says(
        &written(|out| {
            write_payload(out, 0, &fetch).unwrap();
        }),
        3,
    );
    fixture.hears(b"\x07\0\0\x01\xfe\0\0\x82\0\0\0");
    assert!(!fixture.follow.is_open() && fixture.is_clean());
    // `SET TRANSACTION` keeps the connection until the transaction starts, or pins it if none starts.
    for (status, pin) in [(3, None), (2, Some("SET TRANSACTION"))] {
        fixture.follow.settle();
        fixture.says(&query("SET TRANSACTION READ ONLY"), 3);
        fixture.hears(&ok(&OK));
        assert!(fixture.follow.is_open());
        fixture.says(&query("BEGIN"), 3);
        fixture.hears(&ok(&OkPacket { status, ..OK }));
        assert!(!fixture.follow.is_open());
        assert_eq!(fixture.follow.settle().effects.pin, pin);
    }
}

/// `SERVER_STATUS_AUTOCOMMIT` and `SERVER_STATUS_CURSOR_EXISTS`.
const CURSOR: u16 = 0x42;

/// The definition of one column, and the end of the rows.
fn cursor_response(status: u16) -> Vec<u8> {
    let mut bytes = written(|out| {
        write_payload(out, 1, &[1]).unwrap();
    });
    write_payload(&mut bytes, 2, b"\x03def a column").unwrap();
    let [low, high] = status.to_le_bytes();
    write_payload(&mut bytes, 3, &[0xfe, 0, 0, low, high, 0, 0]).unwrap();
    bytes
}

fn execute_with_cursor(own: u32) -> Vec<u8> {
    let mut bytes = execute(own, &[Param::Bytes(b"")]);
    bytes[9] = 1;
    bytes
}

fn open_cursor(fixture: &mut Fixture, own: u32, status: u16) {
    fixture.says(&execute_with_cursor(own), 3);
    fixture.hears(&cursor_response(status));
}

#[test]
fn a_cursor_is_known_when_the_server_has_opened_or_closed_it() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SELECT ?", 77, 1);
    // A result within a procedure; the OK of the procedure follows.
    fixture.says(&execute_with_cursor(own), 3);
    let last = written(|out| write_ok(out, 4, &OkPacket { status: CURSOR, ..OK }).unwrap());
    fixture.hears(&[cursor_response(CURSOR | 8), last].concat());
    assert!(fixture.is_clean() && !fixture.follow.is_open());
    open_cursor(&mut fixture, own, CURSOR);
    // A refused command leaves it open.
    let reset = written(|out| encode_statement_reset(out, own));
    for command in [&reset, &execute(own, &[Param::Bytes(b"")])] {
        fixture.says(command, 3);
        fixture.hears(&refusal());
        assert!(fixture.follow.is_open());
    }
    fixture.says(&reset, 3);
    assert!(fixture.follow.is_open());
    fixture.hears(&ok(&OK));
    assert!(!fixture.follow.is_open());
    open_cursor(&mut fixture, own, CURSOR);
    fixture.says(&execute(own, &[Param::Bytes(b"")]), 3);
    fixture.hears(&cursor_response(2));
    assert!(!fixture.follow.is_open());
    // The statement is closed before the response.
    let close = written(|out| encode_statement_close(out, own));
    fixture.says(&[execute_with_cursor(own), close].concat(), 3);
    fixture.hears(&cursor_response(CURSOR));
    assert!(fixture.is_clean() && !fixture.follow.is_open());
}

/// The status after each of these texts, which succeed unless the status is `None`; whether a savepoint may exist then.
fn savepoint_after(texts: &[(&str, Option<u16>)]) -> bool {
    let answer = |status: &Option<u16>| status.map_or_else(refusal, |status| ok(&OkPacket { status, ..OK }));
    let run_as_text = || {
        let mut fixture = Fixture::new();
        for (text, status) in texts {
            fixture.says(&query(text), 7);
            fixture.hears(&answer(status));
        }
        fixture.follow.may_have_savepoint()
    };
    let run_prepared = || {
        let mut fixture = Fixture::new();
        for (text, status) in texts {
            let own = prepare(&mut fixture, text, 77, 0);
            let close = written(|out| encode_statement_close(out, own));
            fixture.says(&[execute(own, &[]), close].concat(), 7);
            fixture.hears(&answer(status));
        }
        fixture.follow.may_have_savepoint()
    };
    let may_exist = run_as_text();
    assert_eq!(run_prepared(), may_exist, "{texts:?}");
    may_exist
}

#[test]
fn a_savepoint_without_autocommit_opens_a_transaction() {
    const MANUAL: u16 = 0;
    const IN_TRANSACTION: u16 = 1;
    const AUTOCOMMIT: u16 = 2;
    for text in [
        "SAVEPOINT a",
        "CALL p()",
        "set statement max_statement_time=1 for savepoint a",
        "COMMIT; SAVEPOINT a",
        "SELECT 1; savepoint a; SELECT 2",
        "SAVEPOINT a; ROLLBACK TO a",
        "SAVEPOINT a; ROLLBACK WORK TO SAVEPOINT a",
    ] {
        assert!(savepoint_after(&[(text, Some(MANUAL))]), "{text}");
        assert!(!savepoint_after(&[(text, Some(AUTOCOMMIT))]), "{text}: it ends with its statement");
        for (end, status, is_left) in [
            ("COMMIT", Some(MANUAL), false),
            ("ROLLBACK WORK", Some(MANUAL), false),
            ("ROLLBACK", Some(MANUAL), false),
            ("SET autocommit = 1", Some(AUTOCOMMIT), false),
            ("ROLLBACK TO a", Some(MANUAL), true),
            ("COMMIT; SAVEPOINT b", Some(MANUAL), true),
            ("COMMIT", None, true),
            ("SELECT 1", Some(MANUAL), true),
            ("INSERT INTO t VALUES (1)", Some(IN_TRANSACTION), true),
        ] {
            assert_eq!(savepoint_after(&[(text, Some(MANUAL)), (end, status)]), is_left, "{text}, {end}");
        }
        // The end of a transaction that the server reports.
        let (open, closed) =
            (("INSERT INTO t VALUES (1)", Some(IN_TRANSACTION)), ("DROP TABLE t", Some(MANUAL)));
        assert!(!savepoint_after(&[(text, Some(MANUAL)), open, closed]), "{text}");
        assert!(savepoint_after(&[open, (text, Some(MANUAL))]), "{text}");
        // It may have ended before the procedure has failed.
        assert!(savepoint_after(&[open, ("CALL p()", None), ("SELECT 1", Some(MANUAL))]));
    }
    for text in ["SELECT 1", "SAVEPOINT a; COMMIT", "ROLLBACK", "BEGIN", "RELEASE SAVEPOINT a"] {
        assert!(!savepoint_after(&[(text, Some(MANUAL))]), "{text}");
    }
    // A refused savepoint does not exist; a text of several statements may have reached it.
    assert!(savepoint_after(&[("SAVEPOINT a; COMMIT", None)]));
    assert!(!savepoint_after(&[("COMMIT; SELECT 1", None)]));
    // The client's own reset ends the transaction.
    let mut fixture = Fixture::new();
    fixture.says(&query("SAVEPOINT a"), 7);
    fixture.hears(&ok(&OkPacket { status: MANUAL, ..OK }));
    fixture.says(&written(encode_reset_connection), 7);
    fixture.hears(&refusal());
    assert!(fixture.follow.may_have_savepoint());
    fixture.says(&written(encode_reset_connection), 7);
    fixture.hears(&ok(&OkPacket { status: MANUAL, ..OK }));
    assert!(!fixture.follow.may_have_savepoint());
}

#[test]
fn the_effects_of_a_statement_outlive_it() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SET time_zone = '+01:00'", 77, 0);
    let close = written(|out| encode_statement_close(out, own));
    fixture.says(&[execute(own, &[]), close].concat(), 3);
    fixture.hears(&ok(&OK));
    assert_eq!(fixture.follow.settle().effects.settings, ["time_zone"]);
}

#[test]
fn settings_can_change_out_of_sight() {
    const AUTOCOMMIT: u16 = 2;
    const NO_BACKSLASH_ESCAPES: u16 = 0x200;
    const DATABASE_DROPPED: u16 = 0x100;
    let changes = |texts: &[(&str, u16)]| {
        let mut fixture = Fixture::new();
        for (text, status) in texts {
            fixture.says(&query(text), 7);
            fixture.hears(&ok(&OkPacket { status: *status, ..OK }));
        }
        fixture.follow.settle().effects
    };
    assert!(changes(&[("CALL p()", AUTOCOMMIT)]).is_none());
    assert_eq!(changes(&[("CALL p()", 0), ("CALL p()", 0)]).settings, ["autocommit"]);
    let set = ("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", AUTOCOMMIT | NO_BACKSLASH_ESCAPES);
    let effects = changes(&[set, ("SELECT 1", AUTOCOMMIT | NO_BACKSLASH_ESCAPES)]);
    assert_eq!((effects.settings, effects.pin), (vec!["sql_mode".to_owned()], None));
    let out_of_sight = Some("a sql_mode that was set out of sight");
    assert_eq!(changes(&[("CALL p()", AUTOCOMMIT | NO_BACKSLASH_ESCAPES)]).pin, out_of_sight);
    assert_eq!(changes(&[set, ("CALL p()", AUTOCOMMIT)]).pin, out_of_sight);
    let effects = changes(&[("CALL p()", AUTOCOMMIT | DATABASE_DROPPED)]);
    assert_eq!(effects.database, DefaultDatabase::MayDiffer);
}

#[test]
fn a_statement_that_cannot_be_prepared_again_fails_with_the_servers_error() {
    let err = b"\xff\x1e\x04#42S22Unknown column 'e \xc3\xa9' in 'SELECT'";
    for (size, params) in [(1, 10), (7, 10), (1 << 16, 0x100_0000 + 5)] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT ?", 77, 1);
        fixture.moves();
        let long = vec![b'x'; params];
        let command = execute(own, &[Param::Bytes(&long)]);
        assert_eq!(fixture.says(&command, size).1, Some(own));
        fixture.follow.preparation_failed(own, err.to_vec());
        // The data is dropped with the statement.
        let data = written(|out| {
            write_payload(out, 0, &[&b"\x18"[..], &own.to_le_bytes(), b"\0\0long"].concat()).unwrap();
        });
        let close = written(|out| encode_statement_close(out, UNKNOWN_STATEMENT));
        assert_eq!(fixture.says(&data, size), (close, None));
        // On another connection it would be executed without its data.
        assert!(fixture.follow.is_open());
        let bytes = [command.clone(), query("SELECT 1")].concat();
        assert_eq!(fixture.says(&bytes, size), ([written(encode_ping), query("SELECT 1")].concat(), None));
        assert!(!fixture.follow.is_open());
        // Its sequence number follows those of the command.
        let sequence = 1 + (params / 0xff_ffff) as u8;
        let refused = written(|out| {
            write_payload(out, sequence, err).unwrap();
        });
        assert_eq!(fixture.hears(&ok(&OK)), refused);
        assert_eq!(fixture.follow.settle().status, StatusFlags::Unknown);
        fixture.hears(&ok(&OK));
        assert!(fixture.is_clean());
        // The next execution prepares it again.
        assert_eq!(fixture.says(&command, size).1, Some(own));
    }
    // The server ends the connection instead.
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SELECT 1", 77, 0);
    fixture.moves();
    fixture.follow.preparation_failed(own, err.to_vec());
    fixture.says(&execute(own, &[]), 9);
    assert_eq!(fixture.hears(&refusal()), refusal());
}

#[test]
fn the_last_statement_identifier_is_resolved() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "SELECT 1", 77, 0);
    let last = u32::MAX;
    assert_eq!(fixture.says(&execute(last, &[]), 3).0, execute(77, &[]));
    fixture.hears(&ok(&OK));
    fixture.moves();
    assert_eq!(fixture.says(&execute(last, &[]), 1000).1, Some(own));
    // A statement whose prepare is pending has no identifier yet.
    let mut fixture = Fixture::new();
    let both =
        [written(|out| encode_prepare(out, "SET sql_mode = ''").unwrap()), execute(last, &[])].concat();
    assert_eq!(fixture.says(&both, 3), (both, None));
    fixture.hears(&[complete_prepare(7, 0), ok(&OK)].concat());
    assert_eq!(fixture.follow.settle().effects.settings, ["sql_mode"]);
    // Commands pipelined after it are ambiguous.
    let prepared = fixture.statements.last.unwrap();
    let both = [execute(prepared, &[]), query("SELECT '\\'")].concat();
    fixture.says(&both, 3);
    fixture.hears(&[ok(&OK), ok(&OK)].concat());
    assert_eq!(fixture.follow.settle().effects.pin, Some("a command behind one that sets sql_mode"));
    // Its parameter types are kept.
    let params = [Param::I64(7)];
    let both = [written(|out| encode_prepare(out, "SELECT ?").unwrap()), execute(last, &params)].concat();
    assert_eq!(fixture.says(&both, 3), (both, None));
    fixture.hears(&[complete_prepare(8, 1), ok(&OK)].concat());
    assert_eq!(fixture.follow.settle().effects.pin, None);
    let own = fixture.statements.last.unwrap();
    fixture.moves();
    fixture.prepared.insert(own, 9);
    let mut shorter = execute(own, &params);
    shorter[15] = 0;
    shorter.drain(16..18);
    shorter[0] -= 2;
    assert_eq!(fixture.says(&shorter, 3).0, execute(9, &params));
    fixture.hears(&ok(&OK));
    // A failed prepare leaves no last statement.
    fixture.says(&written(|out| encode_prepare(out, "nonsense").unwrap()), 3);
    fixture.hears(&refusal());
    assert_eq!(fixture.says(&execute(last, &[]), 3).0, execute(0, &[]));
}

#[test]
fn prepared_statements_are_bounded() {
    let mut fixture = Fixture::new();
    let text = "x".repeat(3 << 20);
    for number in 0..4_u32 {
        let command = written(|out| encode_prepare(out, &text).unwrap());
        let Fixture { relay, follow, statements, prepared } = &mut fixture;
        follow.process_client(relay, &command, statements, prepared).unwrap();
        fixture.hears(&complete_prepare(number + 1, 0));
        assert!(fixture.statements.bytes() <= MAX_STATEMENT_BYTES);
        assert_eq!(fixture.follow.settle().effects.pin.is_some(), number >= 2, "{number}");
    }
}

#[test]
fn pending_prepares_are_bounded() {
    let mut fixture = Fixture::new();
    let text = "x".repeat(3 << 20);
    let command = written(|out| encode_prepare(out, &text).unwrap());
    for number in 0..4 {
        let Fixture { relay, follow, statements, prepared } = &mut fixture;
        follow.process_client(relay, &command, statements, prepared).unwrap();
        assert!(follow.pending_bytes <= MAX_STATEMENT_BYTES);
        assert_eq!(follow.changes.effects.pin.is_some(), number >= 2, "{number}");
    }
    for _ in 0..2 {
        fixture.hears(&refusal());
        fixture.hears(&complete_prepare(7, 0));
    }
    assert_eq!(fixture.follow.pending_bytes, 0);
    assert!(fixture.is_clean());
}

#[test]
fn a_command_behind_one_without_an_answer_is_answered() {
    let close = written(|out| encode_statement_close(out, 7));
    let reset = written(|out| encode_statement_reset(out, 7));
    let quit = written(encode_quit);
    for (input, is_answered) in [
        (close.clone(), false),
        ([&close[..], &close].concat(), false),
        ([&close[..], &reset].concat(), true),
        ([&close[..], &reset[..reset.len() - 1]].concat(), false),
        ([&close[..], &quit].concat(), false),
        (close[..6].to_vec(), false),
        (reset, true),
        // An empty command, and the first packet of a long one.
        (vec![0; 4], true),
        (b"\0\0\0\0\x18\0\0\0\x03SELECT".to_vec(), true),
        (vec![0xff, 0xff, 0xff, 0, 3], true),
    ] {
        assert_eq!(has_answered_command(&input), is_answered, "{input:?}");
    }
}
