//! A real MariaDB: started, used over every path and removed.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ciphertoll_host::accounting::Sample;
use ciphertoll_lab::{Build, DataTemplate, Error, Lab, Server, ServerStart, Tables, find};
use ciphertoll_model::{
    AtRest, Auth, Endpoint, Engine, Scale, SecurityLevel, ServerKey, ServerLevel, Settings,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_record::{ProcessEnd, ProcessIdentity};
use ciphertoll_testing::missing;
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{self, MySqlTlsMode};
use ciphertoll_wire::session::Login;

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
        let build = installed()?;
        let place = common::place();
        // All tests share templates, which are kept between runs.
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let lab = Lab::open_in(common::helper(), &place.path().join("scratch"), cache.into()).unwrap();
        Some(Self { lab, build, place })
    }

    fn start(&self, preferred_port: Option<u16>) -> Result<Server, Error> {
        let template = self.lab.template(&self.build, &tables(), &mut |_| {}, &|| false)?;
        self.start_on(&template, preferred_port)
    }

    fn start_on(&self, template: &DataTemplate, preferred_port: Option<u16>) -> Result<Server, Error> {
        self.start_with(template, preferred_port, &[])
    }

    fn start_with(
        &self,
        template: &DataTemplate,
        preferred_port: Option<u16>,
        settings: &[&str],
    ) -> Result<Server, Error> {
        let start = ServerStart {
            build: &self.build,
            template,
            name: "m1",
            key: ServerKey::P256,
            log: self.place.path().join("mariadb.log"),
            preferred_port,
            processors: None,
            strength: SecurityLevel::Default,
        };
        let mut asked = Settings::default();
        asked.extend(settings.iter().map(|setting| setting.parse().expect("a setting")));
        self.lab.start_with(&start, &asked)
    }
}

/// The installed MariaDB; prints a reason to skip if there is none.
fn installed() -> Option<Build> {
    find(&ServerLevel::of(Engine::MariaDb)).inspect_err(missing).ok()
}

fn tables() -> Tables {
    let scale: Scale = ROWS.to_string().parse().unwrap();
    Tables { sysbench: Some(scale), ..Tables::default() }
}

fn login(server: &Server, encryption: MySqlTlsMode) -> Login {
    let password = Secret::new(fs::read(server.password_file()).unwrap());
    Login::MySql(Arc::new(mysql::MySqlLogin {
        database: Some(server.database().to_owned()),
        encryption,
        ..mysql::MySqlLogin::new(server.user(), password)
    }))
}

fn address(endpoint: Endpoint) -> Address {
    match endpoint {
        Endpoint::Tcp(address) => Address::Tcp(address),
        Endpoint::Host { .. } => panic!("a private server has an address"),
        Endpoint::Unix(path) => Address::Unix(path),
    }
}

fn connect_tls(server: &Server, version: tls::TlsVersion) -> tls::Negotiated {
    let settings = tls::Settings::new(
        tls::TlsParameters::new(version),
        tls::TrustAnchors::File(server.ca_file()),
        server.server_name().into(),
    );
    let context = tls::Context::build(&settings).unwrap();
    let endpoint = address(server.tcp_endpoint());
    let mut client = Client::connect(&endpoint, login(server, MySqlTlsMode::Tls), Some(&context)).unwrap();
    assert!(client.query_text("SHOW STATUS LIKE 'Ssl_cipher'").unwrap().is_some());
    client.negotiated().unwrap()
}

#[test]
fn a_server_serves_every_path_and_leaves_no_files() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None).unwrap();
    assert!(server.is_alive());
    assert!(server.version().contains("MariaDB"), "{}", server.version());
    assert!(server.tls_library().unwrap().contains("OpenSSL"));
    for endpoint in [server.tcp_endpoint(), server.unix_endpoint()] {
        let mut client =
            Client::connect(&address(endpoint), login(&server, MySqlTlsMode::Plain), None).unwrap();
        let rows = client.query_text("SELECT COUNT(*) FROM sbtest1").unwrap();
        assert_eq!(rows.unwrap(), ROWS.to_string());
    }
    for (key, label) in
        [(ServerKey::P256, "p256"), (ServerKey::Rsa2048, "rsa2048"), (ServerKey::P256, "p256")]
    {
        server.install_certificate(key).unwrap();
        server.install_certificate(key).unwrap();
        for version in [tls::TlsVersion::Tls12, tls::TlsVersion::Tls13] {
            let negotiated = connect_tls(&server, version);
            assert_eq!(negotiated.key, label);
        }
    }
    server.prewarm().unwrap();
    let misses = server.buffer_misses().unwrap().unwrap();
    let mut client =
        Client::connect(&address(server.unix_endpoint()), login(&server, MySqlTlsMode::Plain), None).unwrap();
    client.execute("SELECT SUM(LENGTH(pad)) FROM sbtest1 FORCE INDEX (PRIMARY)").unwrap();
    assert_eq!(server.buffer_misses().unwrap().unwrap(), misses, "rows that were read before are cached");
    client.close().unwrap();
    let identity = ProcessIdentity::of(server.pid()).unwrap();
    assert_eq!(server.stop().unwrap(), ProcessEnd::Terminated);
    assert!(!identity.is_alive());
    let scratch = fixture.lab.scratch().path().to_owned();
    assert!(!scratch.join("m1").exists());
    drop(fixture.lab);
    assert!(!scratch.exists());
}

#[test]
fn an_account_without_a_password_is_created_on_request() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None).unwrap();
    server.prepare_auth(Auth::Trust).unwrap();
    server.prepare_auth(Auth::Trust).unwrap();
    let account = server.account(Auth::Trust);
    let password = Secret::new(fs::read(account.password_file).unwrap());
    let login = mysql::MySqlLogin {
        database: Some(server.database().to_owned()),
        ..mysql::MySqlLogin::new(account.user, password)
    };
    let endpoint = address(server.tcp_endpoint());
    let mut client = Client::connect(&endpoint, Login::MySql(Arc::new(login)), None).unwrap();
    assert_eq!(client.query_text("SELECT COUNT(*) FROM sbtest1").unwrap().unwrap(), ROWS.to_string());
    assert!(matches!(server.prepare_auth(Auth::Md5), Err(Error::AuthUnavailable { .. })));
}

#[test]
fn settings_differ_from_defaults_and_contain_no_scratch_paths() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None).unwrap();
    let settings = server.settings();
    assert_eq!(settings["max_connections"], "4096");
    assert_eq!(settings["skip_name_resolve"], "ON");
    let scratch = fixture.place.path().to_str().unwrap();
    assert!(settings.values().all(|value| !value.contains(scratch)), "{settings:?}");
}

#[test]
fn requested_settings_take_effect_or_are_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let template = fixture.lab.template(&fixture.build, &tables(), &mut |_| {}, &|| false).unwrap();
    let asked = [
        "mariadb.innodb-buffer-pool-size=64M",
        "mariadb.innodb_flush_log_at_trx_commit=2",
        "mariadb.performance_schema=on",
        "mariadb.init_connect=SET @a = 1 # odd",
        // A setting of another engine.
        "postgres.work_mem=1MB",
    ];
    let server = fixture.start_with(&template, None, &asked).unwrap();
    assert_eq!(server.unmet_settings(), [""; 0]);
    assert_eq!(server.settings()["innodb_buffer_pool_size"], "67108864");
    assert_eq!(server.settings()["innodb_flush_log_at_trx_commit"], "2");
    assert_eq!(server.settings()["init_connect"], "SET @a = 1 # odd");
    drop(server);
    // The server limits the value, with a warning in the log only.
    let server = fixture.start_with(&template, None, &["mariadb.back_log=99999999"]).unwrap();
    let [said] = server.unmet_settings() else { panic!("{:?}", server.unmet_settings()) };
    assert!(said.starts_with("mariadb.back_log=99999999 did not take effect: MariaDB "), "{said}");
    drop(server);
    match fixture.start_with(&template, None, &["mariadb.innodb_bufer_pool_size=64M"]) {
        Err(Error::Host(ciphertoll_host::Error::Died { log_end, .. })) => {
            assert!(log_end.contains("innodb_bufer_pool_size"), "{log_end}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn logins_without_the_password_are_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None).unwrap();
    for user in
        ["root", "ciphertoll", "ciphertoll_control", "ciphertoll_trust", "ciphertoll_cert", "mariadb.sys", ""]
    {
        for endpoint in [server.tcp_endpoint(), server.unix_endpoint()] {
            let login = mysql::MySqlLogin::new(user, Secret::new(Vec::new()));
            assert!(
                Client::connect(&address(endpoint), Login::MySql(Arc::new(login)), None).is_err(),
                "{user}"
            );
        }
    }
    let mut client =
        Client::connect(&address(server.unix_endpoint()), login(&server, MySqlTlsMode::Plain), None).unwrap();
    assert!(client.query("SELECT * FROM mysql.global_priv").is_err(), "no rights beyond the table's schema");
}

#[test]
fn secrets_are_in_private_files_and_in_no_argument_or_log() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None).unwrap();
    for auth in [Auth::Trust, Auth::Cert] {
        server.prepare_auth(auth).unwrap();
    }
    let identity = server.account(Auth::Cert).identity.unwrap();
    let metadata = fs::metadata(&identity.key_file).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.uid()), (0o600, nix::unistd::geteuid().as_raw()));
    let password = fs::read_to_string(server.password_file()).unwrap();
    assert!(password.len() >= 24);
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    let log = fs::read_to_string(fixture.place.path().join("mariadb.log")).unwrap();
    assert!(!arguments.contains(&password) && !log.contains(&password));
    server.install_certificate(ServerKey::Rsa2048).unwrap();
    let root = server.password_file().parent().unwrap().to_owned();
    let owner = fs::metadata(root.join("data")).unwrap().uid();
    let mut keys = 0;
    for path in files_under(&root) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let private = metadata.permissions().mode() & 0o777 == 0o600;
        if path.ends_with("key.pem") {
            keys += 1;
            assert!(private && metadata.uid() == owner, "{}", path.display());
        }
        let contents = fs::read(&path).unwrap_or_default();
        let has_password = memchr::memmem::find(&contents, password.as_bytes()).is_some();
        assert!(!has_password || (private && path == server.password_file()), "{}", path.display());
    }
    assert_eq!(keys, 2);
    if nix::unistd::geteuid().is_root() {
        assert_ne!(owner, 0, "servers do not run as root");
    }
}

#[test]
fn a_port_in_use_is_not_taken() {
    let Some(fixture) = Fixture::new() else { return };
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = holder.local_addr().unwrap().port();
    let server = fixture.start(Some(taken)).unwrap();
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    assert_ne!(address.port(), taken);
    assert!(address.port() < 32_768);
}

#[test]
fn a_killed_server_is_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let mut server = fixture.start(None).unwrap();
    let identity = ProcessIdentity::of(server.pid()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.pid()), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    assert!(identity.wait(Duration::from_mins(1)).unwrap());
    assert!(!server.is_alive());
    let error = server.check_alive().unwrap_err().to_string();
    assert!(error.contains("MariaDB") && error.contains("signal: 9"), "{error}");
    let scratch = fixture.lab.scratch().path().join("m1");
    drop(server);
    assert!(!scratch.exists());
}

#[test]
fn a_server_that_cannot_start_fails_early_with_the_reason() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.place.path().join("empty");
    fs::create_dir(&path).unwrap();
    let template = DataTemplate { path, tables: Tables::default(), at_rest: AtRest::None, keys: None };
    let Err(error) = fixture.start_on(&template, None) else { panic!("a server without tables started") };
    assert!(matches!(error, Error::Host(ciphertoll_host::Error::Died { .. })), "{error}");
    assert!(error.to_string().contains("[ERROR]"), "{error}");
    assert!(!fixture.lab.scratch().path().join("m1").exists());
}

#[test]
fn cpu_time_includes_closed_connections() {
    let Some(fixture) = Fixture::new() else { return };
    let server = fixture.start(None).unwrap();
    let before = Sample::take(Some(&server.cpu_meter()), &[]).unwrap();
    for _ in 0..20 {
        connect_tls(&server, tls::TlsVersion::Tls13);
    }
    let difference = Sample::take(Some(&server.cpu_meter()), &[]).unwrap().since(&before);
    assert!(difference.server_cpu_ns > 20 * 25_000, "a handshake takes more than 25 µs: {difference:?}");
    assert!(difference.server_cpu_ns < difference.elapsed.as_nanos() as u64 * 4);
}

pub(crate) fn files_under(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    // A running server removes some of its own files.
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return files,
        entries => entries.unwrap(),
    };
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_under(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}
