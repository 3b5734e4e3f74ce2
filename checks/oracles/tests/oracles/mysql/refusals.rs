//! The same refusals.

use ciphertoll_model::{Auth, Engine, Path, ServerKey, TlsVersion};

use crate::answer::{assert_refused, assert_same};
use crate::fixture::{Fixture, Visit};
use crate::oracle;
use crate::ours::{self, Bare};

use super::rows::create_many;

/// An account that may have one connection.
const LONELY: &str = "lonely";

const UNKNOWN: &str = "an unknown account";

/// Statements and the SQL state that they are refused with.
const REFUSED: [(&str, &str); 6] = [
    ("SELEC 1", "42000"),
    ("SELECT * FROM absent", "42S02"),
    ("SELECT absent FROM refusing", "42S22"),
    ("INSERT INTO refusing VALUES (1)", "23000"),
    ("SELECT * FROM mysql.user", "42000"),
    ("", "42000"),
];

pub(super) fn of_statements(fixture: &mut Fixture) {
    fixture.prepare(&[
        "DROP TABLE IF EXISTS refusing",
        "CREATE TABLE refusing (id INT PRIMARY KEY)",
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
    create_many(fixture);
    let mut client = ours::client(&fixture.plain()).expect("ours logs in");
    let mut oracle = fixture.oracle();
    let sql = "SELECT 9223372036854775800 + id FROM many ORDER BY id";
    assert_refused(sql, "22003", ours::query(&mut client, sql), oracle.query(sql));
    assert_same("SELECT 1", &ours::query(&mut client, "SELECT 1"), &oracle.query("SELECT 1"));
}

pub(super) fn of_logins(fixture: &mut Fixture) {
    let default = Auth::default_of(fixture.server.engine());
    for path in [Path::Plain, Path::Unix, Path::tls(TlsVersion::Tls13, ServerKey::P256)] {
        let visit = fixture.visit(path, default);
        let wrong_password = Visit { password: b"wrong".to_vec(), ..visit.clone() };
        let no_password = Visit { password: Vec::new(), ..visit.clone() };
        let unknown_account = Visit { user: "absent".to_owned(), ..visit.clone() };
        let unknown_database = Visit { database: "absent".to_owned(), ..visit };
        for (what, state, visit) in [
            ("a wrong password", "28000", wrong_password),
            ("no password", "28000", no_password),
            (UNKNOWN, "28000", unknown_account),
            ("a database that is not there", "42000", unknown_database),
        ] {
            // To hide which accounts exist, MySQL requests an arbitrary plugin for an unknown one, perhaps one that
            // neither client supports.
            if what == UNKNOWN && fixture.server.engine() == Engine::MySql {
                continue;
            }
            assert_refused(what, state, ours::client(&visit), oracle::connect(&visit));
        }
    }
    too_many_connections(fixture);
}

/// The limit of one account; the server's own limit is too high for a test.
fn too_many_connections(fixture: &Fixture) {
    let mut control = ours::client(&fixture.control()).expect("the lab's own account logs in");
    let create = format!("CREATE USER '{LONELY}'@'%' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1");
    for sql in [format!("DROP USER IF EXISTS '{LONELY}'@'%'"), create] {
        control.execute(&sql).expect("it may make accounts");
    }
    control.execute(&format!("GRANT ALL ON sbtest.* TO '{LONELY}'@'%'")).expect("it may grant");
    // Over TLS, where MySQL accepts accounts that it has not cached, too.
    let default = Auth::default_of(fixture.server.engine());
    let anybody = fixture.visit(Path::tls(TlsVersion::Tls13, ServerKey::P256), default);
    let visit = Visit { user: LONELY.to_owned(), password: b"x".to_vec(), ..anybody };
    let first = oracle::connect(&visit).expect("one is allowed");
    assert_refused("a second connection", "42000", ours::client(&visit), oracle::connect(&visit));
    drop(first);
}
