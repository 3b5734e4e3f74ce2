//! A real MySQL: its accounts and its password cache, its certificates, its settings.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use ciphertoll_lab::{ClientAccount, Error, Server, Tables};
use ciphertoll_model::{Auth, Endpoint, Engine, SecurityLevel, ServerKey};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_record::{ProcessEnd, ProcessIdentity};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql;
use ciphertoll_wire::session::Login;

use crate::common::QueryText;
use crate::fixture::{Fixture, Way, connect, connect_as, scale};
use crate::mariadb::files_under;

const WAYS: [Way; 3] = [Way::Unix, Way::Plain, Way::Tls];

fn fixtures() -> Vec<Fixture> {
    Fixture::all(Engine::MySql)
}

/// The authentication by which a client logged in.
fn logged_in(server: &Server, auth: Auth, way: Way) -> Result<String, String> {
    let client = connect(server, auth, way).map_err(|error| error.to_string())?;
    Ok(client.server().auth_label())
}

fn unix_socket(server: &Server) -> Address {
    match server.unix_endpoint() {
        Endpoint::Unix(path) => Address::Unix(path),
        other => panic!("no socket: {other:?}"),
    }
}

/// Logs in as the lab's own account, which has more rights.
fn as_control(server: &Server, sql: &str) {
    let password = Secret::new(fs::read(server.password_file()).expect("the password is readable"));
    let login = mysql::MySqlLogin {
        transport: mysql::Transport::UnixSocket,
        ..mysql::MySqlLogin::new("ciphertoll_control", password)
    };
    let mut client =
        Client::connect(&unix_socket(server), Login::MySql(login.into()), None).expect("a login");
    client.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[test]
fn a_server_serves_every_path_and_leaves_no_files() {
    for fixture in fixtures() {
        let server =
            fixture.start(&Tables { sysbench: Some(scale(1_500)), ..Tables::default() }, None).unwrap();
        assert_eq!(server.version().split('.').next(), fixture.build.version.split('.').next());
        assert!(server.tls_library().unwrap().starts_with("OpenSSL "), "{:?}", server.tls_library());
        server.prewarm().unwrap();
        let misses = server.buffer_misses().unwrap().unwrap();
        for way in WAYS {
            let mut client = connect(&server, Auth::CachingSha2, way).unwrap();
            assert_eq!(client.query_text("SELECT COUNT(*) FROM sbtest1").unwrap().unwrap(), "1500");
        }
        assert_eq!(server.buffer_misses().unwrap().unwrap(), misses, "what was read before is cached");
        let identity = ProcessIdentity::of(server.pid()).unwrap();
        assert_eq!(server.stop().unwrap(), ProcessEnd::Terminated);
        assert!(!identity.is_alive());
        let scratch = fixture.lab.scratch().path().to_owned();
        assert!(!scratch.join("t1").exists());
        drop(fixture);
        assert!(!scratch.exists());
    }
}

#[test]
fn each_account_logs_in_by_its_authentication() {
    for fixture in fixtures() {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        for (auth, label) in
            [(Auth::CachingSha2, "caching-sha2"), (Auth::Native, "native"), (Auth::Trust, "empty")]
        {
            match server.prepare_auth(auth) {
                Err(error) if auth == Auth::Native && error.to_string().contains("version 9 removed it") => {
                    continue;
                }
                prepared => prepared.unwrap(),
            }
            for way in WAYS {
                assert_eq!(logged_in(&server, auth, way), Ok(label.to_owned()), "{auth} {way:?}");
                let wrong = if auth == Auth::Trust { Auth::CachingSha2 } else { Auth::Trust };
                let wrong = ClientAccount {
                    password_file: server.account(wrong).password_file,
                    ..server.account(auth)
                };
                assert!(connect_as(&server, wrong, way).is_err(), "{auth} {way:?}");
            }
        }
        for auth in ["ed25519", "parsec", "md5", "scram-4096"] {
            let auth: Auth = auth.parse().unwrap();
            assert!(matches!(server.prepare_auth(auth), Err(Error::AuthUnavailable { .. })), "{auth}");
        }
    }
}

#[test]
fn the_password_cache_is_filled_again() {
    for fixture in fixtures() {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        for _ in 0..2 {
            for way in WAYS {
                assert_eq!(logged_in(&server, Auth::CachingSha2, way).as_deref(), Ok("caching-sha2"));
            }
            // New accounts and certificates do not clear the cache; this does.
            server.prepare_auth(Auth::Cert).unwrap();
            let before = server.pid();
            server.install_certificate(ServerKey::Rsa2048).unwrap();
            if server.pid() != before {
                // MySQL 9.7 is restarted for another certificate.
                server.prepare_auth(Auth::CachingSha2).unwrap();
            }
            assert_eq!(logged_in(&server, Auth::CachingSha2, Way::Plain).as_deref(), Ok("caching-sha2"));
            as_control(&server, "FLUSH PRIVILEGES");
            let forgotten = logged_in(&server, Auth::CachingSha2, Way::Plain);
            assert!(forgotten.is_err(), "an unauthenticated key was accepted: {forgotten:?}");
            server.prepare_auth(Auth::CachingSha2).unwrap();
        }
        assert_eq!(logged_in(&server, Auth::CachingSha2, Way::Plain).as_deref(), Ok("caching-sha2"));
    }
}

/// The key of the server's certificate.
fn key_seen(server: &Server, version: tls::TlsVersion, security_level: SecurityLevel) -> String {
    let settings = tls::Settings {
        security_level,
        ..tls::Settings::new(
            tls::TlsParameters::new(version),
            tls::TrustAnchors::File(server.ca_file()),
            server.server_name().into(),
        )
    };
    let context = tls::Context::build(&settings).expect("a TLS context");
    let password = Secret::new(fs::read(server.password_file()).expect("the password is readable"));
    let login = mysql::MySqlLogin {
        encryption: mysql::MySqlTlsMode::Tls,
        plugin: mysql::Plugin::CachingSha2Password,
        ..mysql::MySqlLogin::new(server.user(), password)
    };
    let Endpoint::Tcp(address) = server.tcp_endpoint() else { panic!("a TCP endpoint") };
    let client = Client::connect(&Address::Tcp(address), Login::MySql(login.into()), Some(&context));
    client.expect("a login").negotiated().expect("TLS").key.into_owned()
}

#[test]
fn every_key_can_be_installed() {
    for fixture in fixtures() {
        // With and without the OpenSSL configuration for weak keys.
        for strength in [SecurityLevel::Default, SecurityLevel::Weak] {
            let mut server = fixture.start_with(strength, &[]).unwrap();
            // OpenSSL 3 refuses weak keys without that configuration.
            let is_old = server.tls_library().unwrap().starts_with("OpenSSL 1.1.1");
            let accepts_weak = strength == SecurityLevel::Weak || is_old;
            let accepted = |key: &ServerKey| !key.is_ml_dsa() && (accepts_weak || !key.is_weak());
            for key in ServerKey::ALL.into_iter().filter(accepted) {
                server.install_certificate(key).unwrap();
                server.install_certificate(key).unwrap();
                let strength = if key.is_weak() { SecurityLevel::Weak } else { SecurityLevel::Default };
                for version in [tls::TlsVersion::Tls12, tls::TlsVersion::Tls13] {
                    assert_eq!(key_seen(&server, version, strength), key.label());
                }
            }
        }
    }
}

#[test]
fn settings_are_the_explicit_ones_without_paths() {
    for fixture in fixtures() {
        let asked = [
            "mysql.innodb-buffer-pool-size=64M",
            "mysql.innodb_flush_log_at_trx_commit=2",
            "mysql.init_connect=SET @a = 1 # odd",
            // A setting of another engine.
            "mariadb.innodb_buffer_pool_size=32M",
        ];
        let server = fixture.start_with(SecurityLevel::Default, &asked).unwrap();
        assert_eq!(server.unmet_settings(), [""; 0]);
        let settings = server.settings();
        assert_eq!(settings["innodb_buffer_pool_size"], "67108864");
        assert_eq!(settings["innodb_flush_log_at_trx_commit"], "2");
        assert_eq!(settings["init_connect"], "SET @a = 1 # odd");
        assert_eq!(
            (settings["max_connections"].as_str(), settings["skip_name_resolve"].as_str()),
            ("4096", "ON")
        );
        assert!(settings.values().all(|value| !value.starts_with('/')), "{settings:?}");
    }
}

#[test]
fn settings_without_effect_are_reported() {
    for fixture in fixtures() {
        // The server limits the value, with a warning in the log only.
        let server = fixture.start_with(SecurityLevel::Default, &["mysql.back_log=99999999"]).unwrap();
        let [said] = server.unmet_settings() else { panic!("{:?}", server.unmet_settings()) };
        assert!(said.starts_with("mysql.back_log=99999999 did not take effect: MySQL "), "{said}");
        drop(server);
        match fixture.start_with(SecurityLevel::Default, &["mysql.innodb_bufer_pool_size=64M"]) {
            Err(Error::Host(ciphertoll_host::Error::Died { log_end, .. })) => {
                assert!(log_end.contains("innodb_bufer_pool_size"), "{log_end}");
            }
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}

#[test]
fn logins_without_the_password_are_refused() {
    for fixture in fixtures() {
        let server = fixture.start(&Tables::default(), None).unwrap();
        for user in
            ["root", "ciphertoll", "ciphertoll_control", "mysql.sys", "mysql.session", "mysql.infoschema", ""]
        {
            for way in WAYS {
                let account = ClientAccount { user: user.to_owned(), ..server.account(Auth::Trust) };
                assert!(connect_as(&server, account, way).is_err(), "{user} {way:?}");
            }
        }
        let mut client = connect(&server, Auth::CachingSha2, Way::Unix).unwrap();
        assert!(client.query("SELECT * FROM mysql.user").is_err(), "no rights beyond the table's schema");
    }
}

#[test]
fn secrets_are_in_private_files_and_in_no_argument_or_log() {
    for fixture in fixtures() {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        for auth in [Auth::Trust, Auth::Cert] {
            server.prepare_auth(auth).unwrap();
        }
        let password = fs::read_to_string(server.password_file()).unwrap();
        let arguments = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
        let log = fs::read_to_string(fixture.log()).unwrap();
        assert!(!arguments.contains(&password) && !log.contains(&password));
        let root = server.password_file().parent().unwrap().to_owned();
        let owner = fs::metadata(root.join("data")).unwrap().uid();
        for path in files_under(&root) {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let private = metadata.permissions().mode() & 0o777 == 0o600;
            let contents = fs::read(&path).unwrap_or_default();
            let has_password = memchr::memmem::find(&contents, password.as_bytes()).is_some();
            assert!(!has_password || (private && path == server.password_file()), "{}", path.display());
            let made_by_itself =
                path.starts_with(root.join("data")) && path.extension().is_some_and(|end| end == "pem");
            assert!(!made_by_itself, "the server has made a key: {}", path.display());
        }
        if nix::unistd::geteuid().is_root() {
            assert_ne!(owner, 0, "servers do not run as root");
        }
    }
}

#[test]
fn a_killed_server_is_reported_and_the_next_one_caches_logins() {
    for fixture in fixtures() {
        let mut server = fixture.start(&Tables::default(), None).unwrap();
        let identity = ProcessIdentity::of(server.pid()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.pid()), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        assert!(identity.wait(Duration::from_mins(1)).unwrap());
        assert!(!server.is_alive());
        let error = server.check_alive().unwrap_err().to_string();
        assert!(error.contains("MySQL") && error.contains("signal: 9"), "{error}");
        let scratch = fixture.lab.scratch().path().join("t1");
        drop(server);
        assert!(!scratch.exists());
        let server = fixture.start(&Tables::default(), None).unwrap();
        assert_eq!(logged_in(&server, Auth::CachingSha2, Way::Plain).as_deref(), Ok("caching-sha2"));
    }
}
