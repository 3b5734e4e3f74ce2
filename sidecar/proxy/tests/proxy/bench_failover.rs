//! `make bench-failover`: how soon clients write again after a failover, through the proxy, by libpq with several hosts, and
//! through PgBouncer whose server's name gets another address.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::Case;
use crate::cases::one;
use crate::cluster::{Cluster, Node, free_port};
use crate::drivers::PYTHON;
use crate::fixture::{Fixture, Proxy};
use crate::names::{Forwarder, NAME, WITH_HOSTS};
use crate::operations::await_that;
use crate::say;

pub(crate) const CASES: [Case; 1] = [("clients write again after a failover", compare)];

const CLIENTS: usize = 16;
const ROUNDS: usize = 5;
/// How long clients write before the failover, and after the first row behind it.
const STEADY: Duration = Duration::from_secs(1);
/// A failover that takes longer is given up.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Clone, Copy)]
enum Route {
    Sidecar,
    Libpq,
    PgBouncer,
}

/// What must stay alive while clients write, and how they connect.
struct Way {
    conninfo: String,
    _proxy: Option<Proxy>,
    pgbouncer: Option<Pooler>,
}

/// A PgBouncer with its own `/etc/hosts`.
struct Pooler {
    process: Child,
    hosts: tempfile::NamedTempFile,
    _directory: tempfile::TempDir,
    _forwarders: [Forwarder; 2],
}

/// What the clients have seen in one failover.
struct Seen {
    after_promotion: Option<Duration>,
    longest_pause: Duration,
    errors: usize,
}

#[derive(Deserialize)]
struct Written {
    rows: Vec<(u64, String)>,
    errors: usize,
}

fn compare(fixture: &mut Fixture) {
    say(&format!(
        "{CLIENTS} clients (psycopg2) write rows; PostgreSQL with one synchronous standby on this machine; {ROUNDS} \
         failovers each: median (lowest to highest)"
    ));
    say("| clients connect | first row after the promotion | longest pause | errors per client |");
    say("| --- | --- | --- | --- |");
    for route in [Route::Sidecar, Route::Libpq, Route::PgBouncer] {
        let seen: Vec<Seen> = (0..ROUNDS).map(|_| fail_over(fixture, route)).collect();
        let first = spread(seen.iter().map(|seen| seen.after_promotion.map(|time| time.as_secs_f64())));
        let pause = spread(seen.iter().map(|seen| Some(seen.longest_pause.as_secs_f64())));
        let errors = spread(seen.iter().map(|seen| Some(seen.errors as f64 / CLIENTS as f64)));
        say(&format!("| {route} | {first} s | {pause} s | {errors} |"));
    }
}

/// The primary is killed with SIGKILL, and the standby is promoted.
fn fail_over(fixture: &mut Fixture, route: Route) -> Seen {
    let cluster = Cluster::start(fixture, 1);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    old.execute("CREATE TABLE numbered (writer int, number int)");
    let way = Way::start(fixture, &cluster, route);
    let mut writers = writers(&way.conninfo);
    let mut output = BufReader::new(writers.stdout.take().expect("it is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the clients begin");
    assert_eq!(line, "writing\n", "the clients do not begin");
    thread::sleep(STEADY);
    let failed = SystemTime::now();
    old.kill();
    let promoted = promote(new, &way);
    let count = || new.value("SELECT count(*) FROM numbered").parse::<u64>().expect("a number");
    let (before, began) = (count(), SystemTime::now());
    while count() <= before && began.elapsed().is_ok_and(|waited| waited < LONGEST) {
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(STEADY);
    drop(writers.stdin.take());
    let mut text = String::new();
    output.read_to_string(&mut text).expect("the clients end");
    assert!(writers.wait().expect("it was started").success());
    let written: Written = serde_json::from_str(&text).expect("rows");
    check(&written, new);
    Seen::of(&written, failed, promoted)
}

/// When the standby has become a primary.
fn promote(new: &Node, way: &Way) -> SystemTime {
    let mut control = new.control("postgres");
    thread::scope(|scope| {
        scope.spawn(|| new.promote());
        await_that("it is a primary", || one(&mut control, "SELECT pg_is_in_recovery()") == "f");
        let promoted = SystemTime::now();
        if let Some(pooler) = &way.pgbouncer {
            // The same file, because another one would not be in place of /etc/hosts.
            fs::write(pooler.hosts.path(), format!("127.0.0.3 {NAME}\n")).expect("ours to write");
        }
        promoted
    })
}

/// No acknowledged row is lost.
fn check(written: &Written, new: &Node) {
    let found = new.rows("SELECT writer || ' ' || number FROM numbered").expect("rows");
    let text = |row: Vec<u8>| String::from_utf8(row).expect("text");
    let found: HashSet<String> = found.into_iter().flatten().flatten().map(text).collect();
    let lost = written.rows.iter().find(|(_, row)| !found.contains(row));
    assert_eq!(lost, None, "an acknowledged row is lost");
}

fn writers(conninfo: &str) -> Child {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxy/bench_failover.py");
    Command::new(PYTHON)
        .arg(program)
        .args([conninfo, &CLIENTS.to_string()])
        .env("PGPASSWORD", "unused")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python with psycopg2 is installed (scripts/setup test)")
}

impl Way {
    fn start(fixture: &mut Fixture, cluster: &Cluster, route: Route) -> Self {
        let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
        let (user, database) = (old.user(), old.database());
        match route {
            Route::Sidecar => {
                let url = cluster.url("&target_session_attrs=read-write");
                let proxy = fixture.proxy_to(&url, &["--health-time", "1s"]);
                let (directory, port) = (proxy.directory.display(), proxy.port);
                let conninfo = format!("host={directory} port={port} user={user} dbname={database}");
                Self { conninfo, _proxy: Some(proxy), pgbouncer: None }
            }
            Route::Libpq => {
                let conninfo = format!(
                    "host=127.0.0.1,127.0.0.1 port={},{} user={user} dbname={database} sslmode=disable \
                     target_session_attrs=read-write connect_timeout=2",
                    old.port, new.port
                );
                Self { conninfo, _proxy: None, pgbouncer: None }
            }
            Route::PgBouncer => {
                let (pooler, port) = Pooler::start(old, new);
                let conninfo =
                    format!("host=127.0.0.1 port={port} user={user} dbname={database} sslmode=disable");
                Self { conninfo, _proxy: None, pgbouncer: Some(pooler) }
            }
        }
    }
}

impl Pooler {
    /// Its settings notice a change of the name as soon as they can.
    fn start(old: &Node, new: &Node) -> (Self, u16) {
        let first = TcpListener::bind("127.0.0.2:0").expect("a port");
        let server_port = first.local_addr().expect("it is bound").port();
        let second = TcpListener::bind(("127.0.0.3", server_port)).expect("the same port");
        let server = |node: &Node| SocketAddr::from(([127, 0, 0, 1], node.port));
        let forwarders = [Forwarder::start(first, server(old)), Forwarder::start(second, server(new))];
        let directory = tempfile::tempdir().expect("a directory");
        let (file, port, user) = (directory.path().join("pgbouncer.ini"), free_port(), old.user());
        let text = format!(
            "[databases]\n* = host={NAME} port={server_port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = session\ndefault_pool_size = 20\ndns_max_ttl = 1\n\
             dns_nxdomain_ttl = 1\nserver_login_retry = 1\nunix_socket_dir =\nserver_tls_sslmode = disable\n"
        );
        fs::write(&file, text).expect("ours to write");
        let hosts = tempfile::NamedTempFile::new().expect("a file");
        fs::write(hosts.path(), format!("127.0.0.2 {NAME}\n")).expect("ours to write");
        for path in [directory.path(), &file, hosts.path()] {
            Command::new("chmod").args(["a+rX"]).arg(path).status().expect("it runs");
        }
        let process = Command::new("unshare")
            .args(["-m", "sh", "-c", WITH_HOSTS, "sh"])
            .arg(hosts.path())
            .args(["pgbouncer", "-q", "-u", "nobody"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare is installed");
        let pooler = Self { process, hosts, _directory: directory, _forwarders: forwarders };
        await_that("PgBouncer listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        (pooler, port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let process = Pid::from_raw(self.process.id().cast_signed());
        // It may have ended.
        let _ = kill(process, Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

impl Seen {
    fn of(written: &Written, failed: SystemTime, promoted: SystemTime) -> Self {
        let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        let (failed, promoted) = (since_1970(failed), since_1970(promoted));
        let mut times: Vec<Duration> =
            written.rows.iter().map(|(time_ns, _)| Duration::from_nanos(*time_ns)).collect();
        times.sort_unstable();
        let first = times.iter().find(|time| **time > promoted);
        let pauses = times.windows(2).filter(|pair| pair[1] > failed);
        let pauses = pauses.map(|pair| pair[1].saturating_sub(pair[0]));
        Self {
            after_promotion: first.map(|time| time.saturating_sub(promoted)),
            longest_pause: pauses.max().unwrap_or_default(),
            errors: written.errors,
        }
    }
}

/// The median, the lowest and the highest; `None` is higher than all.
pub(crate) fn spread(values: impl Iterator<Item = Option<f64>>) -> String {
    let mut values: Vec<f64> = values.map(|value| value.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    let text = |value: f64| {
        if value.is_finite() { format!("{value:.2}") } else { format!("over {}", LONGEST.as_secs()) }
    };
    let (lowest, highest) = (text(values[0]), text(values[values.len() - 1]));
    format!("{} ({lowest} to {highest})", text(values[values.len() / 2]))
}

impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sidecar => "through the sidecar (health-time 1s)",
            Self::Libpq => "by libpq with both hosts",
            Self::PgBouncer => "through PgBouncer, whose server's name changes (dns_max_ttl 1)",
        })
    }
}
