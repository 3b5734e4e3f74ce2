//! A real ProxySQL in front of MariaDB and MySQL.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{Server, Tables};
use ciphertoll_link::LinkProcess;
use ciphertoll_model::{Auth, Clients, Endpoint, Engine, Link, LinkKind, LinkShape, PoolMode, ServerLevel};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql};

use ciphertoll_testing::missing;

use crate::common::{self, QueryText};
use crate::fixture::Fixture;
use crate::proxies::{assert_private, here, proxy_of};

/// Number of clients that are connected at the same time.
const CLIENTS: u16 = 8;

/// From 1 s on its TLS handshake times out.
const LONG_RTT_US: u32 = 500_000;
const LONG: LinkShape = LinkShape::of_rtt_us(LONG_RTT_US);

/// A server, perhaps behind a link.
struct LinkedServer {
    // Dropped in this order: the link owns the server's network.
    server: Server,
    link: Option<LinkProcess>,
    fixture: Fixture,
}

impl LinkedServer {
    fn all() -> impl Iterator<Item = Self> {
        [Engine::MariaDb, Engine::MySql].into_iter().flat_map(Self::of)
    }

    fn of(engine: Engine) -> impl Iterator<Item = Self> {
        Fixture::all(engine).into_iter().map(|fixture| {
            let server = fixture.start(&Tables::default(), None).expect("a server");
            Self { server, link: None, fixture }
        })
    }

    /// MariaDB behind a long link; prints a reason to skip if there is none.
    fn behind_a_long_link() -> Option<Self> {
        let mut fixture = Fixture::of(&ServerLevel::of(Engine::MariaDb))?;
        let mut link =
            LinkProcess::start(&common::helper(), Some(LinkKind::Ring)).inspect_err(missing).ok()?;
        fixture.lab.move_servers_to(link.servers().expect("a network").clone());
        let server = fixture.start(&Tables::default(), None).expect("a server");
        link.set(LONG).expect("a link");
        Some(Self { server, link: Some(link), fixture })
    }

    /// The proxy on this path for [`CLIENTS`] clients; `None` if ProxySQL is not installed.
    fn proxy(&self, path: &str, name: &str) -> Option<RunningProxy> {
        let behind = match self.link {
            Some(_) => self.server.endpoint_over(Link::Emulated(LONG)),
            None => self.server.tcp_endpoint(),
        };
        let Endpoint::Tcp(behind) = behind else { panic!("a server listens on TCP") };
        let (proxy, log) = (proxy_of(path), self.fixture.log());
        let started = self.fixture.lab.start_proxy(&ProxyStart {
            proxy,
            server: &self.server,
            behind,
            account: &self.server.account(Auth::default_of(self.server.engine())),
            admission: SocketAuth::Trusted,
            arguments: &[],
            clients: Clients::new(CLIENTS).expect("a number of clients"),
            name,
            namespace: self.link.as_ref().and_then(LinkProcess::clients),
            processors: None,
            logs: log.parent().expect("a directory"),
        });
        here(started, proxy)
    }

    /// A client that is connected through the proxy.
    fn client(&self, proxy: &RunningProxy) -> Client {
        let account = self.server.account(Auth::default_of(self.server.engine()));
        let password = Secret::new(fs::read(&account.password_file).expect("the password"));
        let (address, transport) = match proxy.endpoint() {
            Endpoint::Unix(path) => (Address::Unix(path), mysql::Transport::UnixSocket),
            Endpoint::Tcp(address) => (Address::Tcp(address), mysql::Transport::Tcp),
            Endpoint::Host { .. } => panic!("a private proxy has an address"),
        };
        let login = Login::MySql(Arc::new(mysql::MySqlLogin {
            database: Some(self.server.database().to_owned()),
            transport,
            encryption: mysql::MySqlTlsMode::Plain,
            ..mysql::MySqlLogin::new(account.user, password)
        }));
        Client::connect(&address, login, None).expect("a client of the proxy")
    }
}

#[test]
fn proxysql_pools_encrypted_connections() {
    for linked in LinkedServer::all() {
        for path in ["proxysql", "proxysql+mode=transaction", "proxysql+front=tcp"] {
            if pooled(&linked, path, Duration::ZERO).is_none() {
                return;
            }
        }
    }
}

/// Every 10 s it checks the connections that no client uses.
#[test]
fn proxysql_keeps_connections_that_no_client_uses() {
    for linked in LinkedServer::of(Engine::MariaDb) {
        pooled(&linked, "proxysql+mode=transaction", Duration::from_secs(21));
    }
}

/// Checks the server's connections of a proxy, with [`CLIENTS`] new clients again and again for at least this time. `None`
/// if ProxySQL is not installed.
fn pooled(linked: &LinkedServer, path: &str, time: Duration) -> Option<()> {
    const ROUNDS: u64 = 10;
    let before = linked.server.connection_counts().expect("counters");
    let mut running = linked.proxy(path, "q1")?;
    assert_eq!(running.leg().tls_version.as_deref(), Some("tls1.3"), "{path}");
    assert_eq!(running.leg().key.as_deref(), Some("p256"), "{path}");
    let (began, mut rounds) = (Instant::now(), 0);
    while rounds < ROUNDS || began.elapsed() < time {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| linked.client(&running)).collect();
        for client in &mut clients {
            // Its connection is not another client's before the transaction has ended.
            client.execute("BEGIN").expect("a transaction");
            assert_eq!(client.query_text("SELECT 1").expect("an answer").as_deref(), Some("1"));
        }
        for mut client in clients {
            client.execute("COMMIT").expect("its end");
            client.close().expect("a close");
        }
        rounds += 1;
    }
    running.check().unwrap_or_else(|error| panic!("{path}: {error}"));
    drop(running);
    let came = linked.server.connection_counts().expect("counters").since(before);
    let (connections, most) = (came.connections.expect("the server counts them"), 2 * u64::from(CLIENTS));
    assert!(connections <= most, "{path}: {connections} for {CLIENTS} clients, {rounds} times");
    assert_eq!(came.unencrypted(), Some(0), "{path}: {came:?}");
    Some(())
}

#[test]
fn proxysql_logs_in_over_a_long_link() {
    let Some(linked) = LinkedServer::behind_a_long_link() else { return };
    let Some(running) = linked.proxy("proxysql", "q1") else { return };
    assert!(running.setup_time() > Duration::from_micros(3 * u64::from(LONG_RTT_US)));
}

/// The temporary table is created by text in a string, which ProxySQL does not parse.
#[test]
fn the_state_that_clients_leave_is_reset_in_session_mode_only() {
    const CLIENTS_EACH: usize = 40;
    for linked in LinkedServer::of(Engine::MariaDb) {
        for path in ["proxysql", "proxysql+mode=transaction"] {
            let Some(running) = linked.proxy(path, "q1") else { return };
            let mut seen = 0;
            for _ in 0..CLIENTS_EACH {
                let mut client = linked.client(&running);
                let table = "EXECUTE IMMEDIATE 'CREATE TEMPORARY TABLE left_behind AS SELECT 1'";
                if client.execute(table).is_err() {
                    seen += 1;
                }
                client.close().expect("a close");
            }
            match proxy_of(path).mode {
                PoolMode::Session => assert_eq!(seen, 0, "{path}"),
                PoolMode::Transaction => assert!(seen > 0, "{path}: no client had a connection of another"),
            }
        }
    }
}

#[test]
fn only_its_user_reaches_proxysql_and_its_password_is_private() {
    for linked in LinkedServer::all() {
        let account = linked.server.account(Auth::default_of(linked.server.engine()));
        let password = fs::read_to_string(&account.password_file).expect("the password");
        assert!(!password.is_empty());
        for (path, ports) in [("proxysql", 0), ("proxysql+front=tcp", 1)] {
            let Some(running) = linked.proxy(path, "q2") else { return };
            linked.client(&running).close().expect("a close");
            let (pid, place) = (running.pid(), linked.fixture.lab.scratch().path().join("q2"));
            let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("its arguments");
            assert!(arguments.split('\0').any(|argument| argument == "--no-version-check"), "{arguments}");
            wait_for_admin(&place);
            for of_process in ["cmdline", "environ"] {
                let seen = fs::read(format!("/proc/{pid}/{of_process}")).expect("what can be seen of it");
                let shows = seen.windows(password.len()).any(|part| part == password.as_bytes());
                assert!(!shows, "{path}: the password is in its {of_process}");
            }
            assert_eq!(listening_ports(pid), ports, "{path}: the ports on which it listens");
            assert_private(&place, &password);
            let mode = fs::metadata(place.join("run")).expect("its directory").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{path}: others reach its sockets");
            let logs = linked.fixture.log();
            for log in fs::read_dir(logs.parent().expect("a directory")).expect("logs").flatten() {
                let text = fs::read(log.path()).unwrap_or_default();
                let shows = text.windows(password.len()).any(|part| part == password.as_bytes());
                assert!(!shows, "{path}: the password is in {}", log.path().display());
            }
            drop(running);
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{path}: process {pid} is left");
            assert!(!place.exists(), "{path}: {} is left", place.display());
        }
    }
}

/// Its admin interface, the last one, has opened.
fn wait_for_admin(place: &Path) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !place.join("run/admin.sock").exists() {
        assert!(Instant::now() < deadline, "no admin socket in {}", place.display());
        thread::yield_now();
    }
}

/// The number of TCP ports on which a process listens.
fn listening_ports(pid: i32) -> usize {
    /// `TCP_LISTEN` in `/proc/net/tcp`, whose second field is the address, and whose tenth is the inode (proc(5)).
    const LISTENS: &str = "0A";
    let own: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its file descriptors")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.display().to_string())
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    // Each of its threads has a socket of its own.
    let listens = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_own = fields[3] == LISTENS && own.contains(&format!("socket:[{}]", fields[9]));
        is_own.then(|| fields[1].to_owned())
    });
    listens.collect::<BTreeSet<String>>().len()
}
