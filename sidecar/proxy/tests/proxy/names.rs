//! A host's name that gets another address while the proxy runs: the proxy has its own `/etc/hosts`.

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ciphertoll_model::{Auth, Engine};
use ciphertoll_testing::missing;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, PORT};
use crate::operations::await_that;

pub(crate) const CASES: [Case; 2] = [
    ("connections to an address that a name has lost are closed when they are idle", moved),
    ("a host whose certificate has another host's name is not used", verified),
];

const NAME: &str = "db.toll.test";
/// In a namespace of mounts, puts the file in the place of `/etc/hosts`, and runs the rest.
const WITH_HOSTS: &str = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";

/// Forwards connections to the server, and counts them. Its threads end with the test's process.
struct Forwarder(Arc<AtomicUsize>);

impl Forwarder {
    fn start(listener: TcpListener, server: SocketAddr) -> Self {
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::AcqRel);
                let server = TcpStream::connect(server).expect("the server listens");
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
        Self(accepted)
    }

    fn accepted(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

fn moved(fixture: &mut Fixture) {
    let can_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        return missing("namespaces of mounts need root");
    }
    let server = SocketAddr::from(([127, 0, 0, 1], fixture.server_port()));
    let first = TcpListener::bind("127.0.0.2:0").expect("a port");
    let port = first.local_addr().expect("it is bound").port();
    let second = TcpListener::bind(("127.0.0.3", port)).expect("the same port at another address");
    let [first, second] = [first, second].map(|listener| Forwarder::start(listener, server));
    let (directory, listen) = fixture.new_directory();
    let hosts = tempfile::NamedTempFile::new().expect("a file");
    // The same file, because another one would not be in place of /etc/hosts.
    let name = |address: &str| fs::write(hosts.path(), format!("{address} {NAME}\n")).expect("ours to write");
    name("127.0.0.2");
    let user = fixture.server().account(Auth::default_of(Engine::Postgres)).user;
    let url = format!("postgres://{user}@{NAME}:{port}/{}?sslmode=require", fixture.server().database());
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", WITH_HOSTS, "sh"])
        .arg(hosts.path())
        .arg(env!("CARGO_BIN_EXE_ciphertoll-proxy"))
        .args(["--listen", &listen, "--server", &url, "--log", "debug", "--dns-time", "1s"])
        .args(fixture.mode_arguments())
        .env("PGPASSWORD", String::from_utf8(fixture.password()).expect("passwords here are text"));
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    let mut in_transaction = proxy.client();
    in_transaction.execute("BEGIN").expect("a transaction");
    let process = one(&mut in_transaction, "SELECT pg_backend_pid()");
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!((first.accepted(), second.accepted()), (2, 0));
    name("127.0.0.3");
    // The idle one is closed without a client.
    await_that("the idle connection is closed", || proxy.process.count("its address was removed") == 1);
    assert_eq!(one(&mut in_transaction, "SELECT pg_backend_pid()"), process);
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
    assert_eq!((first.accepted(), second.accepted()), (2, 1));
    in_transaction.execute("COMMIT").expect("the end");
    drop(in_transaction);
    await_that("the other one is closed", || proxy.process.count("its address was removed") == 2);
    assert_ne!(one(&mut proxy.client(), "SELECT pg_backend_pid()"), process);
    assert_eq!(first.accepted(), 2);
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
