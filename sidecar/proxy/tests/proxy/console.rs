//! The console: PgBouncer's commands over the listeners, the admin address and the command line.

use std::io::Read;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use ciphertoll_net::blocking::Client;
use ciphertoll_wire::postgres::startup::{encode_startup, encode_tls_request};
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::{cancel_request, one, try_one};
use crate::drivers::{PYTHON, imports};
use crate::fixture::{Fixture, Proxy, RawClient};
use crate::operations::{admin_of, await_that, second_user, settings};
use crate::process::LONG;

/// In both pooling modes.
pub(crate) const CASES: [Case; 12] = [
    ("psql reads every table of the console, and by the names of PgBouncer", tables),
    ("only users whom the settings name use the console", users),
    ("without the console its database is the server's", off),
    ("the console refuses the extended query protocol as PgBouncer does", extended),
    ("driver: psycopg reads the console", psycopg),
    ("commands of the admin address and of the command line are the same", admin_address),
    ("a disabled database takes no new clients", disabled),
    ("a client is killed by its number, and a database by its name", killed),
    ("a client that waits is served after another one was killed", killed_before_another),
    ("the console reloads the settings and says whether that worked", reloads),
    ("who may use the console is decided by the settings in force, at each command", other_rules),
    ("an upgrade is refused while a database is paused", upgrade),
];

/// Clients keep their connections until they leave.
pub(crate) const OF_SESSIONS: [Case; 2] = [
    ("a pause waits until clients have left", pause_of_sessions),
    ("a reconnect closes connections when their clients leave, and wait_close waits for it", reconnect),
];

const ALL: [&str; 20] = [
    "CLIENTS",
    "CONFIG",
    "DATABASES",
    "FDS",
    "LISTS",
    "PEERS",
    "PEER_POOLS",
    "POOLS",
    "SERVERS",
    "SOCKETS",
    "ACTIVE_SOCKETS",
    "STATS",
    "STATS_TOTALS",
    "STATS_AVERAGES",
    "USERS",
    "VERSION",
    "TOTALS",
    "MEM",
    "DNS_HOSTS",
    "STATE",
];

/// A proxy whose own user is an admin of the console.
pub(crate) fn proxy(fixture: &mut Fixture, more: &str, arguments: &[&str]) -> (Proxy, tempfile::TempDir) {
    let user =
        fixture.server().account(ciphertoll_model::Auth::default_of(ciphertoll_model::Engine::Postgres)).user;
    let (directory, file) = settings(&format!("{more}\n[console]\nadmin-users = [\"{user}\"]\n"));
    let admin = format!("unix:{}", directory.path().join("admin").display());
    let all = [&["--config", &file, "--admin", &admin], arguments].concat();
    (fixture.proxy(&all), directory)
}

/// psql's output in the console, with tuples only.
pub(crate) fn console(proxy: &Proxy, command: &str) -> Result<String, String> {
    console_as(proxy, &proxy.user, command)
}

fn console_as(proxy: &Proxy, user: &str, command: &str) -> Result<String, String> {
    let mut psql = proxy.psql(&["-F", "|", "-U", user, "-d", "pgbouncer", "-c", command]);
    let output = psql.output().expect("psql runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim_end().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Runs a command of the console on a thread; the channel has its result.
pub(crate) fn start(proxy: &Proxy, command: &'static str) -> Receiver<Result<String, String>> {
    let (done, result) = mpsc::channel();
    let mut psql = proxy.psql(&["-d", "pgbouncer", "-c", command]);
    thread::spawn(move || {
        let output = psql.output().expect("psql runs");
        let error = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        let _ = done.send(if output.status.success() { Ok(String::new()) } else { Err(error) });
    });
    result
}

/// The value of a column in the rows of `SHOW` for which another column has a value.
fn value(proxy: &Proxy, show: &str, column: &str, (key, is): (&str, &str)) -> Vec<String> {
    let output =
        proxy.psql(&["-x", "-F", "|", "-P", "tuples_only=off", "-d", "pgbouncer", "-c", show]).output();
    let text = String::from_utf8(output.expect("psql runs").stdout).expect("text");
    let of = |record: &str, name: &str| {
        let mut lines = record.lines().filter_map(|line| line.split_once('|'));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    let records = text.split("\n\n").filter(|record| of(record, key).as_deref() == Some(is));
    records.map(|record| of(record, column).unwrap_or_else(|| panic!("{column}: {text}"))).collect()
}

/// The server connections of the proxy's user.
pub(crate) fn open(fixture: &Fixture, proxy: &Proxy) -> String {
    let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", proxy.user);
    one(&mut fixture.control(), &sql)
}

pub(crate) fn await_state(proxy: &Proxy, show: &str, column: &str, is: &str) {
    await_that(&format!("{column} of {show} is {is}"), || {
        value(proxy, show, column, ("database", &proxy.database)).first().map(String::as_str) == Some(is)
    });
}

/// How long a client of the database has waited, in seconds.
pub(crate) fn maxwait(proxy: &Proxy) -> Option<u64> {
    value(proxy, "SHOW POOLS", "maxwait", ("database", &proxy.database)).first()?.parse().ok()
}

fn tables(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &[]);
    let mut client = proxy.client();
    assert_eq!(one(&mut client, "SELECT 1"), "1");
    for show in ALL {
        console(&proxy, &format!("SHOW {show};")).unwrap_or_else(|error| panic!("{show}: {error}"));
    }
    let mut psql = Command::new("psql");
    psql.args(["-X", "-h", &proxy.directory.display().to_string(), "-p", &proxy.port.to_string()]);
    psql.args(["-U", &proxy.user, "-d", "pgbouncer", "-c", "SHOW POOLS"]);
    let text = String::from_utf8(psql.output().expect("psql runs").stdout).expect("text");
    let names: Vec<&str> = text.lines().next().unwrap_or_default().split('|').map(str::trim).collect();
    let expected = "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active \
                    sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us \
                    pool_mode load_balance_hosts";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>(), "{text}");
    assert!(text.contains("(2 rows)"), "{text}");
    let mode = if proxy.is_session_mode() { "session" } else { "transaction" };
    let of_database = ("database", proxy.database.as_str());
    assert_eq!(value(&proxy, "SHOW POOLS", "pool_mode", of_database), [mode]);
    assert_eq!(value(&proxy, "SHOW POOLS", "cl_active", of_database), ["1"]);
    let state = if proxy.is_session_mode() { "active" } else { "idle" };
    assert_eq!(value(&proxy, "SHOW CLIENTS", "state", of_database), [state]);
    // The server's own number of the connection.
    let process = one(&mut client, "SELECT pg_backend_pid()");
    assert_eq!(value(&proxy, "SHOW SERVERS", "remote_pid", of_database), [process]);
    assert_eq!(value(&proxy, "SHOW STATS_TOTALS", "client_login_count", of_database), ["1"]);
    let sent = value(&proxy, "SHOW STATS_TOTALS", "bytes_sent", of_database);
    assert!(sent[0].parse::<u64>().expect("a number") > 20, "{sent:?}");
    assert!(console(&proxy, "SHOW VERSION").expect("a version").starts_with("ciphertoll-proxy "));
    assert_eq!(console(&proxy, "SHOW client_encoding").as_deref(), Ok("UTF-8"));
    console(&proxy, "SHOW HELP").expect("a notice");
    for (command, reason) in [
        ("SHOW NOTHING", "invalid command 'SHOW NOTHING', use SHOW HELP;"),
        ("SELECT 1", "invalid command 'SELECT 1', use SHOW HELP;"),
        ("RESUME", "pooler is not paused/suspended"),
        ("RESUME shop", "database shop is not paused"),
        ("PAUSE pgbouncer", "cannot pause admin db: pgbouncer"),
        ("KILL_CLIENT 2147483647", "client not found"),
        ("SUSPEND", "SUSPEND is not supported"),
        ("SET verbose = 1", "SET is not supported"),
    ] {
        let error = console(&proxy, command).expect_err(command);
        assert!(error.contains(reason), "{command}: {error}");
    }
}

fn users(fixture: &mut Fixture) {
    let text = "unix-auth = \"scram\"\n[console]\nadmin-users = [\"boss\"]\nstats-users = [\"second\"]\nown-uid = true\n\
                [[user]]\nname = \"second\"\npassword-file = \"second\"\n[[user]]\nname = \"boss\"\npassword-file = \"second\"\n";
    let (directory, file) = settings(text);
    second_user(fixture, directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let as_user = |user: &str, password: &str, command: &str| {
        let mut psql = proxy.psql(&["-U", user, "-d", "pgbouncer", "-c", command]);
        let output = psql.env("PGPASSWORD", password).output().expect("psql runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    };
    assert_eq!(as_user("boss", "first one", "DISABLE nothing"), Ok(()));
    assert_eq!(as_user("second", "first one", "SHOW POOLS"), Ok(()));
    // The tests have the proxy's UID.
    assert_eq!(as_user("pgbouncer", "", "ENABLE nothing"), Ok(()));
    let own = String::from_utf8(fixture.password()).expect("text");
    for (user, password, command, reason) in [
        ("second", "first one", "PAUSE", "admin access needed"),
        ("second", "first one", "SHOW FDS", "admin access needed"),
        ("boss", "wrong", "SHOW POOLS", "password authentication failed"),
        (proxy.user.as_str(), own.as_str(), "SHOW POOLS", "may not use the console"),
    ] {
        let error = as_user(user, password, command).expect_err(user);
        assert!(error.contains(reason), "{user}: {error}");
    }
    // Nothing else is open to this user without a password.
    let error = proxy.psql(&["-U", "pgbouncer", "-c", "SELECT 1"]).output().expect("psql runs");
    assert!(!error.status.success());
}

fn off(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--admin", "tcp:127.0.0.1:0"]);
    let error = console(&proxy, "SHOW POOLS").expect_err("the server has no such database");
    // Its access rules come first.
    assert!(error.contains("database \"pgbouncer\"") && !error.contains("console"), "{error}");
    let place = format!("tcp:{}", admin_of(&proxy));
    let output =
        fixture.program().args(["console", "SHOW POOLS", "--admin", &place]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no [console]"));
}

fn extended(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &[]);
    let mut raw = proxy.raw(&[("database", "pgbouncer")]);
    raw.answer();
    // Parse of an unnamed statement.
    raw.send(b"P\0\0\0\x12\0SHOW POOLS\0\0\0");
    let (kind, payload) = raw.message().expect("an error");
    let text = String::from_utf8_lossy(&payload).into_owned();
    assert!(
        kind == b'E' && text.contains("extended query protocol not supported by admin console"),
        "{text}"
    );
    assert!(raw.message().is_err(), "the connection is closed");
}

fn psycopg(fixture: &mut Fixture) {
    if !imports("psycopg") {
        return ciphertoll_testing::missing("psycopg is not here (the package python3-psycopg)");
    }
    let (proxy, _directory) = proxy(fixture, "", &[]);
    let program = "import psycopg, sys\n\
        connection = psycopg.connect(host=sys.argv[1], port=sys.argv[2], user=sys.argv[3], dbname='pgbouncer', autocommit=True)\n\
        cursor = connection.execute('SHOW DATABASES')\n\
        names = [column.name for column in cursor.description]\n\
        rows = [dict(zip(names, row)) for row in cursor]\n\
        print([row['paused'] for row in rows if row['name'] == 'pgbouncer'], rows[0]['pool_size'])\n";
    let mut python = Command::new(PYTHON);
    python.args([
        "-c",
        program,
        &proxy.directory.display().to_string(),
        &proxy.port.to_string(),
        &proxy.user,
    ]);
    let output = python.output().expect("it runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "[0] 20\n");
}

fn admin_address(fixture: &mut Fixture) {
    let (proxy, directory) = proxy(fixture, "", &[]);
    let (_tcp_directory, file) = settings("[console]\n");
    let by_tcp = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    let place = format!("unix:{}", directory.path().join("admin").display());
    let run = |command: &str, place: &str, more: &[&str]| {
        let mut program = fixture.program();
        let output =
            program.args(["console", command, "--admin", place]).args(more).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout) + &text(output.stderr))
    };
    let (code, text) = run("SHOW STATE", &place, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("    key    | value\n-----------+-------\n active    | yes\n"), "{text}");
    let (_, text) = run("SHOW DATABASES", &place, &["--json"]);
    let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(rows[0]["pool_size"], 20);
    assert_eq!(run("PAUSE shop", &place, &[]), (Some(0), "PAUSE\n".to_owned()));
    let (code, text) = run("PAUSE shop", &place, &[]);
    assert_eq!(code, Some(7));
    assert!(text.contains("database shop is already paused"), "{text}");
    assert_eq!(console(&proxy, "RESUME shop").as_deref(), Ok(""));
    let (code, text) = run("NONSENSE", &place, &[]);
    assert!(code == Some(7) && text.contains("invalid command 'NONSENSE'"), "{text}");
    // Any process of the machine can connect by TCP.
    let place = format!("tcp:{}", admin_of(&by_tcp));
    assert_eq!(run("SHOW VERSION", &place, &[]).0, Some(0));
    for command in ["PAUSE", "SHUTDOWN", "SHOW FDS", "KILL"] {
        let (code, text) = run(command, &place, &[]);
        assert!(code == Some(7) && text.contains("admin access needed"), "{command}: {text}");
    }
}

fn disabled(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &[]);
    let mut before = proxy.client();
    let quoted = format!("DISABLE {}", proxy.database);
    assert_eq!(console(&proxy, &quoted).as_deref(), Ok(""));
    let error = proxy.try_client().map(drop).expect_err("new clients are refused").to_string();
    assert!(error.contains("is disabled"), "{error}");
    assert_eq!(one(&mut before, "SELECT 1"), "1");
    assert_eq!(value(&proxy, "SHOW DATABASES", "disabled", ("name", &proxy.database)), ["1"]);
    assert_eq!(console(&proxy, &format!("ENABLE {}", proxy.database)).as_deref(), Ok(""));
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

/// The waiting client gets a connection other than the closed one.
fn killed_before_another(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "1"]);
    for begin in ["SELECT 1", "BEGIN"] {
        let mut raw = proxy.raw(&[("application_name", "victim")]);
        raw.answer();
        raw.query(begin);
        raw.answer();
        let id = value(&proxy, "SHOW CLIENTS", "id", ("application_name", "victim")).remove(0);
        let waiting = waiting_query(&proxy);
        if !proxy.is_session_mode() && begin == "SELECT 1" {
            assert_eq!(waiting.recv_timeout(LONG).expect("it is served"), "served");
            assert_eq!(console(&proxy, &format!("KILL_CLIENT {id}")).as_deref(), Ok(""));
            continue;
        }
        await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
        assert_eq!(console(&proxy, &format!("KILL_CLIENT {id}")).as_deref(), Ok(""));
        assert_eq!(waiting.recv_timeout(LONG).expect("it is served"), "served");
    }
}

fn killed(fixture: &mut Fixture) {
    let (mut proxy, _directory) = proxy(fixture, "", &[]);
    let mut raw = proxy.raw(&[("application_name", "victim")]);
    raw.answer();
    raw.query("BEGIN");
    raw.answer();
    let mut other = proxy.client();
    let of_victim = ("application_name", "victim");
    let id = value(&proxy, "SHOW CLIENTS", "id", of_victim).remove(0);
    assert_eq!(console(&proxy, &format!("KILL_CLIENT {id}")).as_deref(), Ok(""));
    assert_eq!(RawClient::error_state(&raw.answer()).as_deref(), Some("57P01"));
    assert!(
        console(&proxy, &format!("KILL_CLIENT {id}")).expect_err("it is gone").contains("client not found")
    );
    assert_eq!(one(&mut other, "SELECT 1"), "1");
    // All clients of the database: later ones wait.
    assert_eq!(console(&proxy, "KILL").as_deref(), Ok(""));
    assert!(try_one(&mut other, "SELECT 1").is_err());
    await_that("no connection is open", || open(fixture, &proxy) == "0");
    let waiting = waiting_query(&proxy);
    await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
    assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
    assert_eq!(waiting.recv_timeout(LONG).expect("it is served"), "served");
    assert!(proxy.process.count("event=console command=KILL") > 0, "{:#?}", proxy.process.log);
}

/// A client that connects and has a query served, perhaps much later.
fn waiting_query(proxy: &Proxy) -> Receiver<String> {
    let (done, result) = mpsc::channel();
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    thread::spawn(move || {
        let served = crate::fixture::client_at(&socket, &user, &database)
            .and_then(|mut client| try_one(&mut client, "SELECT 'served'"));
        let _ = done.send(served.unwrap_or_else(|error| error.to_string()));
    });
    result
}

fn reloads(fixture: &mut Fixture) {
    let (mut proxy, directory) = proxy(fixture, "", &[]);
    assert_eq!(console(&proxy, "RELOAD").as_deref(), Ok(""));
    proxy.process.await_line("event=reloaded");
    let file = directory.path().join("proxy.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text.clone() + "nonsense").expect("ours to write");
    let error = console(&proxy, "RELOAD").expect_err("it fails");
    assert!(error.contains("RELOAD failed, see logs"), "{error}");
    // Another list of users is in force at once.
    std::fs::write(&file, text.replace("admin-users", "stats-users")).expect("ours to write");
    assert_eq!(console(&proxy, "RELOAD").as_deref(), Ok(""));
    assert!(console(&proxy, "RELOAD").expect_err("no admin").contains("admin access needed"));
}

/// Settings that change after a client has connected, and after it has logged in.
fn other_rules(fixture: &mut Fixture) {
    let user = "[[user]]\nname = \"pgbouncer\"\npassword-file = \"second\"\n";
    let (mut proxy, directory) = proxy(fixture, "", &[]);
    second_user(fixture, directory.path());
    let file = directory.path().join("proxy.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    let reload = |proxy: &mut Proxy, text: &str| {
        std::fs::write(&file, text).expect("ours to write");
        let before = proxy.process.count("event=reloaded");
        proxy.process.signal(Signal::SIGHUP);
        await_that("it is reloaded", || proxy.process.count("event=reloaded") > before);
    };
    let trusting = format!("{text}own-uid = true\n{user}");
    reload(&mut proxy, &trusting);
    let socket = proxy.socket();
    let [mut first, mut second] = [(); 2].map(|()| RawClient::connect(&socket));
    // Both are accepted while the proxy's own UID is trusted.
    for raw in [&mut first, &mut second] {
        let mut request = Vec::new();
        encode_tls_request(&mut request);
        raw.send(&request);
        let mut answer = [0; 1];
        raw.stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, *b"N");
    }
    let database = ("database", "pgbouncer");
    let mut admin = proxy.raw(&[database]);
    admin.answer();
    let mut command = |text: &str| {
        admin.query(text);
        RawClient::error_state(&admin.answer())
    };
    assert_eq!(command("DISABLE nothing"), None);
    let mut startup = Vec::new();
    encode_startup(&mut startup, &[("user", "pgbouncer"), database]).expect("a start-up");
    let rules = "[console]\nadmin-users = [\"pgbouncer\"]\nstats-users";
    reload(&mut proxy, &format!("{}{user}", text.replace("[console]\nadmin-users", rules)));
    first.send(&startup);
    assert_eq!(RawClient::error_state(&first.answer()).as_deref(), Some("28000"));
    assert!(command("PAUSE").is_some(), "it is not an admin any more");
    assert_eq!(command("SHOW POOLS"), None);
    reload(&mut proxy, user);
    second.send(&startup);
    assert_eq!(RawClient::error_state(&second.answer()).as_deref(), Some("28000"));
    assert_eq!(command("SHOW POOLS").as_deref(), Some("28000"));
}

fn upgrade(fixture: &mut Fixture) {
    let (mut proxy, _directory) = proxy(fixture, "", &[]);
    assert_eq!(console(&proxy, "PAUSE").as_deref(), Ok(""));
    proxy.process.signal(Signal::SIGUSR2);
    let line = proxy.process.await_line("event=upgrade-failed");
    assert!(line.contains("paused or disabled"), "{line}");
    assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn pause_of_sessions(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "3"]);
    let mut client = proxy.client();
    drop(proxy.client());
    let pause = start(&proxy, "PAUSE");
    await_state(&proxy, "SHOW DATABASES", "paused", "1");
    // The client still has its connection; others wait.
    assert_eq!(one(&mut client, "SELECT 1"), "1");
    let waiting = waiting_query(&proxy);
    await_state(&proxy, "SHOW POOLS", "cl_waiting", "1");
    assert!(pause.try_recv().is_err() && waiting.try_recv().is_err());
    drop(client);
    assert_eq!(pause.recv_timeout(LONG).expect("it ends"), Ok(String::new()));
    await_that("no connection is open", || open(fixture, &proxy) == "0");
    assert_eq!(console(&proxy, "RESUME").as_deref(), Ok(""));
    assert_eq!(waiting.recv_timeout(LONG).expect("it is served"), "served");
}

fn reconnect(fixture: &mut Fixture) {
    let (proxy, _directory) = proxy(fixture, "", &["--pool-size", "2"]);
    let process = |client: &mut Client| one(client, "SELECT pg_backend_pid()");
    let mut client = proxy.client();
    let old = process(&mut client);
    assert_eq!(console(&proxy, "RECONNECT").as_deref(), Ok(""));
    let of_old = ("remote_pid", old.as_str());
    assert_eq!(value(&proxy, "SHOW SERVERS", "close_needed", of_old), ["1"]);
    let wait = start(&proxy, "WAIT_CLOSE");
    // New connections are opened meanwhile.
    assert_ne!(process(&mut proxy.client()), old);
    assert_eq!(process(&mut client), old);
    assert!(wait.try_recv().is_err());
    drop(client);
    assert_eq!(wait.recv_timeout(LONG).expect("it ends"), Ok(String::new()));
    assert!(value(&proxy, "SHOW SERVERS", "close_needed", of_old).is_empty());
    assert_eq!(console(&proxy, "WAIT_CLOSE").as_deref(), Ok(""));
}

/// A `PAUSE` that is cancelled, as by Ctrl-C in psql.
pub(crate) fn cancel(proxy: &Proxy, raw: &mut RawClient) -> Option<String> {
    let (process_id, key) = (raw.process_id, raw.key.clone());
    let mut canceller = proxy.raw_silent();
    canceller.send(&cancel_request(process_id, &key));
    assert!(canceller.message().is_err());
    RawClient::error_state(&raw.answer())
}
