//! The same rows.

use ciphertoll_model::{Auth, Path, ServerKey, TlsVersion};
use ciphertoll_wire::session::Value;

use crate::answer::assert_same;
use crate::fixture::Fixture;
use crate::ours::{self, Bare};

const PATHS: [Path; 4] = [
    Path::Plain,
    Path::Unix,
    Path::tls(TlsVersion::Tls12, ServerKey::P256),
    Path::tls(TlsVersion::Tls13, ServerKey::P256),
];
const CREATE_KINDS: &str = "CREATE TABLE kinds (id INTEGER PRIMARY KEY, small SMALLINT, number INTEGER, big BIGINT, \
     exact NUMERIC(40,10), free NUMERIC, single REAL, twice DOUBLE PRECISION, flag BOOLEAN, day DATE, moment TIMESTAMP, \
     stamp TIMESTAMPTZ, clock TIME, span INTERVAL, word VARCHAR(200), fixed CHAR(10), long_text TEXT, bytes BYTEA, \
     mark UUID, doc JSONB, list INTEGER[], words TEXT[], address INET, bits BIT VARYING(12), whole INT4RANGE, spot POINT)";
const INSERT_KINDS: [&str; 6] = [
    r#"INSERT INTO kinds VALUES (1, 2, 3, 4, 5.5, 6.75, 1.5, 2.25, TRUE, '2024-02-29', '2024-02-29 23:59:59.999999',
     '2024-02-29 12:00:00.000001+02', '12:34:56.789', '1 year 2 days 03:04:05', 'word', 'fixed', 'long', '\x00010203',
     '00112233-4455-6677-8899-aabbccddeeff', '{"a": [1, null]}', '{1,NULL,3}', '{a,"b c",""}', '127.0.0.0/8',
     B'101', '[1,9)', '(1,2)')"#,
    "INSERT INTO kinds (id) VALUES (2)",
    "INSERT INTO kinds VALUES (3, -32768, -2147483648, -9223372036854775808, \
     -123456789012345678901234567890.0123456789, 'NaN', '-Infinity', 2.2250738585072014e-308, FALSE, 'infinity', \
     '4713-01-01 00:00:00 BC', '-infinity', '24:00:00', '-178000000 years', '🦀 ž 𝄞 日本', 'é', '', '', \
     'ffffffff-ffff-ffff-ffff-ffffffffffff', 'null', '{}', '{}', '::1', B'', 'empty', '(-0,1e300)')",
    "INSERT INTO kinds (id, word, fixed, long_text, bytes) VALUES (4, '', '', '', '')",
    // More than 64 KiB, with zero bytes in it.
    "INSERT INTO kinds (id, word, long_text, bytes) \
     VALUES (5, repeat('ü', 126), repeat('🦀', 20000), decode(repeat('00ff27', 30000), 'hex'))",
    "INSERT INTO kinds (id, long_text) VALUES (6, E'a\\tb\\nc\\r\\\\d')",
];
const READ_KINDS: [&str; 7] = [
    "SELECT * FROM kinds ORDER BY id",
    "SELECT bytes, word FROM kinds WHERE id = 5",
    "SELECT * FROM kinds WHERE id < 0",
    "SELECT count(*), min(day), max(exact), avg(single), NULL, '', 1e100, -0.0 FROM kinds",
    // No columns, but rows.
    "SELECT FROM kinds",
    "",
    "SHOW server_encoding",
];
const READ_MANY: &str = "SELECT n, repeat('w', n % 300), nullif(n % 7, 0) FROM generate_series(1, 10000) n";
const READ_LARGE: &str = "SELECT repeat('x', 17000000), 1 UNION ALL SELECT 'small', 2 ORDER BY 2";

pub(super) fn values_of_every_type(fixture: &mut Fixture) {
    create_kinds(fixture);
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

pub(super) fn many_and_large_rows(fixture: &mut Fixture) {
    let mut oracle = fixture.oracle();
    let (many, large) = (oracle.query(READ_MANY), oracle.query(READ_LARGE));
    assert_eq!(many.as_ref().map(Vec::len), Ok(10_000));
    for path in PATHS {
        let visit = fixture.visit(path, Auth::default_of(fixture.server.engine()));
        let mut client = ours::client(&visit).expect("ours logs in");
        assert_same(READ_MANY, &ours::query(&mut client, READ_MANY), &many);
        let mut bare = Bare::connect(&visit);
        assert_same(READ_LARGE, &bare.query(READ_LARGE), &large);
        // The counting reader gives the same number.
        assert_eq!(bare.count(READ_MANY).map(|summary| summary.rows), Ok(10_000));
        assert_eq!(bare.count(READ_LARGE).map(|summary| summary.rows), Ok(2));
    }
}

pub(super) fn several_results(fixture: &mut Fixture) {
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut oracle = fixture.oracle();
    for sql in [
        "SELECT 1; SELECT 'a', NULL; SELECT 2 WHERE FALSE; SELECT 3",
        "CREATE TEMPORARY TABLE several (n INTEGER); INSERT INTO several VALUES (1), (2); TABLE several",
        "DO $$ BEGIN RAISE NOTICE 'by the way'; END $$; SELECT 1",
        "INSERT INTO several VALUES (3) RETURNING n; UPDATE several SET n = n + 1 RETURNING *",
        "SELECT 1; SELECT 1 / 0; SELECT 2",
        ";;",
        "SELECT 1",
    ] {
        assert_same(sql, &ours::query(&mut client, sql), &oracle.query(sql));
    }
}

pub(super) fn prepared_statements(fixture: &mut Fixture) {
    create_kinds(fixture);
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = fixture.oracle();
    let prepared = bare.prepare("SELECT * FROM kinds WHERE id >= $1 ORDER BY id").expect("ours prepares");
    for id in [-2_147_483_648, 0, 2, 5, 2_147_483_647] {
        let what = format!("SELECT * FROM kinds WHERE id >= {id} ORDER BY id");
        let expected = oracle.query(&what);
        assert_same(&what, &bare.execute_rows(prepared, &[Value::I64(id)]), &expected);
        let summary = bare.execute(prepared, &[Value::I64(id)]);
        assert_eq!(summary.map(|summary| summary.rows), expected.map(|rows| rows.len() as u64), "{what}");
    }
    let prepared =
        bare.prepare("SELECT $1::text, $2::bytea, $3::numeric, $4::boolean").expect("ours prepares");
    let values = ["🦀'\\", "\\x00ff", "-1.50", "yes"].map(|text| Value::Text(text.as_bytes()));
    let what = "SELECT '🦀''\\', '\\x00ff'::bytea, -1.50, TRUE";
    assert_same(what, &bare.execute_rows(prepared, &values), &oracle.query(what));
    let nulls = "SELECT NULL, NULL, NULL, NULL";
    assert_same(nulls, &bare.execute_rows(prepared, &[Value::Null; 4]), &oracle.query(nulls));
}

pub(super) fn counts_of_rows_changed(fixture: &mut Fixture) {
    fixture.prepare(&[
        "DROP TABLE IF EXISTS changed",
        "CREATE TABLE changed (id INTEGER PRIMARY KEY, n INTEGER)",
    ]);
    let mut bare = Bare::connect(&fixture.plain());
    let mut oracle = fixture.oracle();
    for sql in [
        "INSERT INTO changed VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE changed SET n = 9 WHERE id > 1",
        "UPDATE changed SET n = 9",
        "DELETE FROM changed WHERE id < 0",
        "DELETE FROM changed",
        "INSERT INTO changed SELECT n, n FROM generate_series(1, 10000) n",
        "SET work_mem = '8MB'",
        "DELETE FROM changed",
    ] {
        bare.query("BEGIN").expect("a transaction");
        let ours = bare.count(sql).map(|summary| summary.affected_rows);
        bare.query("ROLLBACK").expect("the end of it");
        assert_eq!(ours, oracle.affected(sql), "{sql}");
    }
}

fn create_kinds(fixture: &Fixture) {
    fixture.prepare(&["DROP TABLE IF EXISTS kinds", CREATE_KINDS]);
    fixture.prepare(&INSERT_KINDS);
}
