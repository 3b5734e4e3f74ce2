//! The same refusals.

use ciphertoll_model::{Auth, Path, ServerKey, TlsVersion};

use crate::answer::{assert_refused, assert_same};
use crate::fixture::{Fixture, Visit};
use crate::oracle;
use crate::ours::{self, Bare};

/// Statements and the SQL state that they are refused with.
const REFUSED: [(&str, &str); 8] = [
    ("SELEC 1", "42601"),
    ("SELECT * FROM absent", "42P01"),
    ("SELECT absent FROM refusing", "42703"),
    ("INSERT INTO refusing VALUES (1)", "23505"),
    ("INSERT INTO refusing VALUES (NULL)", "23502"),
    ("SELECT * FROM pg_authid", "42501"),
    ("SELECT 1 / 0", "22012"),
    ("DO $$ BEGIN RAISE EXCEPTION 'words of one''s own 🦀' USING ERRCODE = 'XY123'; END $$", "XY123"),
];

pub(super) fn of_statements(fixture: &mut Fixture) {
    fixture.prepare(&[
        "DROP TABLE IF EXISTS refusing",
        "CREATE TABLE refusing (id INTEGER PRIMARY KEY)",
        "INSERT INTO refusing VALUES (1)",
    ]);
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut oracle = super::oracle(fixture);
    let mut bare = Bare::connect(&fixture.plain());
    for (sql, state) in REFUSED {
        assert_refused(sql, state, ours::query(&mut client, sql), oracle.query(sql));
        let prepared = bare.prepare(sql).and_then(|prepared| bare.execute(prepared, &[]));
        assert_refused(sql, state, prepared, oracle.prepare(sql));
        // The connection is usable after a refusal.
        assert_same("SELECT 1", &ours::query(&mut client, "SELECT 1"), &oracle.query("SELECT 1"));
    }
}

pub(super) fn in_the_middle_of_rows(fixture: &mut Fixture) {
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut oracle = fixture.oracle();
    let mut bare = Bare::connect(&fixture.plain());
    // Early and so late that many rows have been sent.
    for bad in [3, 9_000] {
        let sql = format!("SELECT 100 / ({bad} - n) FROM generate_series(1, 10000) n");
        assert_refused(&sql, "22012", ours::query(&mut client, &sql), oracle.query(&sql));
        let prepared = bare.prepare(&sql).expect("nothing is wrong with it yet");
        assert_refused(&sql, "22012", bare.execute(prepared, &[]), oracle.query(&sql));
        assert_same("SELECT 1", &ours::query(&mut client, "SELECT 1"), &oracle.query("SELECT 1"));
    }
    // A failed transaction refuses further commands.
    for sql in ["BEGIN", "SELECT 1 / 0", "SELECT 1", "ROLLBACK", "SELECT 1"] {
        assert_same(sql, &ours::query(&mut client, sql), &oracle.query(sql));
    }
}

pub(super) fn of_logins(fixture: &mut Fixture) {
    let default = Auth::default_of(fixture.server.engine());
    for path in [Path::Plain, Path::Unix, Path::tls(TlsVersion::Tls13, ServerKey::P256)] {
        let visit = fixture.visit(path, default);
        let wrong_password = Visit { password: b"wrong".to_vec(), ..visit.clone() };
        let unknown_role = Visit { user: "absent".to_owned(), ..visit.clone() };
        let another_database = Visit { database: "absent".to_owned(), ..visit };
        for (what, state, visit) in [
            ("a wrong password", "28P01", wrong_password),
            // No access rule of the lab allows them.
            ("an unknown role", "28000", unknown_role),
            ("another database", "28000", another_database),
        ] {
            assert_refused(what, state, ours::client(&visit), oracle::connect(&visit));
        }
    }
    let absent = Visit { database: "absent".to_owned(), ..fixture.control() };
    assert_refused("an unknown database", "3D000", ours::client(&absent), oracle::connect(&absent));
    too_many_connections(fixture);
}

/// The limit of one role; the server's own limit is too high for a test.
fn too_many_connections(fixture: &Fixture) {
    let visit = fixture.plain();
    let mut control = ours::client(&fixture.control()).expect("the lab's own role logs in");
    let mut limit = |most: i32| {
        control
            .execute(&format!("ALTER ROLE {} CONNECTION LIMIT {most}", visit.user))
            .expect("a superuser may");
    };
    limit(0);
    assert_refused("one connection too many", "53300", ours::client(&visit), oracle::connect(&visit));
    limit(-1);
}
