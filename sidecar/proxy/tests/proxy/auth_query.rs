//! Users that the settings do not name: the server is asked for their secrets.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::thread;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::Case;
use crate::cases::one;
use crate::cluster::Cluster;
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, samples, settings, write_secret};

pub(crate) const CASES: [Case; 8] = [
    ("users whom the settings do not name log in with the password that the server has", found),
    ("a role that is no superuser asks by the documented function", documented),
    ("users without a usable password are refused as with a wrong one", unusable),
    ("no search_path reaches the query for secrets", search_path),
    ("a password that was changed on the server is noticed", changed),
    ("a failing query for secrets refuses only the clients that it is for", failing),
    ("the host that has the role is asked for secrets, and users wait while there is none", moved),
    ("users are refused again once the settings name nobody to ask for them", reloaded),
];

const ASKER: &str = "asker";
const PASSWORD: &str = "correct horse";

/// The settings of a proxy in a file, and the roles that they need on the server.
fn prepared(fixture: &Fixture, more: &str) -> (TempDir, String) {
    let mut control = fixture.control();
    let password = |name: &str| format!("PASSWORD '{name}' IN ROLE toll_scram");
    for (name, options) in [
        (ASKER, format!("LOGIN SUPERUSER {}", password("asks"))),
        ("found", format!("LOGIN {}", password(PASSWORD))),
        ("expired", format!("LOGIN VALID UNTIL '2001-01-01' {}", password(PASSWORD))),
        ("unfit", format!("NOLOGIN {}", password(PASSWORD))),
        ("bare", "LOGIN IN ROLE toll_scram".to_owned()),
    ] {
        control.query(&format!("DROP ROLE IF EXISTS {name}")).expect("no role");
        control.query(&format!("CREATE ROLE {name} {options}")).expect("a role");
    }
    control.query("SET password_encryption = md5").expect("a setting");
    control.query("DROP ROLE IF EXISTS hashed").expect("no role");
    control.query(&format!("CREATE ROLE hashed LOGIN {}", password(PASSWORD))).expect("a role");
    let (directory, file) = settings(&text(more));
    write_secret(&directory.path().join(ASKER), "asks\n");
    (directory, file)
}

fn text(more: &str) -> String {
    let user = format!("[[user]]\nname = \"{ASKER}\"\npassword-file = \"{ASKER}\"\n");
    format!("auth-user = \"{ASKER}\"\n{more}\n{user}")
}

/// What psql prints for the user of its session.
fn log_in(proxy: &Proxy, user: &str, password: &str, options: &str) -> Output {
    let mut psql = proxy.psql(&["-c", "SELECT session_user"]);
    psql.args(["-U", user]).env("PGPASSWORD", password).env("PGOPTIONS", options);
    psql.output().expect("psql runs")
}

fn is_let_in(proxy: &Proxy, user: &str, password: &str) -> bool {
    let output = log_in(proxy, user, password, "");
    assert!(!output.status.success() || output.stdout == format!("{user}\n").into_bytes(), "{output:?}");
    output.status.success()
}

/// Why a login was refused, without the name.
fn refusal(proxy: &Proxy, user: &str, password: &str) -> String {
    let output = log_in(proxy, user, password, "");
    assert!(!output.status.success(), "{user} was let in");
    String::from_utf8_lossy(&output.stderr).replace(&format!("\"{user}\""), "USER")
}

/// Salt and iterations that a client of this user must use.
fn challenge(proxy: &Proxy, user: &str) -> String {
    let mut raw = proxy.raw_silent();
    let mut bytes = Vec::new();
    let parameters = [("user", user), ("database", proxy.database.as_str())];
    ciphertoll_wire::postgres::startup::encode_startup(&mut bytes, &parameters).expect("a start-up");
    raw.send(&bytes);
    assert_eq!(raw.message().expect("a request").0, b'R');
    let first = b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc";
    raw.send(&[&b"p"[..], &(first.len() as u32 + 4).to_be_bytes(), first].concat());
    let (_, payload) = raw.message().expect("a challenge");
    let challenge = String::from_utf8_lossy(&payload[4..]).into_owned();
    challenge.split_once(",s=").expect("a salt").1.to_owned()
}

fn found(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "");
    let mut proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    for _ in 0..3 {
        assert!(is_let_in(&proxy, "found", PASSWORD));
    }
    let line = proxy.process.await_line("auth=scram");
    assert!(line.contains("auth=scram-4096+plus"), "{line}");
    // The users of the settings log in as before: here by their UID.
    assert_eq!(proxy.sql(&["SELECT 1"]), "1");
    assert!(is_let_in(&proxy, ASKER, "anything"));
    // The clients of a user share connections, whichever of them has proven the password.
    let mut control = fixture.control();
    let opened = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'found'";
    assert!(one(&mut control, opened).parse::<u32>().expect("a number") <= 2);
    let all = samples(admin_of(&proxy));
    assert!(all["auth_queries_total{outcome=\"found\"}"] >= 1.0, "{all:?}");
    // The query's connection is closed when there is nothing more to ask.
    let asking =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ciphertoll-proxy auth-query'";
    await_that("nobody asks", || one(&mut control, asking) == "0");
    proxy.process.read_on();
    for secret in [PASSWORD, "asks", "SCRAM-SHA-256$"] {
        assert!(!proxy.process.log.iter().any(|line| line.contains(secret)), "{:?}", proxy.process.log);
    }
}

fn documented(fixture: &mut Fixture) {
    let (directory, file) = prepared(fixture, "");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sidecar/operations.md");
    let page = fs::read_to_string(page).expect("it is there");
    let (_, sql) = page.split_once("```sql\nCREATE ROLE auth").expect("the function is documented");
    let (sql, _) = sql.split_once("```").expect("it ends");
    let mut control = fixture.control();
    control
        .query("DROP SCHEMA IF EXISTS auth CASCADE; DROP ROLE IF EXISTS auth")
        .expect("nothing of an earlier test");
    control.query(&format!("CREATE ROLE auth{sql}")).expect("it is as documented");
    control.query("ALTER ROLE auth PASSWORD 'of auth'; GRANT toll_scram TO auth").expect("ours to change");
    write_secret(&directory.path().join("auth"), "of auth\n");
    let text = text("auth-query = \"SELECT * FROM auth.secret_of($1)\"").replace("\"asker\"", "\"auth\"");
    fs::write(&file, text).expect("ours to write");
    let proxy = fixture.proxy(&["--config", &file]);
    assert!(is_let_in(&proxy, "found", PASSWORD));
    for (user, password) in [("found", "wrong"), ("expired", PASSWORD), ("unfit", PASSWORD), (ASKER, "asks")]
    {
        let said = refusal(&proxy, user, password);
        assert!(said.contains("password authentication failed"), "{user}: {said}");
    }
    control.query("DROP SCHEMA auth CASCADE; DROP ROLE auth").expect("they were there");
}

fn unusable(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "");
    let mut proxy = fixture.proxy(&["--config", &file]);
    let wrong = refusal(&proxy, "found", "wrong");
    assert!(wrong.contains("password authentication failed for user USER"), "{wrong}");
    for user in ["expired", "unfit", "bare", "hashed", "nobody", "pg_monitor", "Found", "found "] {
        assert_eq!(refusal(&proxy, user, PASSWORD), wrong, "{user}");
    }
    proxy.process.await_line("event=auth-query-unusable");
    // The server takes the first 63 bytes of a name for all of it.
    let long = "x".repeat(63);
    let mut control = fixture.control();
    for sql in [
        format!("DROP ROLE IF EXISTS {long}"),
        format!("CREATE ROLE {long} LOGIN PASSWORD '{PASSWORD}' IN ROLE toll_scram"),
    ] {
        control.query(&sql).expect("a role");
    }
    assert!(is_let_in(&proxy, &long, PASSWORD));
    assert_eq!(refusal(&proxy, &format!("{long}x"), PASSWORD), wrong);
    // The exchange looks the same for users that do not exist.
    let [one, same, other, real] =
        ["nobody", "nobody", "no one", "found"].map(|user| challenge(&proxy, user));
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert!(
        [one, other, real]
            .iter()
            .all(|challenge| challenge.len() == 24 + ",i=4096".len() && challenge.ends_with(",i=4096"))
    );
    // No connection was opened for any of them.
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('found', 'expired', 'unfit', 'bare', 'hashed')";
    assert_eq!(crate::cases::one(&mut control, sql), "0");
}

fn search_path(fixture: &mut Fixture) {
    let query = "auth-query = \"SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1\"";
    let (_directory, file) = prepared(fixture, query);
    let (_other_directory, usual) = prepared(fixture, "");
    let mut control = fixture.control();
    let known = ciphertoll_wire::scram::Verifier::of(b"known to the attacker", 4096).expect("a secret");
    for sql in [
        "DROP SCHEMA IF EXISTS evil CASCADE",
        "CREATE SCHEMA evil",
        &format!(
            "CREATE TABLE evil.pg_authid AS SELECT name 'found' AS rolname, '{}' AS rolpassword, true AS rolcanlogin, \
                  NULL::timestamptz AS rolvaliduntil",
            known.text().as_str()
        ),
        "CREATE FUNCTION evil.never(name, name) RETURNS bool LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.never)",
        "GRANT USAGE ON SCHEMA evil TO PUBLIC",
        "GRANT SELECT ON evil.pg_authid TO PUBLIC",
        "ALTER ROLE asker SET search_path = evil, pg_catalog",
    ] {
        control.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for file in [file, usual] {
        let proxy = fixture.proxy(&["--config", &file]);
        let options = "-c search_path=evil,pg_catalog";
        let output = log_in(&proxy, "found", "known to the attacker", options);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("password authentication failed"), "{stderr}");
        assert!(log_in(&proxy, "found", PASSWORD, options).status.success());
    }
    control.query("DROP SCHEMA evil CASCADE").expect("it was there");
}

fn changed(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "");
    let proxy = fixture.proxy(&["--config", &file, "--pool-size", "2"]);
    assert!(is_let_in(&proxy, "found", PASSWORD));
    let mut control = fixture.control();
    control.query("ALTER ROLE found PASSWORD 'battery staple'").expect("a password");
    await_that("the new password is accepted", || is_let_in(&proxy, "found", "battery staple"));
    assert!(!is_let_in(&proxy, "found", PASSWORD), "the new secret is known now");
    // Connections are opened with the new one.
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'found'";
    control.query(kill).expect("the control role may do that");
    await_that("a new connection is opened", || is_let_in(&proxy, "found", "battery staple"));
    control.query("ALTER ROLE found VALID UNTIL '2001-01-01'").expect("an expiry");
    await_that("it has expired", || !is_let_in(&proxy, "found", "battery staple"));
}

fn failing(fixture: &mut Fixture) {
    for (query, reason) in [
        ("SELECT no_such_function($1)", "no_such_function"),
        ("SELECT $1::text", "two columns"),
        ("SELECT rolname, rolpassword FROM pg_authid WHERE $1 <> ''", "at most one row"),
    ] {
        let (_directory, file) = prepared(fixture, &format!("auth-query = \"{query}\""));
        let mut proxy = fixture.proxy(&["--config", &file]);
        let said = refusal(&proxy, "found", PASSWORD);
        assert!(said.contains("cannot look up users") && !said.contains(reason), "{said}");
        let line = proxy.process.await_line("event=auth-query-failed");
        assert!(line.contains(reason), "{line}");
        assert_eq!(proxy.sql(&["SELECT 1"]), "1", "a user of the settings");
    }
}

fn moved(fixture: &mut Fixture) {
    // With and without health checks.
    for health_time in ["1s", "0"] {
        moved_within(fixture, health_time);
    }
}

fn moved_within(fixture: &mut Fixture, health_time: &str) {
    let cluster = Cluster::start(fixture, 1);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    old.execute("SET password_encryption = 'scram-sha-256'");
    for user in ["found", "late"] {
        old.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'"));
    }
    let (_directory, file) = settings(&format!("auth-user = \"{}\"\n", old.user()));
    let url = cluster.url("&target_session_attrs=read-write");
    let proxy = fixture.proxy_to(&url, &["--config", &file, "--health-time", health_time]);
    let port = |user: &str, password: &str| {
        let mut psql = proxy.psql(&["-c", "SELECT inet_server_port()"]);
        let output = psql.args(["-U", user]).env("PGPASSWORD", password).output().expect("psql runs");
        let number = String::from_utf8_lossy(&output.stdout).trim().parse::<u16>();
        number.map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(port("found", PASSWORD), Ok(old.port));
    old.kill();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| port("late", PASSWORD));
        let refused = scope.spawn(|| port("late", "wrong"));
        new.promote();
        assert_eq!(waiting.join().expect("no panic"), Ok(new.port));
        let said = refused.join().expect("no panic").expect_err("it is wrong");
        assert!(said.contains("password authentication failed"), "{said}");
    });
    // A server that was left has passwords that are not valid any more.
    new.execute("ALTER SYSTEM SET synchronous_standby_names = ''");
    new.execute("SELECT pg_reload_conf()");
    new.execute("ALTER ROLE found PASSWORD 'battery staple'");
    old.start_again_alone();
    await_that("the new password is accepted", || port("found", "battery staple") == Ok(new.port));
    assert!(port("found", PASSWORD).is_err());
}

fn reloaded(fixture: &mut Fixture) {
    let (directory, file) = prepared(fixture, "");
    let mut proxy = fixture.proxy(&["--config", &file]);
    assert!(is_let_in(&proxy, "found", PASSWORD));
    let mut open = proxy.raw(&[]);
    assert_eq!(RawClient::error_state(&open.answer()), None);
    let named = text("").replace("auth-user = \"asker\"\n", "");
    fs::write(&file, named).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    let said = refusal(&proxy, "found", PASSWORD);
    assert!(said.contains("this proxy does not log in as USER"), "{said}");
    open.query("SELECT 1");
    assert_eq!(RawClient::error_state(&open.answer()), None, "others go on");
    drop(directory);
}
