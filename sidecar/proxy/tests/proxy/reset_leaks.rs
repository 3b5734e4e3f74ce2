//! State that `DISCARD ALL` does not undo: each row of the table in docs/sidecar/what-a-reset-leaves.md.

use ciphertoll_model::{Auth, Engine};
use ciphertoll_net::blocking::Client;
use ciphertoll_testing::not_for_all;

use crate::Case;
use crate::cases::{one, try_one};
use crate::fixture::Fixture;
use crate::operations::await_that;

pub(crate) const CASES: [Case; 2] = [
    ("only the end of a session undoes what a reset leaves", rows_are_real),
    ("what a reset leaves does not reach the next client", nothing_reaches_the_next_client),
];

/// State that a session may leave. `look` has another value in a session that has it than in a new one.
struct Row {
    /// The first server version that has it.
    from_version: u32,
    extension: Option<&'static str>,
    left: &'static [&'static str],
    look: &'static str,
}

const fn row(left: &'static [&'static str], look: &'static str) -> Row {
    Row { from_version: 0, extension: None, left, look }
}

const CUSTOM: &str = "SELECT current_setting('app.tenant', true) IS NULL";
const RANDOM: &str = "SELECT random()";
const SLOTS: &str =
    "SELECT count(*) FROM pg_replication_slots WHERE temporary AND active_pid = pg_backend_pid()";

/// The proxy closes the connection after these. `$SELF` stands for a connection string of the server.
const CLOSED: [Row; 24] = [
    row(&["SET app.tenant = '7'"], CUSTOM),
    row(&["BEGIN; SET LOCAL \"app\".tenant = '7'; ROLLBACK"], CUSTOM),
    // The client leaves within the transaction.
    row(&["BEGIN", "SET LOCAL app.tenant = '7'"], CUSTOM),
    row(&["SELECT set_config('app.' || 'tenant', '7', true)"], CUSTOM),
    row(
        &["BEGIN; CREATE FUNCTION f() RETURNS int LANGUAGE sql SET app.tenant = '7' AS 'SELECT 1'; ROLLBACK"],
        CUSTOM,
    ),
    row(&["DO $$BEGIN SET app.tenant = '7'; END$$"], CUSTOM),
    row(&["SELECT query_to_xml('SELECT set_config(''app.tenant'', ''7'', true)', true, true, '')"], CUSTOM),
    Row {
        from_version: 15,
        ..row(&["SELECT pg_backup_start('leak', true)"], "SELECT lsn IS NOT NULL FROM pg_backup_stop(false)")
    },
    row(
        &["SELECT pg_replication_origin_session_setup('leak')"],
        "SELECT pg_replication_origin_session_is_setup()",
    ),
    row(&["SELECT pg_create_physical_replication_slot('leak', true, true)"], SLOTS),
    row(
        &[
            "SELECT pg_create_physical_replication_slot('leak', true, true)",
            "SELECT pg_copy_physical_replication_slot('leak', 'leak2')",
        ],
        SLOTS,
    ),
    row(&["SELECT setseed(0.5)"], RANDOM),
    row(&["SELECT \"setseed\"(0.5)"], RANDOM),
    row(&["SELECT pg_catalog . SetSeed /* so */ (0.5)"], RANDOM),
    row(&["SELECT U&\"sets\\0065ed\"(0.5)"], RANDOM),
    row(&["DO $$BEGIN PERFORM setseed(0.5); END$$"], RANDOM),
    row(&["DO $$BEGIN EXECUTE 'SELECT sets' || 'eed(0.5)'; END$$"], RANDOM),
    row(&["PREPARE leak AS SELECT setseed($1)", "EXECUTE leak (0.5)"], RANDOM),
    row(&["SELECT query_to_xml('SELECT setseed(0.5)', true, true, '')"], RANDOM),
    row(&["SET seed = 0.5"], RANDOM),
    row(&["SELECT set_config('seed', '0.5', false)"], RANDOM),
    Row {
        extension: Some("dblink"),
        ..row(&["SELECT dblink_connect('leak', '$SELF')"], "SELECT dblink_get_connections()")
    },
    Row { extension: Some("isn"), ..row(&["SELECT isn_weak(true)"], "SELECT isn_weak()") },
    row(&["LOAD 'auto_explain'"], "SELECT current_setting('auto_explain.log_min_duration', true)"),
];

/// These remain, as the page says.
const REMAINS: [Row; 3] = [
    row(&["CREATE TEMPORARY TABLE leak (n int)"], "SELECT pg_my_temp_schema() <> 0"),
    row(&["SELECT leaves_seed()"], RANDOM),
    Row {
        extension: Some("postgres_fdw"),
        ..row(&["SELECT * FROM leak_remote"], "SELECT count(*) FROM postgres_fdw_get_connections()")
    },
];

/// The value of the row's query. A new session refuses some of them.
fn look(client: &mut Client, row: &Row) -> String {
    try_one(client, row.look).unwrap_or_else(|error| error.to_string())
}

fn leave(client: &mut Client, row: &Row, connection_string: &str) {
    for sql in row.left {
        let sql = sql.replace("$SELF", connection_string);
        client.query(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Waits until no other session is left.
fn await_end(control: &mut Client) {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                  AND pid <> pg_backend_pid()";
    await_that("the sessions end", || one(control, others) == "0");
}

fn end(client: Client, control: &mut Client) {
    client.close().expect("a goodbye");
    await_end(control);
}

/// How the server connects to itself.
fn connection_string(fixture: &Fixture) -> String {
    let server = fixture.server();
    let user = server.account(Auth::default_of(Engine::Postgres)).user;
    let password = String::from_utf8(fixture.password()).expect("passwords here are text");
    let (port, database) = (fixture.server_port(), server.database());
    format!("host=127.0.0.1 port={port} user={user} password={password} dbname={database}")
}

/// Creates what the rows need; returns those for which everything is installed.
fn installed(control: &mut Client, rows: &'static [Row]) -> Vec<&'static Row> {
    let version: u32 = one(control, "SHOW server_version_num").parse().expect("a number");
    let mut is_installed = |row: &&Row| {
        let Some(extension) = row.extension else { return version / 10_000 >= row.from_version };
        let available = format!("SELECT count(*) FROM pg_available_extensions WHERE name = '{extension}'");
        if one(control, &available) == "0" {
            not_for_all(&format!("{extension} is not here: {}", row.left[0]));
            return false;
        }
        control.query(&format!("CREATE EXTENSION IF NOT EXISTS {extension}")).expect("an extension");
        true
    };
    rows.iter().filter(|row| is_installed(row)).collect()
}

fn prepare(control: &mut Client) {
    for sql in [
        "SELECT pg_replication_origin_create('leak') WHERE NOT EXISTS \
         (SELECT FROM pg_replication_origin WHERE roname = 'leak')",
        "CREATE OR REPLACE FUNCTION leaves_seed() RETURNS void LANGUAGE sql AS 'SELECT setseed(0.5)'",
        "GRANT EXECUTE ON FUNCTION leaves_seed() TO public",
    ] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A foreign table of the server itself.
fn prepare_remote(control: &mut Client, fixture: &Fixture) {
    let server = fixture.server();
    let user = server.account(Auth::default_of(Engine::Postgres)).user;
    let password = String::from_utf8(fixture.password()).expect("passwords here are text");
    let (port, database) = (fixture.server_port(), server.database());
    for sql in [
        "DROP SERVER IF EXISTS leak_server CASCADE",
        "CREATE TABLE IF NOT EXISTS leak_local (n int)",
        "GRANT SELECT ON leak_local TO public",
        &format!(
            "CREATE SERVER leak_server FOREIGN DATA WRAPPER postgres_fdw \
             OPTIONS (host '127.0.0.1', port '{port}', dbname '{database}')"
        ),
        &format!(
            "CREATE USER MAPPING FOR ciphertoll SERVER leak_server OPTIONS (user '{user}', password '{password}')"
        ),
        "CREATE FOREIGN TABLE leak_remote (n int) SERVER leak_server OPTIONS (table_name 'leak_local')",
    ] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

fn rows_are_real(fixture: &mut Fixture) {
    let mut control = fixture.control();
    prepare(&mut control);
    let rows = [installed(&mut control, &CLOSED), installed(&mut control, &REMAINS)].concat();
    if rows.iter().any(|row| row.extension == Some("postgres_fdw")) {
        prepare_remote(&mut control, fixture);
    }
    let own = connection_string(fixture);
    for row in rows {
        let what = row.left[0];
        let mut client = fixture.control();
        leave(&mut client, row, &own);
        let left = look(&mut client, row);
        end(client, &mut control);
        let mut client = fixture.control();
        leave(&mut client, row, &own);
        client.query("ROLLBACK").expect("the end of a transaction, or a warning");
        client.query("DISCARD ALL").expect("a reset");
        assert_eq!(look(&mut client, row), left, "{what}: undone by the reset");
        end(client, &mut control);
        let mut client = fixture.control();
        assert_ne!(look(&mut client, row), left, "{what}: not undone by the end of the session");
        end(client, &mut control);
    }
}

fn nothing_reaches_the_next_client(fixture: &mut Fixture) {
    let mut control = fixture.control();
    prepare(&mut control);
    let user = fixture.server().account(Auth::default_of(Engine::Postgres)).user;
    control.query(&format!("ALTER ROLE {user} SUPERUSER")).expect("a right");
    let leaks = leaks(fixture, &mut control);
    control.query(&format!("ALTER ROLE {user} NOSUPERUSER")).expect("the right is withdrawn");
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// What the next client finds, for each row.
fn leaks(fixture: &mut Fixture, control: &mut Client) -> Vec<&'static [&'static str]> {
    let own = connection_string(fixture);
    let rows = installed(control, &CLOSED);
    let leak = |row: &'static Row| {
        let mut client = fixture.control();
        leave(&mut client, row, &own);
        let left = look(&mut client, row);
        end(client, control);
        // A proxy for each row: what one leaves is no obstacle for the next.
        let proxy = fixture.proxy(&["--pool-size", "1"]);
        leave(&mut proxy.client(), row, &own);
        let found = look(&mut proxy.client(), row);
        drop(proxy);
        await_end(control);
        (found == left).then_some(row.left)
    };
    rows.into_iter().filter_map(leak).collect()
}
