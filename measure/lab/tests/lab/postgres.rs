//! A real PostgreSQL: started, used over every path and removed.

use std::fs;
use std::sync::Arc;

use ciphertoll_host::accounting::Sample;
use ciphertoll_lab::{Build, Error, Lab, Server, ServerStart, Tables, find};
use ciphertoll_model::{
    Auth, ChannelBinding, Endpoint, Engine, Path, Scale, SecurityLevel, ServerKey, ServerLevel, Settings,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_record::{ProcessEnd, ProcessIdentity};
use ciphertoll_testing::{missing, not_for_all};
use ciphertoll_wire::postgres::{self, PostgresTlsMode};
use ciphertoll_wire::{Secret, session::Login};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{self, QueryText};

const ROWS: u32 = 1_500;

struct Fixture {
    // Dropped in this order: the temporary directory contains the scratch directory.
    lab: Lab,
    build: Build,
    place: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Option<Self> {
        Self::of(&ServerLevel::of(Engine::Postgres))
    }

    /// With the build of `level`, if it is installed.
    fn of(level: &ServerLevel) -> Option<Self> {
        let build = installed(level)?;
        let place = common::place();
        // All tests share templates, which are kept between runs.
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let lab = Lab::open_in(common::helper(), &place.path().join("scratch"), cache.into())
            .expect("a lab of our own");
        Some(Self { lab, build, place })
    }

    fn start(&self, preferred_port: Option<u16>) -> Server {
        self.start_with(preferred_port, &[]).expect("the server starts")
    }

    fn start_with(&self, preferred_port: Option<u16>, settings: &[&str]) -> Result<Server, Error> {
        let scale: Scale = ROWS.to_string().parse().expect("a scale");
        let tables = Tables { sysbench: Some(scale), ..Tables::default() };
        let template =
            self.lab.template(&self.build, &tables, &mut |_| {}, &|| false).expect("a template is made");
        let start = ServerStart {
            build: &self.build,
            template: &template,
            name: "p1",
            key: ServerKey::P256,
            log: self.place.path().join("postgres.log"),
            preferred_port,
            processors: None,
            strength: SecurityLevel::Default,
        };
        let mut asked = Settings::default();
        asked.extend(settings.iter().map(|setting| setting.parse().expect("a setting")));
        self.lab.start_with(&start, &asked)
    }
}

/// The installed PostgreSQL; prints a reason to skip if there is none.
fn installed(level: &ServerLevel) -> Option<Build> {
    find(level).inspect_err(missing).ok()
}

fn auth(text: &str) -> Auth {
    text.parse().expect("a level of auth")
}

#[derive(Clone, Copy)]
enum Way {
    Unix,
    Plain,
    Tls,
    /// TLS from the first byte, from version 17.
    DirectTls,
}

impl Way {
    fn encryption(self) -> PostgresTlsMode {
        match self {
            Self::Unix | Self::Plain => PostgresTlsMode::Plain,
            Self::Tls => PostgresTlsMode::Tls,
            Self::DirectTls => PostgresTlsMode::DirectTls,
        }
    }
}

fn connect(
    server: &Server,
    auth: Auth,
    way: Way,
    password: Option<&[u8]>,
) -> Result<Client, ciphertoll_net::Error> {
    let account = server.account(auth);
    let stored = fs::read(&account.password_file).expect("the password is readable");
    let binds = matches!(auth, Auth::Scram { binding: ChannelBinding::ServerEndPoint, .. });
    let login = postgres::PostgresLogin {
        startup: Vec::new(),
        user: account.user,
        password: Secret::new(password.map_or(stored, <[u8]>::to_vec)),
        database: Some(server.database().to_owned()),
        encryption: way.encryption(),
        channel_binding: if binds {
            postgres::ChannelBinding::Required
        } else {
            postgres::ChannelBinding::Disabled
        },
    };
    let endpoint = if matches!(way, Way::Unix) { server.unix_endpoint() } else { server.tcp_endpoint() };
    let address = match endpoint {
        Endpoint::Tcp(address) => Address::Tcp(address),
        Endpoint::Host { .. } => panic!("a private server has an address"),
        Endpoint::Unix(path) => Address::Unix(path),
    };
    let context = matches!(way, Way::Tls | Way::DirectTls).then(|| {
        let settings = tls::Settings::new(
            tls::TlsParameters::new(tls::TlsVersion::Tls13),
            tls::TrustAnchors::File(server.ca_file()),
            server.server_name().into(),
        );
        tls::Context::build(&settings).expect("a TLS context")
    });
    Client::connect(&address, Login::Postgres(Arc::new(login)), context.as_ref())
}

#[test]
fn requested_settings_take_effect_or_are_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let asked = [
        "postgres.shared_buffers=65536kB",
        "postgres.synchronous_commit=off",
        "postgres.datestyle=german",
        "postgres.cluster_name=it's \\ # odd",
        // A setting of another engine.
        "mariadb.performance_schema=ON",
    ];
    let server = fixture.start_with(None, &asked).unwrap();
    assert_eq!(server.unmet_settings(), [""; 0]);
    assert_eq!(server.settings()["shared_buffers"], "64MB");
    assert_eq!(server.settings()["synchronous_commit"], "off");
    assert_eq!(server.settings()["cluster_name"], "it's \\ # odd");
    drop(server);
    let server = fixture.start_with(None, &["postgres.own.thing=1"]).unwrap();
    let [said] = server.unmet_settings() else { panic!("{:?}", server.unmet_settings()) };
    assert!(said.starts_with("postgres.own.thing took no effect: PostgreSQL "), "{said}");
    drop(server);
    for (setting, named) in [("postgres.work_mem=lots", "work_mem"), ("postgres.wrok_mem=1MB", "wrok_mem")] {
        match fixture.start_with(None, &[setting]) {
            Err(Error::Host(ciphertoll_host::Error::Died { log_end, .. })) => {
                assert!(log_end.contains("contains errors"), "{log_end}");
            }
            other => panic!("{setting}: {:?}", other.map(|_| ())),
        }
        let log = fs::read_to_string(fixture.place.path().join("postgres.log")).unwrap();
        assert!(log.contains(named), "{log}");
    }
}

#[test]
fn a_server_serves_every_path_and_leaves_no_files() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None);
    assert!(server.is_alive());
    assert!(server.version().starts_with(&fixture.build.version), "{}", server.version());
    assert!(server.tls_library().unwrap().starts_with("OpenSSL "));
    assert_eq!(server.settings()["shared_buffers"], "128MB");
    let default = Auth::default_of(Engine::Postgres);
    assert_eq!(server.account(default).user, server.user());
    for way in [Way::Unix, Way::Plain, Way::Tls] {
        let mut client = connect(&server, default, way, None).unwrap();
        let rows = client.query_text("SELECT count(*) FROM sbtest1").unwrap();
        assert_eq!(rows.unwrap(), ROWS.to_string());
        assert!(client.query("SELECT * FROM pg_authid").is_err(), "no rights beyond the tables");
    }
    for (key, label) in
        [(ServerKey::P256, "p256"), (ServerKey::Rsa2048, "rsa2048"), (ServerKey::P256, "p256")]
    {
        server.install_certificate(key).unwrap();
        let client = connect(&server, default, Way::Tls, None).unwrap();
        assert_eq!(client.negotiated().unwrap().key, label);
    }
    let identity = ProcessIdentity::of(server.pid()).unwrap();
    assert_eq!(server.stop().unwrap(), ProcessEnd::Terminated);
    assert!(!identity.is_alive());
    let scratch = fixture.lab.scratch().path().to_owned();
    assert!(!scratch.join("p1").exists());
    drop(fixture.lab);
    assert!(!scratch.exists());
}

#[test]
fn every_authentication_requires_the_password() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None);
    for text in ["trust", "md5", "scram-1", "scram-4096", "scram-4096+plus"] {
        let auth = auth(text);
        server.prepare_auth(auth).unwrap();
        server.prepare_auth(auth).unwrap();
        for way in [Way::Unix, Way::Plain, Way::Tls] {
            if auth.to_string().ends_with("+plus") && !matches!(way, Way::Tls) {
                continue;
            }
            let mut client = connect(&server, auth, way, None).unwrap();
            assert_eq!(client.server().auth_label(), text);
            assert!(client.query_text("SELECT c FROM sbtest1 WHERE id = 1").unwrap().is_some());
            let refused = connect(&server, auth, way, Some(b"wrong")).is_err();
            assert_eq!(refused, auth != Auth::Trust, "{text}");
        }
    }
    for auth in [Auth::Native, Auth::CachingSha2, Auth::Ed25519, Auth::Parsec] {
        let error = server.prepare_auth(auth).unwrap_err();
        assert!(matches!(error, Error::AuthUnavailable { .. }), "{error}");
    }
    let password = fs::read_to_string(server.password_file()).unwrap();
    let log = fs::read_to_string(fixture.place.path().join("postgres.log")).unwrap();
    assert!(password.len() >= 24 && !log.contains(&password));
}

#[test]
fn prewarmed_rows_are_cached() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None);
    server.prewarm().unwrap();
    let misses = server.buffer_misses().unwrap().unwrap();
    assert!(misses > 0, "a fresh server has read its table from outside");
    let mut client = connect(&server, Auth::default_of(Engine::Postgres), Way::Unix, None).unwrap();
    client.execute("SELECT sum(length(pad)) FROM sbtest1").unwrap();
    client.close().unwrap();
    assert_eq!(server.buffer_misses().unwrap().unwrap(), misses);
}

#[test]
fn a_killed_server_leaves_no_shared_memory() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None);
    let pid = server.pid();
    let ipc_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/ipc")).unwrap();
    if ipc_of(&pid.to_string()) == ipc_of("self") {
        not_for_all("shared memory of one's own is for root");
        return;
    }
    let files = |directory: &str| -> Vec<_> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let own = files(&format!("/proc/{pid}/root/dev/shm"));
    assert!(!own.is_empty(), "it has some");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    drop(server);
    let left = files("/dev/shm");
    assert!(!left.iter().any(|name| own.contains(name)), "{own:?} of {left:?}");
    // The fifth column is the creator.
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let makers = table.lines().filter_map(|line| line.split_ascii_whitespace().nth(4));
    assert!(!makers.into_iter().any(|maker| maker == pid.to_string()), "{table}");
}

#[test]
fn cpu_time_includes_ended_processes() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None);
    let meter = server.cpu_meter();
    let before = Sample::take(Some(&meter), &[]).unwrap();
    for _ in 0..20 {
        connect(&server, Auth::default_of(Engine::Postgres), Way::Tls, None).unwrap().close().unwrap();
    }
    let difference = Sample::take(Some(&meter), &[]).unwrap().since(&before);
    assert!(difference.server_cpu_ns > 20 * 100_000, "a login takes more than 0.1 ms: {difference:?}");
    assert!(server.memory_pid().is_none());
}

#[test]
fn a_port_in_use_is_not_taken() {
    let Some(fixture) = Fixture::new() else { return };
    let holder = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = holder.local_addr().unwrap().port();
    let server = fixture.start(Some(taken));
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    assert_ne!(address.port(), taken);
}

#[test]
fn a_fetched_build_supports_direct_tls() {
    let level: ServerLevel = "postgres-18".parse().unwrap();
    let Some(fixture) = Fixture::of(&level) else { return };
    let server = fixture.start(None);
    assert!(server.version().starts_with("18."), "{}", server.version());
    let path: Path = "tls1.3-p256+direct".parse().unwrap();
    server.prepare_tls(path.as_tls().unwrap()).unwrap();
    for way in [Way::Unix, Way::Plain, Way::Tls, Way::DirectTls] {
        let mut client = connect(&server, Auth::default_of(Engine::Postgres), way, None).unwrap();
        let rows = client.query_text("SELECT count(*) FROM sbtest1").unwrap();
        assert_eq!(rows.unwrap(), ROWS.to_string());
        let encrypted = client.negotiated().is_some();
        assert_eq!(encrypted, way.encryption() != PostgresTlsMode::Plain);
        let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(client.query_text(ssl).unwrap().unwrap(), if encrypted { "t" } else { "f" });
    }
}
