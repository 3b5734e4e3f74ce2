//! The same rows.

use ciphertoll_model::{Auth, Path, ServerKey, TlsVersion};
use ciphertoll_wire::session::Value;

use crate::answer::{Rows, assert_same};
use crate::fixture::Fixture;
use crate::ours::{self, Bare};

const PATHS: [Path; 4] = [
    Path::Plain,
    Path::Unix,
    Path::tls(TlsVersion::Tls12, ServerKey::P256),
    Path::tls(TlsVersion::Tls13, ServerKey::P256),
];
const CREATE_KINDS: &str = "CREATE TABLE kinds (id INT PRIMARY KEY, tiny TINYINT, small SMALLINT, medium MEDIUMINT, \
     number INT, big BIGINT, natural_big BIGINT UNSIGNED, filled INT(8) ZEROFILL, exact DECIMAL(40,10), single FLOAT, \
     twice DOUBLE, flag BOOLEAN, bits BIT(12), day DATE, moment DATETIME(6), stamp TIMESTAMP(6) NULL, span TIME(3), \
     born YEAR, word VARCHAR(200) CHARACTER SET utf8mb4, fixed CHAR(10), raw VARBINARY(300), fixed_raw BINARY(4), \
     long_text LONGTEXT CHARACTER SET utf8mb4, bytes LONGBLOB, one ENUM('a','b'), some SET('x','y','z'), doc JSON)";
const INSERT_KINDS: [&str; 5] = [
    "INSERT INTO kinds VALUES (1, 1, 2, 3, 4, 5, 6, 7, 8.5, 1.5, 2.25, TRUE, b'101', '2024-02-29', \
     '2024-02-29 23:59:59.999999', '2024-02-29 12:00:00.000001', '12:34:56.789', 2024, 'word', 'fixed', X'00FF00', \
     X'0001', 'long', X'00010203', 'a', 'x,z', '{\"a\": [1, null]}')",
    "INSERT INTO kinds (id) VALUES (2)",
    "INSERT INTO kinds VALUES (3, -128, -32768, -8388608, -2147483648, -9223372036854775808, 18446744073709551615, 0, \
     -123456789012345678901234567890.0123456789, -3.4e38, 2.2250738585072014e-308, FALSE, b'0', '1000-01-01', \
     '9999-12-31 23:59:59', '1970-01-02 00:00:01', '-838:59:59', 1901, '🦀 ž 𝄞 日本', 'é', '', '', '', '', 'b', '', '[]')",
    "INSERT INTO kinds (id, word, fixed, raw, long_text, bytes) VALUES (4, '', '', '', '', '')",
    // Longer than 65,535 bytes and than 250, with zero bytes in it.
    "INSERT INTO kinds (id, word, raw, long_text, bytes) \
     VALUES (5, REPEAT('ü', 126), REPEAT(X'00', 251), REPEAT('🦀', 20000), REPEAT(X'00FF27', 30000))",
];
const READ_KINDS: [&str; 5] = [
    "SELECT * FROM kinds ORDER BY id",
    "SELECT bytes, word FROM kinds WHERE id = 5",
    "SELECT * FROM kinds WHERE id < 0",
    "SELECT COUNT(*), MIN(day), MAX(exact), AVG(single), NULL, '', 1e100, -0.0, X'00' FROM kinds",
    "SHOW COLUMNS FROM kinds",
];
/// 10,000 rows with types that all engines have.
const CREATE_MANY: [&str; 4] = [
    "CREATE TABLE digits (d INT PRIMARY KEY)",
    "INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)",
    "CREATE TABLE many (id INT PRIMARY KEY, word VARCHAR(300))",
    "INSERT INTO many SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, \
     REPEAT('w', a.d * b.d * c.d % 300) FROM digits a, digits b, digits c, digits e",
];
const READ_MANY: &str = "SELECT id, word, NULLIF(id % 7, 0) FROM many ORDER BY id";
/// Two cells of 9 MB: every server allows that, and together they exceed a packet.
const LARGE_CELL_BYTES: usize = 9_000_000;
/// Of cells from 64 KiB to 16 MiB.
const CELL_HEAD_BYTES: usize = 4;
/// The payload of a full packet.
const FULL_PACKET_BYTES: usize = (1 << 24) - 1;

pub(super) fn values_of_every_type(fixture: &mut Fixture) {
    fixture.prepare(&["DROP TABLE IF EXISTS kinds", CREATE_KINDS]);
    fixture.prepare(&INSERT_KINDS);
    let mut oracle = fixture.oracle();
    for sql in READ_KINDS {
        let expected = oracle.query(sql);
        for path in PATHS {
            let visit = fixture.visit(path, Auth::default_of(fixture.server.engine()));
            let mut client = ours::client(&visit).expect("ours logs in");
            assert_same(sql, &ours::query(&mut client, sql), &expected);
        }
    }
    assert_eq!(oracle.query(READ_KINDS[0]).map(|rows| rows.len()), Ok(INSERT_KINDS.len()));
}

pub(super) fn many_rows(fixture: &mut Fixture) {
    create_many(fixture);
    let expected = fixture.oracle().query(READ_MANY);
    assert_eq!(expected.as_ref().map(Vec::len), Ok(10_000));
    for path in PATHS {
        let visit = fixture.visit(path, Auth::default_of(fixture.server.engine()));
        let mut client = ours::client(&visit).expect("ours logs in");
        assert_same(READ_MANY, &ours::query(&mut client, READ_MANY), &expected);
        // The counting reader gives the same.
        let summary = Bare::connect(&visit).count(READ_MANY).expect("it counts");
        assert_eq!((summary.rows, summary.row_bytes), (10_000, text_bytes(expected.as_ref().expect("rows"))));
    }
}

pub(super) fn larger_than_a_packet(fixture: &mut Fixture) {
    fixture.prepare(&[
        "DROP TABLE IF EXISTS large",
        "CREATE TABLE large (id INT PRIMARY KEY, a LONGBLOB, b LONGBLOB)",
        &format!("INSERT INTO large VALUES (1, REPEAT('a', {LARGE_CELL_BYTES}), NULL), (2, 'small', 'row')"),
        &format!("UPDATE large SET b = REPEAT('b', {LARGE_CELL_BYTES}) WHERE id = 1"),
    ]);
    // Rows that fill their packet, so that an empty one follows, and rows one byte shorter and longer.
    let second = FULL_PACKET_BYTES - 2 * CELL_HEAD_BYTES - LARGE_CELL_BYTES;
    let mut statements = vec!["SELECT a, b FROM large ORDER BY id".to_owned()];
    statements.extend(
        [second - 1, second, second + 1]
            .map(|bytes| format!("SELECT a, REPEAT('c', {bytes}) FROM large LIMIT 1")),
    );
    // The second cell is the shortest whose length takes eight bytes: its row starts like the end of rows.
    statements.extend(
        [FULL_PACKET_BYTES, FULL_PACKET_BYTES + 1].map(|bytes| format!("SELECT REPEAT('x', {bytes})")),
    );
    let mut oracle = super::oracle(fixture);
    for path in PATHS {
        let mut bare = Bare::connect(&fixture.visit(path, Auth::default_of(fixture.server.engine())));
        for sql in &statements {
            let expected = oracle.query(sql);
            assert_same(sql, &bare.query(sql), &expected);
            let there = expected.is_ok_and(|rows| rows[0].iter().all(Option::is_some));
            assert!(there, "{sql}: a cell that is over the server's limit is NULL");
        }
        let sql = "SELECT a, b FROM large WHERE id >= ? ORDER BY id";
        let prepared = bare.prepare(sql).expect("ours prepares");
        let summary = bare.execute(prepared, &[Value::I64(0)]).expect("ours executes");
        let rows = oracle.execute(sql, 0).expect("the oracle executes");
        assert_eq!((summary.rows, summary.row_bytes), (2, binary_bytes(&rows)));
    }
    statements_as_large_as_a_packet(fixture);
}

/// A full packet is followed by another one in this direction, too. By default servers accept no more than this.
fn statements_as_large_as_a_packet(fixture: &Fixture) {
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = fixture.oracle();
    let command = 1;
    for payload in [FULL_PACKET_BYTES - 1, FULL_PACKET_BYTES] {
        let cell = "x".repeat(payload - command - "SELECT LENGTH('')".len());
        let sql = format!("SELECT LENGTH('{cell}')");
        let what = format!("a statement of {payload} bytes");
        let expected = Ok(vec![vec![Some(cell.len().to_string().into_bytes())]]);
        assert_same(&what, &bare.query(&sql), &expected);
        assert_same(&what, &oracle.query(&sql), &expected);
    }
}

pub(super) fn several_results(fixture: &mut Fixture) {
    create_many(fixture);
    fixture.prepare(&[
        "DROP PROCEDURE IF EXISTS several",
        "CREATE PROCEDURE several(IN most INT) BEGIN SELECT 1, 'one'; SELECT id FROM many WHERE id < most; \
         SELECT 2 FROM many WHERE id < 0; UPDATE many SET word = 'changed' WHERE id < most; SELECT NULL; END",
        "DROP PROCEDURE IF EXISTS failing",
        "CREATE PROCEDURE failing() BEGIN SELECT 1; SELECT * FROM absent; SELECT 2; END",
    ]);
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut oracle = fixture.oracle();
    for sql in ["CALL several(7)", "CALL several(0)", "CALL several(5000)", "CALL failing()", "SELECT 1"] {
        assert_same(sql, &ours::query(&mut client, sql), &oracle.query(sql));
    }
    // For a prepared CALL, too: all of its results are read, and the next response belongs to the next statement.
    let mut bare = Bare::connect(&fixture.plain());
    let prepared = bare.prepare("CALL several(?)").expect("ours prepares");
    for most in [3, 0] {
        let summary = bare.execute(prepared, &[Value::I64(most)]).expect("ours executes");
        assert_eq!(summary.rows, 1 + most as u64 + 1);
    }
    assert_eq!(bare.query("SELECT 5"), Ok(vec![vec![Some(b"5".to_vec())]]));
}

pub(super) fn prepared_statements(fixture: &mut Fixture) {
    fixture.prepare(&["DROP TABLE IF EXISTS kinds", CREATE_KINDS]);
    fixture.prepare(&INSERT_KINDS);
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = super::oracle(fixture);
    // Nine columns, so that the null bitmap, which starts at its third bit, takes two bytes.
    for sql in [
        "SELECT word FROM kinds WHERE id >= ? ORDER BY id",
        "SELECT word, fixed, raw, fixed_raw, long_text, bytes, one, some, exact FROM kinds WHERE id >= ? ORDER BY id",
    ] {
        let prepared = bare.prepare(sql).expect("ours prepares");
        for id in [i64::MIN, 0, 2, 5, i64::MAX] {
            let summary = bare.execute(prepared, &[Value::I64(id)]).expect("ours executes");
            let rows = oracle.execute(sql, id).expect("the oracle executes");
            assert_eq!((summary.rows, summary.row_bytes), (rows.len() as u64, binary_bytes(&rows)), "{sql}");
        }
    }
}

pub(super) fn counts_of_rows_changed(fixture: &mut Fixture) {
    create_many(fixture);
    fixture.prepare(&["DROP TABLE IF EXISTS changed", "CREATE TABLE changed (id INT PRIMARY KEY, n INT)"]);
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = fixture.oracle();
    for sql in [
        "INSERT INTO changed VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE changed SET n = 9 WHERE id > 1",
        // Rows that already have the value are matched, but not changed.
        "UPDATE changed SET n = 9",
        "DELETE FROM changed WHERE id < 0",
        "DELETE FROM changed",
        "INSERT INTO changed SELECT id, id FROM many",
        "SET @nothing = 1",
        "DELETE FROM changed",
    ] {
        bare.query("START TRANSACTION").expect("a transaction");
        let ours = bare.count(sql).map(|summary| summary.affected_rows);
        bare.query("ROLLBACK").expect("the end of it");
        assert_eq!(ours, oracle.affected(sql), "{sql}");
    }
}

pub(super) fn create_many(fixture: &Fixture) {
    fixture.prepare(&["DROP TABLE IF EXISTS many", "DROP TABLE IF EXISTS digits"]);
    fixture.prepare(&CREATE_MANY);
}

/// The payload of these rows in the text protocol ("Text Resultset Row").
fn text_bytes(rows: &Rows) -> u64 {
    rows.iter().flatten().map(|cell| cell.as_ref().map_or(1, |cell| cell_bytes(cell))).sum()
}

/// The payload of these rows in the binary protocol, if all columns are of text or bytes ("Binary Protocol Resultset
/// Row"): a byte, the map of NULLs, and the cells that are not NULL.
fn binary_bytes(rows: &Rows) -> u64 {
    let row = |row: &Vec<Option<Vec<u8>>>| {
        let map = (row.len() + 9) / 8;
        1 + map as u64 + row.iter().flatten().map(|cell| cell_bytes(cell)).sum::<u64>()
    };
    rows.iter().map(row).sum()
}

/// A cell with its length before it.
fn cell_bytes(cell: &[u8]) -> u64 {
    let length = match cell.len() {
        0..=250 => 1,
        251..=0xffff => 3,
        0x1_0000..=0xff_ffff => 4,
        _ => 9,
    };
    length + cell.len() as u64
}
