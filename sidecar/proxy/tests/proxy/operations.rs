//! Operation: configuration, status and metrics, health of connections, shutdown.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, PORT, Proxy, RawClient};
use crate::process::LONG;

/// In both pooling modes.
pub(crate) const CASES: [Case; 8] = [
    ("settings are read from a file, and checked without serving", checked),
    ("the shipped examples are valid", examples),
    ("health depends on whether the server is reachable", healthz),
    ("a connection that fails its health check is closed", stopped_process),
    ("connections are not shared between users", users),
    ("the unix socket can require a password", unix_passwords),
    ("a stop under load cuts no client off", stop_under_load),
    ("the service manager is notified", service_manager),
];

/// Cases in which idle clients must keep their connections.
pub(crate) const OF_SESSIONS: [Case; 3] = [
    ("metrics and status", metrics),
    ("connections are opened in advance", warm_up),
    ("the wait queue is limited", queue_limit),
];

/// Waits until `condition` returns true, or fails.
pub(crate) fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not within {LONG:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the admin address in a proxy's log answers.
pub(crate) fn json(log: &[String], path: &str) -> serde_json::Value {
    serde_json::from_str(&get(admin_address(log), path).1).expect("JSON")
}

/// A configuration file in its own directory.
pub(crate) fn settings(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("proxy.toml");
    fs::write(&file, text).expect("ours to write");
    let file = file.display().to_string();
    (directory, file)
}

/// The admin address in the proxy's log.
pub(crate) fn admin_of(proxy: &Proxy) -> SocketAddr {
    admin_address(&proxy.process.log)
}

pub(crate) fn admin_address(log: &[String]) -> SocketAddr {
    let line = log.iter().find(|line| line.contains("event=admin")).expect("it said where");
    line.split_once("at=tcp:").and_then(|(_, address)| address.parse().ok()).expect("an address")
}

/// Repeats what must be done within a short queue time, until that was long enough.
pub(crate) fn in_queue_time<T>(mut step: impl FnMut() -> Result<T, ciphertoll_net::Error>) -> T {
    let until = Instant::now() + LONG;
    loop {
        let error = match step() {
            Ok(done) => return done,
            Err(error) => error,
        };
        let was_too_short = error.to_string().contains("no server connection became free");
        assert!(was_too_short && Instant::now() < until, "{error}");
    }
}

/// Status code and body. If a worker does not answer in time, the request is repeated.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let until = Instant::now() + LONG;
    loop {
        let (code, body) = get_once(address, path);
        if code != 503 || !body.contains("does not answer") || Instant::now() >= until {
            return (code, body);
        }
    }
}

fn get_once(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers and closes");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, body.to_owned())
}

/// Samples by name and labels.
pub(crate) fn samples(address: SocketAddr) -> BTreeMap<String, f64> {
    let (code, body) = get(address, "/metrics");
    assert_eq!(code, 200, "{body}");
    let samples = body.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let name = name.strip_prefix("ciphertoll_proxy_").expect("ours");
        (name.to_owned(), value.parse().expect("a number"))
    });
    samples.collect()
}

fn backends(control: &mut Client, user: &str) -> String {
    one(control, &format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'"))
}

fn checked(fixture: &mut Fixture) {
    let run = |file: &str, more: &[&str]| -> Output {
        fixture.program().args(["--check", "--config", file]).args(more).output().expect("it runs")
    };
    let url = fixture.url("");
    let text = format!("listen = \"unix:/nowhere/at/all/s\"\nserver = \"{url}\"\n[limits]\npool-size = 3\n");
    let (_directory, file) = settings(&text);
    let output = run(&file, &["--pool-size", "4"]);
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("ok\n") && stdout.contains("\npool-size = 4\n"), "{stdout}");
    assert!(!stdout.contains(&String::from_utf8(fixture.password()).expect("text")), "{stdout}");
    // The output is a file of the same settings.
    let (_again, printed) = settings(stdout.strip_prefix("ok\n").expect("ok"));
    assert_eq!(String::from_utf8(run(&printed, &[]).stdout).expect("text"), stdout);
    // libpq does not look for a socket of this name.
    let warning = "libpq cannot connect to unix:/nowhere/at/all/s: it expects the name .s.PGSQL.PORT";
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches(warning).count(), 1);
    let wrong_ca = text.replace("sslrootcert=", "sslrootcert=/nowhere");
    let no_file = "\n[[user]]\nname = \"x\"\npassword-file = \"nowhere\"";
    for (text, reason) in [
        (text.replace("pool-size", "pool-sise"), "did you mean \"pool-size\"?"),
        (text.clone() + no_file, "nowhere"),
        (wrong_ca, "/nowhere"),
        (text.replace("postgres://", "postgres://a:hunter2@"), "--server"),
        (String::new(), "\"listen\""),
    ] {
        let (_directory, file) = settings(&text);
        let output = run(&file, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{text}: {stderr}");
        assert!(stderr.contains(reason) && !stderr.contains("hunter2"), "{stderr}");
    }
    let schema = fixture.program().arg("schema").output().expect("it runs");
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).expect("JSON");
    assert!(schema["properties"]["listen"].is_object(), "{schema:#}");
    let json = ["--listen", "unix:/nowhere/at/all/s", "--server", &url, "--log-format", "json"];
    let output = fixture.program().args(json).output().expect("it runs");
    let event: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one object");
    assert_eq!((output.status.code(), &event["event"]), (Some(9), &"not-started".into()), "{event:#}");
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn examples(fixture: &mut Fixture) {
    let text = fs::read_to_string(packaging("ciphertoll-proxy.toml")).expect("it is shipped");
    let ca = fixture.server().ca_file().display().to_string();
    let (directory, _) = settings("");
    write_secret(&directory.path().join("app"), "x");
    write_secret(&directory.path().join("reports"), "x");
    // The reader's own files are replaced by the test's; comments that show further settings are uncommented.
    let credentials = directory.path().display().to_string();
    let text = text
        .replace("/etc/ciphertoll-proxy/db-ca.pem", &ca)
        .replace("db.example", "127.0.0.1")
        .replace("/run/credentials/ciphertoll-proxy.service", &credentials);
    let all = text.replace("\n#: ", "\n");
    assert_ne!(text, all, "it shows further settings in comments");
    for text in [text, all] {
        let (_directory, file) = settings(&text);
        let output = fixture.program().args(["--check", "--config", &file]).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
    }
    let unit = packaging("ciphertoll-proxy.service");
    let unit_text = fs::read_to_string(&unit).expect("it is shipped");
    // The program need not be installed to check its unit.
    let here = directory.path().join("ciphertoll-proxy.service");
    let installed = "/usr/bin/ciphertoll-proxy";
    assert!(unit_text.contains(installed), "{unit_text}");
    fs::write(&here, unit_text.replace(installed, env!("CARGO_BIN_EXE_ciphertoll-proxy"))).expect("ours");
    match Command::new("systemd-analyze").arg("verify").arg(&here).output() {
        Ok(output) => {
            let output = String::from_utf8_lossy(&output.stderr);
            assert!(!output.contains("ciphertoll-proxy.service"), "{output}");
        }
        Err(_) => ciphertoll_testing::not_for_all("systemd-analyze is not here: the unit is not verified"),
    }
}

fn metrics(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--admin", "tcp:127.0.0.1:0", "--pool-size", "2"]);
    let admin = admin_of(&proxy);
    let user = proxy.user.clone();
    for _ in 0..3 {
        assert_eq!(one(&mut proxy.client(), "SELECT 'twelve bytes'"), "twelve bytes");
    }
    let mut long_lived = proxy.client();
    assert_eq!(one(&mut long_lived, "SELECT 1"), "1");
    assert_eq!(
        RawClient::error_state(&proxy.raw(&[("replication", "true")]).answer()).as_deref(),
        Some("0A000")
    );
    let state = format!("{{user=\"{user}\",database=\"{}\",state=\"", fixture.server().database());
    await_that("three clients have left", || {
        let samples = samples(admin);
        let is =
            |name: &str, value: f64| (samples.get(name).copied().unwrap_or_default() - value).abs() < 0.5;
        // A client may come before the previous session is cleaned up, so a second connection may be opened.
        let opened = samples["connects_total"];
        let idle = samples[&format!("server_connections{state}idle\"}}")];
        (1.0..=2.0).contains(&opened)
            && is("sessions_total", 4.0)
            && is("clients_total", 5.0)
            && is("resets_total", 3.0)
            && is("queue_wait_seconds_count", 4.0)
            && is("queue_wait_seconds_bucket{le=\"+Inf\"}", 4.0)
            && is("refusals_total{sqlstate=\"0A000\"}", 1.0)
            && is("clients{state=\"in_session\"}", 1.0)
            && is(&format!("server_connections{state}busy\"}}"), 1.0)
            && is("server_connections_max", 2.0)
            && (idle - (opened - 1.0)).abs() < 0.5
    });
    let before = samples(admin);
    let big = one(&mut long_lived, "SELECT repeat('x', 1000000)");
    let after = samples(admin);
    let grown = |name: &str| after[name] - before[name];
    let down = grown("bytes_total{direction=\"to_client\"}");
    assert!((1e6..1.001e6).contains(&down) && big.len() == 1_000_000, "{down}");
    assert!((20.0..100.0).contains(&grown("bytes_total{direction=\"to_server\"}")));
    let expiry =
        format!("certificate_expiry_timestamp_seconds{{file=\"{}\"}}", fixture.server().ca_file().display());
    assert!(after[&expiry] > after["start_time_seconds"], "{after:#?}");
    // The same as text and as JSON.
    let place = format!("tcp:{admin}");
    let output = fixture.program().args(["status", "--admin", &place]).output().expect("it runs");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && table.contains(" of 2\n") && table.contains(&user), "{table}");
    let status: serde_json::Value = serde_json::from_str(&get(admin, "/status").1).expect("JSON");
    assert_eq!((&status["clients"]["in_session"], &status["pools"][0]["busy"]), (&1.into(), &1.into()));
    assert_eq!(get(admin, "/nothing").0, 404);
    drop(proxy);
    let output = fixture.program().args(["status", "--admin", &place]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(7));
}

fn healthz(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_of(&proxy);
    // No client has needed a connection yet, so one is opened to find out.
    await_that("it is well", || get(admin, "/healthz").0 == 200);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    let url = fixture.url("").replace(&format!(":{}/", fixture.server_port()), ":1/");
    let proxy = fixture.proxy_to(&url, &["--admin", "tcp:127.0.0.1:0"]);
    assert_eq!(get(admin_of(&proxy), "/healthz").0, 503);
    await_that("an attempt has failed", || {
        samples(admin_of(&proxy)).contains_key("connect_failures_total{reason=\"unreachable\"}")
    });
    assert_eq!(get(admin_of(&proxy), "/healthz").0, 503);
}

fn warm_up(fixture: &mut Fixture) {
    let mut control = fixture.control();
    let proxy = fixture.proxy(&["--warm-up", "2", "--idle-time", "0.3", "--admin", "tcp:127.0.0.1:0"]);
    let admin = admin_of(&proxy);
    await_that("two are there", || (samples(admin)["connects_total"] - 2.0).abs() < 0.5);
    // Of three idle connections, one is surplus.
    let clients = [proxy.client(), proxy.client(), proxy.client()];
    drop(clients);
    await_that("the third is closed", || {
        samples(admin).get("closed_total{reason=\"idle\"}").is_some_and(|closed| *closed > 0.5)
    });
    // A lost connection is replaced although no client waits for one.
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let opened = samples(admin)["connects_total"];
    assert_eq!(one(&mut control, &format!("SELECT pg_terminate_backend({process})")), "t");
    await_that("it is replaced", || samples(admin)["connects_total"] > opened + 0.5);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn stopped_process(fixture: &mut Fixture) {
    let (_directory, file) =
        settings("health-time = \"100ms\"\n[limits]\nreset-time = \"5s\"\nidle-time = \"1h\"");
    let mut proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let idle = || {
        samples(admin_of(&proxy)).into_iter().any(|(name, count)| name.ends_with("\"idle\"}") && count > 0.5)
    };
    await_that("its client has left", idle);
    let process = Pid::from_raw(process.parse().expect("a number"));
    kill(process, Signal::SIGSTOP).expect("the server's processes are ours");
    let line = proxy.process.await_line("event=server-closed");
    // No client was given this connection meanwhile.
    let after = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    kill(process, Signal::SIGCONT).expect("it is still there");
    assert!(line.contains("it did not answer in time"), "{line}");
    assert_ne!(after, process.to_string());
    // A connection that answers stays open, and a client that comes during the check waits for it.
    let (_directory, file) = settings("health-time = \"50ms\"\n[limits]\npool-size = 1\n");
    let proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0"]);
    let process = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    await_that("it is asked", || samples(admin_of(&proxy))["checks_total"] > 2.5);
    assert_eq!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), process);
}

fn queue_limit(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "1", "--queue-limit", "1", "--admin", "tcp:127.0.0.1:0"]);
    let first = proxy.client();
    let mut waits = proxy.raw(&[]);
    await_that("one waits", || samples(admin_of(&proxy))["clients{state=\"queued\"}"] > 0.5);
    assert_eq!(RawClient::error_state(&proxy.raw(&[]).answer()).as_deref(), Some("53300"));
    drop(first);
    assert_eq!(waits.answer().last().map(|(kind, _)| *kind), Some(b'Z'));
}

/// Creates a second role, with its password in a file.
pub(crate) fn second_user(fixture: &Fixture, directory: &Path) -> String {
    const NAME: &str = "second";
    let mut control = fixture.control();
    let group = one(&mut control, "SELECT rolname FROM pg_roles WHERE rolname = 'toll_scram'");
    control.query(&format!("DROP ROLE IF EXISTS {NAME}")).expect("no role");
    control.query(&format!("CREATE ROLE {NAME} LOGIN PASSWORD 'first one' IN ROLE {group}")).expect("a role");
    write_secret(&directory.join("second"), "first one\n");
    NAME.to_owned()
}

pub(crate) fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).expect("ours to write");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours to change");
}

fn users(fixture: &mut Fixture) {
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file, "--pool-size", "4"]);
    let who = |client: &mut Client| {
        let row = one(client, "SELECT session_user || ' ' || pg_backend_pid()");
        row.split_once(' ').map(|(user, process)| (user.to_owned(), process.to_owned())).expect("two words")
    };
    let mut processes: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..20 {
        for user in [None, Some(second.as_str())] {
            let client = user.map_or_else(|| proxy.try_client(), |user| proxy.try_client_as(user));
            let (session, process) = who(&mut client.expect("the login succeeds"));
            assert_eq!(session == second, user.is_some());
            let owner = processes.entry(process).or_insert_with(|| session.clone());
            assert_eq!(*owner, session, "a connection has served two users");
        }
    }
    let Err(error) = proxy.try_client_as("third") else { panic!("the user is unknown") };
    assert!(error.to_string().contains("does not log in as \"third\""), "{error}");
    // Both users at the limit: an idle connection of the other user is evicted, not handed over.
    drop(proxy);
    proxy = fixture.proxy(&["--config", &file, "--pool-size", "1"]);
    let (_, first) = who(&mut proxy.client());
    let (session, process) = who(&mut proxy.try_client_as(&second).expect("the login succeeds"));
    assert_eq!(session, second);
    assert_ne!(first, process);
    // Connections of the previous proxy may take a while to end.
    await_that("one is left", || backends(&mut fixture.control(), &second) == "1");
}

fn unix_passwords(fixture: &mut Fixture) {
    let (directory, file) =
        settings("unix-auth = \"scram\"\n[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let mode = fs::metadata(proxy.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    let own = String::from_utf8(fixture.password()).expect("text");
    for (user, password, succeeds) in [
        (proxy.user.as_str(), own.as_str(), true),
        (&second, "first one", true),
        (&second, &own, false),
        (&proxy.user, "first one", false),
    ] {
        let output = proxy
            .psql(&["-U", user, "-c", "SELECT session_user"])
            .env("PGPASSWORD", password)
            .output()
            .expect("psql runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), succeeds, "{user}: {stderr}");
        let printed = if succeeds { String::from_utf8_lossy(&output.stdout) } else { stderr };
        let expected = if succeeds { user } else { "password authentication failed" };
        assert!(printed.contains(expected), "{printed}");
    }
}

fn stop_under_load(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "4"]);
    let started = AtomicBool::new(false);
    let socket = proxy.socket();
    let refused: usize = thread::scope(|scope| {
        let (shared, started): (&Proxy, _) = (&proxy, &started);
        let client_loops: Vec<_> = (0..8)
            .map(|client_loop| {
                scope.spawn(move || {
                    for round in 0_u32.. {
                        // A client that comes too late is told so, or finds no socket.
                        let Ok(mut client) = shared.try_client() else { return round };
                        for step in 0..3 {
                            let nonce = format!("{client_loop}-{round}-{step}");
                            assert_eq!(one(&mut client, &format!("SELECT '{nonce}'")), nonce);
                        }
                        started.store(true, Ordering::Relaxed);
                    }
                    0
                })
            })
            .collect();
        await_that("the load has begun", || started.load(Ordering::Relaxed));
        shared.process.signal(Signal::SIGTERM);
        client_loops
            .into_iter()
            .map(|client_loop| client_loop.join().expect("no session was cut off"))
            .filter(|rounds| *rounds > 0)
            .count()
    });
    assert!(refused > 0);
    assert_eq!(proxy.process.wait().code(), Some(0));
    assert!(!socket.exists());
}

/// A service manager that is told the state of a proxy.
pub(crate) struct Manager {
    _place: tempfile::TempDir,
    /// For `NOTIFY_SOCKET`.
    pub(crate) socket: PathBuf,
    datagrams: UnixDatagram,
}

impl Manager {
    pub(crate) fn open() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let socket = place.path().join("notify");
        let datagrams = UnixDatagram::bind(&socket).expect("a socket");
        datagrams.set_read_timeout(Some(LONG)).expect("a limit");
        Self { _place: place, socket, datagrams }
    }

    pub(crate) fn next_state(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.datagrams.recv(&mut bytes).expect("it is told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

fn service_manager(fixture: &mut Fixture) {
    let (directory, listen) = fixture.new_directory();
    let manager = Manager::open();
    let mut command = fixture.program();
    let url = fixture.url("");
    command
        .args(["--listen", &listen, "--server", &url, "--log", "debug"])
        .env("NOTIFY_SOCKET", &manager.socket);
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    assert_eq!(manager.next_state(), "READY=1");
    proxy.process.signal(Signal::SIGHUP);
    assert!(manager.next_state().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.next_state(), "READY=1");
    proxy.process.await_line("event=reloaded");
    proxy.process.signal(Signal::SIGTERM);
    assert_eq!(manager.next_state(), "STOPPING=1");
    assert_eq!(proxy.process.wait().code(), Some(0));
}
