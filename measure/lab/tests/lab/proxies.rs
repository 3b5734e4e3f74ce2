//! Real proxies over a simulated link: they work, and a capture on the link sees no plaintext.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_host::user::RunAs;
use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{ClientAccount, Error, Server, Tables};
use ciphertoll_link::LinkProcess;
use ciphertoll_model::{
    Auth, Clients, Endpoint, Engine, ExitCode, Group, Link, LinkKind, LinkShape, Path as NetworkPath, Proxy,
    ProxyProgram, ServerLevel,
};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_testing::{missing, no_proxy};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};

use crate::capture::{Capture, MARKER};
use crate::common::{self, QueryText};
use crate::fixture::{Fixture, Way, connect};

const RTT: Link = Link::Emulated(LinkShape::of_rtt_us(2_000));
/// Number of clients, each with one query.
const VISITS: u64 = 40;

/// A PostgreSQL behind a link.
struct LinkedServer {
    // Dropped in this order: the link owns the server's network.
    server: Server,
    link: LinkProcess,
    fixture: Fixture,
}

impl LinkedServer {
    fn make() -> Option<Self> {
        let mut fixture = Fixture::of(&ServerLevel::of(Engine::Postgres))?;
        let mut link = match LinkProcess::start(&common::helper(), Some(LinkKind::Ring)) {
            Ok(link) => link,
            Err(error) => {
                missing(&error);
                return None;
            }
        };
        fixture.lab.move_servers_to(link.servers().expect("a network").clone());
        let mut server = fixture.start(&Tables::default(), None).expect("a server");
        server.prepare_auth(Auth::Trust).expect("an account");
        link.set(LinkShape::of_rtt_us(2_000)).expect("a link");
        Some(Self { server, link, fixture })
    }

    fn logs(&self) -> PathBuf {
        self.fixture.log().parent().expect("a directory").to_owned()
    }

    fn proxy(&mut self, proxy: Proxy, account: &ClientAccount, number: usize) -> Result<RunningProxy, Error> {
        let Endpoint::Tcp(behind) = self.server.endpoint_over(RTT) else { panic!("a server listens on TCP") };
        self.server.install_certificate(proxy.upstream_tls())?;
        let start = ProxyStart {
            proxy,
            server: &self.server,
            behind,
            account,
            admission: SocketAuth::Trusted,
            arguments: &[],
            clients: Clients::ONE,
            name: &format!("q{number}"),
            namespace: self.link.clients(),
            processors: None,
            logs: &self.logs(),
        };
        self.fixture.lab.start_proxy(&start)
    }

    /// Runs psql at the clients' end of the link, without TLS.
    fn ask_directly(&self) -> String {
        let Endpoint::Tcp(address) = self.server.endpoint_over(RTT) else {
            panic!("a server listens on TCP")
        };
        let (user, database) = (self.server.account(Auth::Trust).user, self.server.database());
        let place = format!(
            "host={} port={} user={user} dbname={database} sslmode=disable",
            address.ip(),
            address.port()
        );
        let statement = format!("SELECT '{MARKER}'");
        let launch = Launch {
            what: "psql".to_owned(),
            program: "/usr/bin/psql".into(),
            arguments: ["-X", "-At", "-c", &statement, &place].map(ToOwned::to_owned).to_vec(),
            environment: BTreeMap::new(),
            directory: "/".into(),
            run_as: RunAs::Ourselves,
            processors: None,
            namespace: self.link.clients().cloned(),
            provisions: Provisions::default(),
            log: self.logs().join("psql.log"),
        };
        let mut client =
            Child::spawn(self.fixture.lab.scratch(), &common::helper(), &launch).expect("a client");
        let ended = client.wait(Duration::from_mins(2)).expect("its end");
        assert!(ended.is_some_and(|status| status.success()), "{}", client.output());
        client.output()
    }
}

/// Queries the marker through a proxy.
fn visit(running: &RunningProxy, account: &ClientAccount, database: &str) -> String {
    let Endpoint::Unix(socket) = running.endpoint() else { panic!("a unix socket in front") };
    let login = postgres::PostgresLogin {
        startup: Vec::new(),
        user: account.user.clone(),
        password: Secret::new(fs::read(&account.password_file).expect("the password")),
        database: Some(database.to_owned()),
        encryption: postgres::PostgresTlsMode::Plain,
        channel_binding: postgres::ChannelBinding::Disabled,
    };
    let mut client =
        Client::connect(&Address::Unix(socket), Login::Postgres(login.into()), None).expect("let in");
    let answer = client.query_text(&format!("SELECT '{MARKER}'")).expect("an answer").expect("a row");
    client.close().expect("a close");
    answer
}

/// The proxies of PostgreSQL.
fn proxies() -> [Proxy; 7] {
    [
        "proxy",
        "proxy+tls=1.3-rsa2048",
        "proxy+group=p256+mode=transaction",
        "pgbouncer",
        "pgbouncer+tls=1.2-rsa2048+mode=transaction",
        "odyssey",
        "odyssey+tls=1.3-rsa2048+mode=transaction",
    ]
    .map(proxy_of)
}

pub(crate) fn proxy_of(path: &str) -> Proxy {
    path.parse::<NetworkPath>().unwrap().as_proxy().expect("a proxy")
}

/// The proxy; prints a reason to skip if its program is missing.
pub(crate) fn here(started: Result<RunningProxy, Error>, proxy: Proxy) -> Option<RunningProxy> {
    match started {
        Ok(running) => Some(running),
        Err(error) if error.exit_code() == ExitCode::NothingRan => {
            no_proxy(proxy.program, &error);
            None
        }
        Err(error) => panic!("{proxy}: {error}"),
    }
}

#[test]
fn pooled_connections_are_few_and_encrypted() {
    let Some(mut linked) = LinkedServer::make() else { return };
    // Without a proxy, the capture sees the marker.
    let capture = Capture::begin(linked.link.clients().expect("a network"));
    assert!(linked.ask_directly().contains(MARKER));
    assert!(capture.end().1, "in plaintext the marker goes over the link");
    let auth = Auth::default_of(Engine::Postgres);
    linked.server.prepare_auth(auth).expect("an account");
    let account = linked.server.account(auth);
    for (number, proxy) in proxies().into_iter().enumerate() {
        let before = linked.server.connection_counts().expect("counters");
        let started = linked.proxy(proxy, &account, number);
        let Some(running) = here(started, proxy) else { continue };
        let capture = Capture::begin(linked.link.clients().expect("a network"));
        for _ in 0..VISITS {
            assert_eq!(visit(&running, &account, linked.server.database()), MARKER, "{proxy}");
        }
        let (bytes, seen) = capture.end();
        assert!(bytes > MARKER.len() * VISITS as usize, "{proxy}: {bytes} bytes went over the link");
        assert!(!seen, "{proxy}: the marker can be read on the way");
        let watcher = linked.server.connection_monitor(&account.user).expect("a connection");
        let standing = watcher.expect("PostgreSQL tells").list().expect("an answer");
        assert!(!standing.is_empty(), "{proxy}");
        for one in standing.iter().map(|standing| &standing.leg).chain([running.leg()]) {
            assert_eq!(one.tls_version.as_deref(), Some(proxy.version.label()), "{proxy}");
            assert_eq!(one.key.as_deref(), Some(proxy.key.label()), "{proxy}");
        }
        assert_eq!(running.leg().group.as_deref(), proxy.group.map(Group::label), "{proxy}");
        drop(running);
        // A pooled backend publishes its counters when it ends, which is late on a busy machine.
        let deadline = Instant::now() + Duration::from_mins(1);
        let came = loop {
            let came = linked.server.connection_counts().expect("counters").since(before);
            if came.requests.is_none_or(|requests| requests >= VISITS) || Instant::now() >= deadline {
                break came;
            }
        };
        // Before version 15, the server does not report them.
        if let (Some(connections), Some(requests)) = (came.connections, came.requests) {
            assert!((1..=4).contains(&connections), "{proxy}: {connections} for {VISITS} clients");
            assert!(requests >= VISITS, "{proxy}: {requests} requests");
        }
    }
}

#[test]
fn a_proxy_leaves_no_files_and_its_password_is_private() {
    let Some(mut linked) = LinkedServer::make() else { return };
    let auth = Auth::default_of(Engine::Postgres);
    let account = linked.server.account(auth);
    let password = fs::read_to_string(&account.password_file).expect("the password");
    assert!(!password.is_empty());
    for (number, proxy) in proxies().into_iter().enumerate() {
        let started = linked.proxy(proxy, &account, number);
        let Some(mut running) = here(started, proxy) else { continue };
        running.check().unwrap_or_else(|error| panic!("{proxy}: {error}"));
        assert!(running.setup_time() > Duration::ZERO);
        let pid = running.pid();
        for of_process in ["cmdline", "environ"] {
            let seen = fs::read(format!("/proc/{pid}/{of_process}")).expect("what can be seen of it");
            let shows = seen.windows(password.len()).any(|part| part == password.as_bytes());
            assert!(!shows, "{proxy}: the password is in its {of_process}");
        }
        let place = linked.fixture.lab.scratch().path().join(format!("q{number}"));
        assert_private(&place, &password);
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{proxy}: process {pid} is left");
        assert!(!place.exists(), "{proxy}: {} is left", place.display());
    }
}

/// Files with the password are readable by their owner only.
pub(crate) fn assert_private(place: &Path, password: &str) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(place).expect("a directory").flatten() {
        let (path, metadata) = (entry.path(), entry.metadata().expect("metadata"));
        let has_password =
            metadata.is_file() && fs::read_to_string(&path).is_ok_and(|text| text.contains(password));
        let others = metadata.permissions().mode() & 0o077;
        assert!(!has_password || others == 0, "{} can be read by others", path.display());
    }
}

/// A proxy for clients on loopback, with `account`, to a server at `behind`.
fn start_to(
    fixture: &Fixture,
    server: &Server,
    proxy: Proxy,
    behind: &Endpoint,
    auth: Auth,
    name: &str,
) -> Result<RunningProxy, Error> {
    let Endpoint::Tcp(behind) = behind else { panic!("a server listens on TCP") };
    let log = fixture.log();
    fixture.lab.start_proxy(&ProxyStart {
        proxy,
        server,
        behind: *behind,
        account: &server.account(auth),
        admission: SocketAuth::Trusted,
        // The sidecar refuses clients only after this time without a server.
        arguments: &["--queue-time", "2s"].map(ToOwned::to_owned),
        clients: Clients::ONE,
        name,
        namespace: None,
        processors: None,
        logs: log.parent().expect("a directory"),
    })
}

/// The certificates of two labs have different authorities, and their accounts without a password have the same name.
#[test]
fn a_server_of_another_authority_is_refused() {
    for engine in Engine::SQL {
        let proxies = ProxyProgram::all().into_iter().map(Proxy::of);
        let proxies = proxies.filter(|proxy| proxy.impossible(engine).is_none());
        let level = ServerLevel::of(engine);
        let (Some(own), Some(other)) = (Fixture::of(&level), Fixture::of(&level)) else { continue };
        let mut server = own.start(&Tables::default(), None).expect("a server");
        let mut impostor = other.start(&Tables::default(), None).expect("another server");
        for server in [&mut server, &mut impostor] {
            server.prepare_auth(Auth::Trust).expect("an account");
        }
        for (number, proxy) in proxies.enumerate() {
            let to = |endpoint: Endpoint, name: &str| {
                start_to(&own, &server, proxy, &endpoint, Auth::Trust, &format!("{name}{number}"))
            };
            let Some(_running) = here(to(server.tcp_endpoint(), "own"), proxy) else { continue };
            assert!(to(impostor.tcp_endpoint(), "other").is_err(), "{proxy}: it does not verify its server");
        }
    }
}

/// The certificate is for `localhost`, `127.0.0.1` and `::1`, and the proxy connects to `127.0.0.2`.
#[test]
fn a_server_of_another_name_is_refused_unless_documented() {
    for (engine, proxies) in [
        (Engine::Postgres, &[("proxy", true), ("odyssey", false)][..]),
        (Engine::MariaDb, &[("proxy", true), ("proxysql", false)][..]),
    ] {
        let Some(fixture) = Fixture::of(&ServerLevel::of(engine)) else { continue };
        let mut server = fixture.start(&Tables::default(), None).expect("a server");
        server.prepare_auth(Auth::Trust).expect("an account");
        let other = Endpoint::Tcp(forward_to(&server));
        for (number, (path, verifies)) in proxies.iter().enumerate() {
            let proxy = proxy_of(path);
            let started = start_to(&fixture, &server, proxy, &other, Auth::Trust, &format!("n{number}"));
            match started {
                Err(error) if error.exit_code() != ExitCode::NothingRan => {
                    assert!(*verifies, "{proxy}: {error}");
                }
                started => {
                    let started = here(started, proxy);
                    assert!(started.is_none() || !verifies, "{proxy}: it does not verify the name");
                }
            }
        }
    }
}

/// An address of loopback that is not in the server's certificate, and leads to the server.
fn forward_to(server: &Server) -> SocketAddr {
    let Endpoint::Tcp(behind) = server.tcp_endpoint() else { panic!("a server listens on TCP") };
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(behind) else { return };
            for (mut from, mut to) in [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().expect("a stream"), to.try_clone().expect("a stream")))
            {
                thread::spawn(move || {
                    // Either side may have left.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn mysql_router_pools_encrypted_connections() {
    let Some(fixture) = Fixture::of(&ServerLevel::of(Engine::MySql)) else { return };
    let server = fixture.start(&Tables::default(), None).expect("a server");
    let auth = Auth::default_of(Engine::MySql);
    for (number, path) in
        ["mysqlrouter", "mysqlrouter+mode=transaction", "mysqlrouter+front=tcp"].into_iter().enumerate()
    {
        let proxy = proxy_of(path);
        let before = server.connection_counts().expect("counters");
        let started = start_to(&fixture, &server, proxy, &server.tcp_endpoint(), auth, &format!("r{number}"));
        let Some(mut running) = here(started, proxy) else { continue };
        for _ in 0..VISITS {
            let leg = running.connect_through(&server).expect("a client");
            assert_eq!(leg.tls_version.as_deref(), Some("tls1.3"), "{proxy}");
        }
        drop(running);
        let came = server.connection_counts().expect("counters").since(before);
        let connections = came.connections.expect("MySQL counts them");
        assert!((1..=4).contains(&connections), "{proxy}: {connections} for {VISITS} clients");
        assert_eq!(came.unencrypted(), Some(0), "{proxy}: {came:?}");
    }
}

#[test]
fn a_missing_or_unsuitable_proxy_is_an_error() {
    let Some(fixture) = Fixture::of(&ServerLevel::of(Engine::MariaDb)) else { return };
    let server = fixture.start(&Tables::default(), None).expect("a server");
    let account = server.account(Auth::default_of(Engine::MariaDb));
    let Endpoint::Tcp(behind) = server.tcp_endpoint() else { panic!("a server listens on TCP") };
    let path: NetworkPath = "pgbouncer".parse().unwrap();
    let log = fixture.log();
    let start = ProxyStart {
        proxy: path.as_proxy().expect("a proxy"),
        server: &server,
        behind,
        account: &account,
        admission: SocketAuth::Trusted,
        arguments: &[],
        clients: Clients::ONE,
        name: "q1",
        namespace: None,
        processors: None,
        logs: log.parent().expect("a directory"),
    };
    let Err(error) = fixture.lab.start_proxy(&start) else { panic!("PgBouncer speaks no MySQL") };
    let told = error.to_string();
    assert!(["pgbouncer", "PgBouncer", "log in"].iter().any(|word| told.contains(word)), "{told}");
    assert!(!fixture.lab.scratch().path().join("q1").exists(), "its files are left");
}

/// Gates rely on the server's counters of connections, TLS handshakes and requests.
#[test]
fn servers_count_connections() {
    const EACH: u64 = 5;
    for engine in Engine::SQL {
        let Some(fixture) = Fixture::of(&ServerLevel::of(engine)) else { continue };
        let server = fixture.start(&Tables::default(), None).expect("a server");
        let before = server.connection_counts().expect("counters");
        for way in [Way::Unix, Way::Plain, Way::Tls] {
            for _ in 0..EACH {
                let mut client = connect(&server, Auth::default_of(engine), way).expect("a client");
                client.execute("SELECT 1").expect("an answer");
                client.close().expect("a close");
            }
        }
        let came = server.connection_counts().expect("counters").since(before);
        // PostgreSQL before version 15 does not report them.
        let Some(connections) = came.connections else { continue };
        let (least, most) = (3 * EACH, 3 * EACH + 1);
        assert!((least..=most).contains(&connections), "{engine}: {came:?}");
        assert!(came.requests >= Some(3 * EACH), "{engine}: {came:?}");
        if engine.is_mysql_family() {
            assert_eq!((came.encrypted, came.unencrypted()), (Some(EACH), Some(2 * EACH)), "{engine}");
        } else {
            assert_eq!(came.encrypted, None, "{engine}");
        }
    }
}
