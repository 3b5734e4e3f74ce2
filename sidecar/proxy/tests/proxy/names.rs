//! A host's name that gets another address while the proxy runs: the proxy asks the name server of its test.

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use ciphertoll_model::{Auth, Engine};
use ciphertoll_testing::missing;

use crate::Case;
use crate::cases::{cancel_request, one};
use crate::cluster::Cluster;
use crate::fixture::{Fixture, PORT, Proxy, RawClient};
use crate::ledger::Ledger;
use crate::name_server::NameServer;
use crate::operations::await_that;

pub(crate) const CASES: [Case; 4] = [
    ("a name that gets the address of the new primary leads clients there", promoted),
    ("connections to an address that a name has lost are closed when they are idle", moved),
    ("a cancel request goes to the address of the connection, not to another one of the name", cancelled),
    ("a host whose certificate has another host's name is not used", verified),
];

pub(crate) const NAME: &str = "db.toll.test";
/// In a namespace of mounts, puts the file in the place of `/etc/hosts`, and runs the rest.
pub(crate) const WITH_HOSTS: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

const LOST: &str = "its address was removed";

/// Forwards connections to the server, and counts them. Its threads end with the test's process.
pub(crate) struct Forwarder {
    accepted: Arc<AtomicUsize>,
    refuses: Arc<AtomicBool>,
}

impl Forwarder {
    pub(crate) fn start(listener: TcpListener, server: SocketAddr) -> Self {
        let (accepted, refuses) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let (count, is_closing) = (Arc::clone(&accepted), Arc::clone(&refuses));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if is_closing.load(Ordering::Acquire) {
                    continue;
                }
                count.fetch_add(1, Ordering::AcqRel);
                let Ok(server) = TcpStream::connect(server) else { continue };
                let pass = |from: &TcpStream, to: &TcpStream| {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                    thread::spawn(move || {
                        // Either side may end at any time.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                };
                pass(&client, &server);
                pass(&server, &client);
            }
        });
        Self { accepted, refuses }
    }

    /// At two addresses with the same port: to two servers, or twice to the same one.
    pub(crate) fn pair(servers: [u16; 2]) -> ([Self; 2], u16) {
        let first = TcpListener::bind("127.0.0.2:0").expect("a port");
        let port = first.local_addr().expect("it is bound").port();
        let second = TcpListener::bind(("127.0.0.3", port)).expect("the same port at another address");
        let [one, two] = servers.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        ([Self::start(first, one), Self::start(second, two)], port)
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Acquire)
    }

    /// Whether it closes new connections at once.
    fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Release);
    }
}

/// In a namespace of mounts, puts the file in the place of `/etc/resolv.conf`, and runs the rest.
const WITH_RESOLVER: &str = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";

/// A name server, and what a process finds in place of `/etc/resolv.conf`.
pub(crate) struct Names {
    server: NameServer,
    resolver: tempfile::NamedTempFile,
}

impl Names {
    /// [`NAME`] has these addresses; `None` if this user cannot replace files for one process.
    pub(crate) fn new(addresses: &[&str]) -> Option<Self> {
        let can_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
        if !can_mount.is_ok_and(|status| status.success()) {
            missing("namespaces of mounts need root");
            return None;
        }
        let Some(server) = NameServer::start(NAME) else {
            missing("a name server needs root");
            return None;
        };
        server.set(addresses);
        let resolver = tempfile::NamedTempFile::new().expect("a file");
        fs::write(resolver.path(), format!("nameserver {}\n", server.address)).expect("ours to write");
        Some(Self { server, resolver })
    }

    pub(crate) fn set(&self, addresses: &[&str]) {
        self.server.set(addresses);
    }

    /// The proxy with these names.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", WITH_RESOLVER, "sh"]).arg(self.resolver.path());
        command.arg(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command
    }
}

/// Two addresses with the same port, which both lead to the server, and a proxy that asks its own name server.
struct Named {
    names: Names,
    forwarders: [Forwarder; 2],
    proxy: Proxy,
}

impl Named {
    /// `None` if that needs rights that are missing.
    fn start(fixture: &mut Fixture, addresses: &[&str], arguments: &[&str]) -> Option<Self> {
        let names = Names::new(addresses)?;
        let (forwarders, port) = Forwarder::pair([fixture.server_port(); 2]);
        let user = fixture.server().account(Auth::default_of(Engine::Postgres)).user;
        let url = format!("postgres://{user}@{NAME}:{port}/{}?sslmode=require", fixture.server().database());
        let proxy = proxy_with(fixture, &names, &url, arguments);
        Some(Self { names, forwarders, proxy })
    }

    fn accepted(&self) -> [usize; 2] {
        self.forwarders.each_ref().map(Forwarder::accepted)
    }
}

fn proxy_with(fixture: &mut Fixture, names: &Names, url: &str, arguments: &[&str]) -> Proxy {
    let (directory, listen) = fixture.new_directory();
    let mut command = names.program();
    command
        .args(["--listen", &listen, "--server", url, "--log", "debug"])
        .args(arguments)
        .args(fixture.mode_arguments())
        .env("PGPASSWORD", String::from_utf8(fixture.password()).expect("passwords here are text"));
    fixture.proxy_by(&mut command, directory, PORT)
}

/// As a cluster manager does it that changes a name: the old primary is killed, a standby promoted.
fn promoted(fixture: &mut Fixture) {
    let Some(names) = Names::new(&["127.0.0.2"]) else { return };
    let cluster = Cluster::start(fixture, 1);
    let [old, new] = &cluster.nodes[..] else { panic!("two servers") };
    old.execute("CREATE TABLE numbered (writer int, number int)");
    let (_forwarders, port) = Forwarder::pair([old.port, new.port]);
    let url = format!("postgres://{}@{NAME}:{port}/{}?sslmode=disable", old.user(), old.database());
    let proxy = proxy_with(fixture, &names, &url, &["--dns-time", "1s", "--pool-size", "8"]);
    let ledger = Ledger::written_during(
        || proxy.try_client(),
        |ledger| {
            old.kill();
            new.promote();
            let began = Instant::now();
            names.set(&["127.0.0.3"]);
            ledger.await_first("the promotion and the change of the name", began);
            ledger.await_more("all writers are served");
            // It comes back as a second primary, at its former address.
            old.start_again_alone();
            let rows = old.value("SELECT count(*) FROM numbered");
            for _ in 0..5 {
                ledger.await_more("the new one is written to");
            }
            assert_eq!(old.value("SELECT count(*) FROM numbered"), rows);
        },
    );
    ledger.check(new.rows("SELECT writer || ' ' || number FROM numbered").expect("rows"));
}

fn moved(fixture: &mut Fixture) {
    let started = Named::start(fixture, &["127.0.0.2"], &["--dns-time", "1s"]);
    let Some(mut named) = started else { return };
    let mut in_transaction = named.proxy.client();
    in_transaction.execute("BEGIN").expect("a transaction");
    let process = one(&mut in_transaction, "SELECT pg_backend_pid()");
    assert_eq!(one(&mut named.proxy.client(), "SELECT 1"), "1");
    assert_eq!(named.accepted(), [2, 0]);
    named.names.set(&["127.0.0.3"]);
    // The idle one is closed without a client.
    await_that("the idle connection is closed", || named.proxy.process.count(LOST) == 1);
    assert_eq!(one(&mut in_transaction, "SELECT pg_backend_pid()"), process);
    assert_eq!(one(&mut named.proxy.client(), "SELECT 1"), "1");
    assert_eq!(named.accepted(), [2, 1]);
    in_transaction.execute("COMMIT").expect("the end");
    drop(in_transaction);
    await_that("the other one is closed", || named.proxy.process.count(LOST) == 2);
    assert_ne!(one(&mut named.proxy.client(), "SELECT pg_backend_pid()"), process);
    assert_eq!(named.accepted()[0], 2);
}

/// A name can have several servers, and only one of them knows the command.
fn cancelled(fixture: &mut Fixture) {
    let Some(named) = Named::start(fixture, &["127.0.0.2", "127.0.0.3"], &[]) else { return };
    let mut sleeper = named.proxy.raw(&[]);
    sleeper.answer();
    sleeper.query("SELECT pg_sleep(600)");
    await_that("it is connected", || named.accepted() != [0, 0]);
    let used = named.accepted().iter().position(|accepted| *accepted > 0).expect("one of them");
    // From now on, new connections use the other address.
    named.forwarders[used].refuse(true);
    await_that("the other address is used", || {
        let served = named.proxy.try_client().and_then(|mut client| client.query("SELECT 1"));
        served.is_ok() && named.accepted()[1 - used] > 0
    });
    named.forwarders[used].refuse(false);
    let before = named.accepted();
    named.proxy.raw_silent().send(&cancel_request(sleeper.process_id, &sleeper.key));
    assert_eq!(RawClient::error_state(&sleeper.answer()).as_deref(), Some("57014"));
    assert_eq!(named.accepted()[1 - used], before[1 - used]);
    assert_eq!(named.accepted()[used], before[used] + 1);
}

fn verified(fixture: &mut Fixture) {
    let server = SocketAddr::from(([127, 0, 0, 1], fixture.server_port()));
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let other = listener.local_addr().expect("it is bound");
    let other_host = Forwarder::start(listener, server);
    // The same server, whose certificate names one of the two.
    let name = format!("{}:{}", fixture.server().server_name(), fixture.server_port());
    let url = fixture.url("&target_session_attrs=read-write");
    let mut proxy = fixture.proxy_to(&url.replace(&name, &format!("{other},{name}")), &[]);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    // On a busy machine, the host may first be left because it has not answered in time.
    let line = proxy.process.await_line("TLS");
    assert!(line.contains("event=host-failed") && line.contains(&format!("host={other}")), "{line}");
    assert!(other_host.accepted() > 0);
    let proxy = fixture.proxy_to(&url.replace(&name, &other.to_string()), &["--queue-time", "2s"]);
    let told =
        proxy.try_client().and_then(|mut client| client.query("SELECT 1")).expect_err("it is not used");
    assert!(told.to_string().contains(&format!("{other} (TLS")), "{told}");
}
