//! SIGHUP: what changes for which clients, and what an error does.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use ciphertoll_lab::Authority;
use ciphertoll_model::ServerKey;
use ciphertoll_net::blocking::Client;
use nix::sys::signal::Signal;

use crate::Case;
use crate::cases::{one, try_one};
use crate::fixture::{Fixture, Proxy, RawClient, client_at};
use crate::operations::{await_that, in_queue_time, second_user, settings, write_secret};

/// In both pooling modes.
pub(crate) const CASES: [Case; 4] = [
    ("CA and certificate are rotated under load without ending sessions", rotated),
    ("unusable settings change nothing", wrong),
    ("reloads, checks, warm-up and killed processes at once keep the pool's count right", at_once),
    ("connections with an old password end with their sessions", passwords),
];

/// Cases in which idle clients must keep their connections.
pub(crate) const OF_SESSIONS: [Case; 1] = [("limits change for new clients", limits)];

fn reload(proxy: &mut Proxy) {
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
}

/// A temporary replacement of the server's certificate.
struct Rotation {
    /// A link to the directory of the certificate in use.
    current: PathBuf,
    before: PathBuf,
}

impl Rotation {
    /// Gives the server a certificate of this authority.
    fn begin(fixture: &Fixture, authority: &Authority) -> Self {
        let tls = fixture.server().ca_file().with_file_name("tls");
        let current = tls.join("current");
        let before = fs::read_link(&current).expect("a link");
        let certificate = authority.issue(ServerKey::P256).expect("a certificate");
        let directory = tls.join("rotated");
        let model = fs::metadata(tls.join(&before).join("key.pem")).expect("the key in use");
        fs::create_dir(&directory).expect("ours to make");
        let files = [("certificate.pem", certificate.certificate_pem), ("key.pem", certificate.key_pem)];
        for (name, bytes) in files {
            let file = directory.join(name);
            fs::write(&file, bytes).expect("ours to write");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours to change");
            chown(&file, Some(model.uid()), Some(model.gid())).expect("the server's to read");
        }
        chown(&directory, Some(model.uid()), Some(model.gid())).expect("the server's to enter");
        let rotation = Self { current, before };
        rotation.point_to(fixture, Path::new("rotated"));
        rotation
    }

    fn point_to(&self, fixture: &Fixture, directory: &Path) {
        let next = self.current.with_file_name("next");
        symlink(directory, &next).expect("a link");
        fs::rename(&next, &self.current).expect("ours to swap");
        let mut control = fixture.control();
        let before = one(&mut control, "SELECT pg_conf_load_time()");
        one(&mut control, "SELECT pg_reload_conf()");
        await_that("the server has read it", || {
            one(&mut fixture.control(), "SELECT pg_conf_load_time()") != before
        });
    }

    fn end(&self, fixture: &Fixture) {
        self.point_to(fixture, &self.before);
        fs::remove_dir_all(self.current.with_file_name("rotated")).expect("ours to remove");
    }
}

fn rotated(fixture: &mut Fixture) {
    let (directory, _) = settings("");
    let ca = directory.path().join("ca.pem");
    let old = fs::read(fixture.server().ca_file()).expect("the authority");
    let authority = Authority::generate().expect("another authority");
    let new = authority.certificate_pem().expect("PEM");
    fs::write(&ca, &old).expect("ours to write");
    let url =
        fixture.url("").replace(&fixture.server().ca_file().display().to_string(), &ca.display().to_string());
    let mut proxy = fixture.proxy_to(&url, &["--pool-size", "4"]);
    let mut long_lived = proxy.client();
    long_lived.query("CREATE TEMP TABLE mine (n int)").expect("a table");
    let load = Load::on(&proxy);
    let served = thread::scope(|scope| {
        let client_loops: Vec<_> = (0..3).map(|_| scope.spawn(|| load.run())).collect();
        // The usual procedure: trust both CAs, change the certificate, trust the new CA only.
        load.await_progress();
        fs::write(&ca, [&old[..], &new].concat()).expect("ours to write");
        reload(&mut proxy);
        load.await_progress();
        let rotation = Rotation::begin(fixture, &authority);
        load.await_progress();
        fs::write(&ca, &new).expect("ours to write");
        proxy.process.read_on();
        let lines = proxy.process.log.len();
        reload(&mut proxy);
        // The workers may log before the thread that reloads.
        let connected = "event=server-connected";
        if !proxy.process.log[lines..].iter().any(|line| line.contains(connected)) {
            proxy.process.await_line(connected);
        }
        load.await_progress();
        load.stop.store(true, Ordering::Relaxed);
        let served: u32 = client_loops
            .into_iter()
            .map(|client_loop| client_loop.join().expect("every client was served"))
            .sum();
        rotation.end(fixture);
        served
    });
    assert!(served > 0);
    // The old certificate is refused. Another byte in the CA file makes all idle connections obsolete.
    fs::write(&ca, [&new[..], b"\n"].concat()).expect("ours to write");
    reload(&mut proxy);
    assert_eq!(RawClient::error_state(&proxy.raw(&[]).answer()).as_deref(), Some("08001"));
    // The old session has noticed nothing.
    assert_eq!(one(&mut long_lived, "SELECT count(*) FROM mine"), "0");
    fs::write(&ca, &old).expect("ours to write");
    reload(&mut proxy);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!(one(&mut long_lived, "SELECT count(*) FROM mine"), "0");
}

/// Clients that connect and disconnect, and must all be served.
struct Load {
    socket: PathBuf,
    user: String,
    database: String,
    stop: AtomicBool,
    rounds: AtomicU32,
}

impl Load {
    fn on(proxy: &Proxy) -> Self {
        let (user, database) = (proxy.user.clone(), proxy.database.clone());
        let (stop, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { socket: proxy.socket(), user, database, stop, rounds }
    }

    fn run(&self) -> u32 {
        let mut rounds = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let mut client = client_at(&self.socket, &self.user, &self.database).expect("the login succeeds");
            assert_eq!(one(&mut client, &format!("SELECT {rounds}")), rounds.to_string());
            rounds += 1;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        rounds
    }

    /// Clients may fail, but no response may be wrong.
    fn run_whatever_happens(&self) -> u32 {
        let mut rounds = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let answer = client_at(&self.socket, &self.user, &self.database)
                .and_then(|mut client| client.query(&format!("SELECT {rounds}")));
            if let Ok(rows) = answer {
                assert_eq!(rows, [[Some(rounds.to_string().into_bytes())]]);
                rounds += 1;
                self.rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
        rounds
    }

    /// Waits until more clients have been served.
    fn await_progress(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        await_that("clients are served", || self.rounds.load(Ordering::Relaxed) > before + 20);
    }
}

fn wrong(fixture: &mut Fixture) {
    let text = "[limits]\npool-size = 1\nqueue-time = \"3s\"\n";
    let (directory, file) = settings(text);
    let file = Path::new(&file);
    let ca = directory.path().join("ca.pem");
    fs::copy(fixture.server().ca_file(), &ca).expect("ours to write");
    let (place, listen) = fixture.new_directory();
    let url =
        fixture.url("").replace(&fixture.server().ca_file().display().to_string(), &ca.display().to_string());
    let with_url = |url: &str, more: &str| format!("server = \"{url}\"\nlisten = \"{listen}\"\n{more}");
    let good = with_url(&url, text);
    fs::write(file, &good).expect("ours to write");
    let mut command = fixture.program();
    command.args(["--log", "debug", "--config"]).arg(file);
    let mut proxy = fixture.proxy_by(&mut command, place, crate::fixture::PORT);
    let process = one(&mut in_queue_time(|| proxy.try_client()), "SELECT pg_backend_pid()");
    let elsewhere = url.replace(&format!(":{}/", fixture.server_port()), ":1/");
    let many = text.replace('1', "9");
    for (text, reason) in [
        (with_url(&url, &many.replace("pool-size", "pool-sise")), "did you mean"),
        (with_url(&elsewhere, &many), "until the proxy is restarted"),
        (
            with_url(&url, &many) + "[[user]]\nname = \"x\"\npassword-env = \"NOT_SET_AT_ALL\"",
            "NOT_SET_AT_ALL",
        ),
    ] {
        fs::write(file, text).expect("ours to write");
        proxy.process.signal(Signal::SIGHUP);
        let line = proxy.process.await_line("event=reload-failed");
        assert!(line.contains(reason), "{line}");
    }
    fs::write(file, with_url(&url, &many)).expect("ours to write");
    fs::write(&ca, "no certificate").expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reload-failed");
    // Still one connection, and the same one.
    let mut first = in_queue_time(|| proxy.try_client());
    assert_eq!(one(&mut first, "SELECT pg_backend_pid()"), process);
    assert!(proxy.try_client().is_err_and(|error| error.is_too_many_connections()));
    drop(first);
    // Another listen address is reported and ignored; all other settings apply.
    fs::copy(fixture.server().ca_file(), &ca).expect("ours to write");
    fs::write(file, good.replace(".s.PGSQL.", ".t.PGSQL.") + "max-clients = 1\n").expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    let line = proxy.process.await_line("event=reload-ignored");
    assert!(line.contains("setting=listen"), "{line}");
    proxy.process.await_line("event=reloaded");
    let first = in_queue_time(|| proxy.try_client());
    assert!(proxy.try_client().is_err());
    drop(first);
}

fn limits(fixture: &mut Fixture) {
    let (_directory, file) = settings("[limits]\npool-size = 3\n");
    let mut proxy = fixture.proxy(&["--config", &file]);
    let mut clients = [proxy.client(), proxy.client(), proxy.client()];
    fs::write(&file, "allow-uid = [64000]\n[limits]\npool-size = 1\nqueue-time = \"3s\"\n").expect("ours");
    reload(&mut proxy);
    // Connected clients stay; connections that they release are closed until one is left.
    for client in &mut clients {
        assert_eq!(one(client, "SELECT 1"), "1");
    }
    assert!(proxy.try_client().is_err_and(|error| error.is_too_many_connections()));
    drop(clients);
    proxy.process.await_line("the limit of server connections was lowered");
    proxy.process.await_line("the limit of server connections was lowered");
    let mut first = in_queue_time(|| proxy.try_client());
    assert_eq!(one(&mut first, "SELECT 1"), "1");
    let mode = fs::metadata(proxy.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    assert!(proxy.try_client().is_err_and(|error| error.is_too_many_connections()));
    fs::write(&file, "[limits]\npool-size = 2\n").expect("ours to write");
    reload(&mut proxy);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    let mode = fs::metadata(proxy.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Three clients with a connection each, if all are served.
fn three_served(proxy: &Proxy) -> Option<[Client; 3]> {
    let mut clients = [proxy.try_client().ok()?, proxy.try_client().ok()?, proxy.try_client().ok()?];
    let are_served = clients.iter_mut().all(|client| {
        let served = client.query("BEGIN").and_then(|_| try_one(client, "SELECT 1"));
        served.is_ok_and(|answer| answer == "1")
    });
    are_served.then_some(clients)
}

/// Responses are right, and the limit of connections holds, whatever happens at the same time.
fn at_once(fixture: &mut Fixture) {
    const CLIENT_LOOPS: usize = 6;
    let (directory, file) = settings("warm-up = 2\nhealth-time = \"10ms\"\n[limits]\npool-size = 3\n");
    let ca = directory.path().join("ca.pem");
    let pem = fs::read(fixture.server().ca_file()).expect("the authority");
    fs::write(&ca, &pem).expect("ours to write");
    let url =
        fixture.url("").replace(&fixture.server().ca_file().display().to_string(), &ca.display().to_string());
    let mut proxy = fixture.proxy_to(&url, &["--config", &file]);
    let load = Load::on(&proxy);
    let served: u32 = thread::scope(|scope| {
        let client_loops: Vec<_> =
            (0..CLIENT_LOOPS).map(|_| scope.spawn(|| load.run_whatever_happens())).collect();
        let mut control = fixture.control();
        for round in 0..30 {
            // Another byte changes the CA file, so all connections are obsolete.
            fs::write(&ca, [&pem[..], &b"\n".repeat(round % 3)].concat()).expect("ours to write");
            reload(&mut proxy);
            let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.5";
            control.query(kill).expect("the control role is no client");
            load.await_progress();
        }
        load.stop.store(true, Ordering::Relaxed);
        client_loops.into_iter().map(|client_loop| client_loop.join().expect("no wrong answer")).sum()
    });
    assert!(served > 0);
    // If the pool counted a connection too many, three clients at once would never be served. Connections
    // that were killed last may not have ended yet.
    let mut control = fixture.control();
    let mut clients = None;
    await_that("three at once are served", || {
        clients = three_served(&proxy);
        clients.is_some()
    });
    let backends = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", proxy.user);
    await_that("three are left", || one(&mut control, &backends) == "3");
}

fn passwords(fixture: &mut Fixture) {
    let (directory, file) = settings("[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let mut proxy = fixture.proxy(&["--config", &file]);
    let own = one(&mut proxy.client(), "SELECT pg_backend_pid()");
    let mut long_lived = proxy.try_client_as(&second).expect("the login succeeds");
    // In a transaction the client keeps its connection in both modes.
    long_lived.query("BEGIN").expect("a transaction");
    let process = one(&mut long_lived, "SELECT pg_backend_pid()");
    let other_password = format!("ALTER ROLE {second} PASSWORD 'another one'");
    fixture.control().query(&other_password).expect("the control role may");
    write_secret(&directory.path().join("second"), "another one\n");
    reload(&mut proxy);
    // The session goes on, and no other client gets its connection afterwards; the other user's connection is
    // not affected.
    assert_eq!(one(&mut long_lived, "SELECT pg_backend_pid()"), process);
    long_lived.query("COMMIT").expect("the end");
    drop(long_lived);
    proxy.process.await_line("it was opened with old settings");
    let mut next = proxy.try_client_as(&second).expect("the new password is right");
    next.query("BEGIN").expect("a transaction");
    assert_ne!(one(&mut next, "SELECT pg_backend_pid()"), process);
    assert_eq!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), own);
    // A removed user is refused.
    fs::write(&file, "").expect("ours to write");
    reload(&mut proxy);
    assert_eq!(one(&mut next, "SELECT 1"), "1");
    assert!(proxy.try_client_as(&second).is_err());
    next.query("COMMIT").expect("the end");
    drop(next);
    proxy.process.await_line("it was opened with old settings");
}
