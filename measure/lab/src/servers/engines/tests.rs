//! Tests of what engines have in common: configurations and TLS support.

use std::path::{Path, PathBuf};

use ciphertoll_model::{Auth, Engine, Group, SecurityLevel};
use ciphertoll_record::{LONGEST_SOCKET_BELOW_ROOT, MAX_SOCKET_BYTES};

use super::of;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::config::{
    AccessControl, CertificateRequest, ClientRequirements, Config, ListenAddress, ListenPorts, Network,
};
use crate::tls::support::{self, TlsServer};

fn text(engine: Engine, settings: &[(&str, &str)]) -> String {
    with_config(engine, settings, ClientRequirements::default(), |config| {
        of(engine).config_text(config).unwrap()
    })
}

fn with_config<T>(
    engine: Engine,
    settings: &[(&str, &str)],
    requirements: ClientRequirements,
    use_config: impl FnOnce(&Config<'_>) -> T,
) -> T {
    let build = Build {
        engine,
        version: "1.2".to_owned(),
        server_program: PathBuf::from("/build/server"),
        install_program: PathBuf::from("/build/install"),
        base_directory: PathBuf::from("/build"),
    };
    let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (tls, client_ca) = (PathBuf::from("/tls"), PathBuf::from("/client-ca"));
    let (listen, ports) = (ListenAddress::Loopback, ListenPorts { plain: 4711, tls: 4712 });
    let network = Network::Tcp { listen, ports, tls, client_ca, requirements, settings };
    let (data, run, access) = (Path::new("/data"), Path::new("/run"), Some(Path::new("/access/file")));
    let (openssl, strength) = (None, SecurityLevel::Default);
    let (temporary, native, preload) = (run, None, None);
    use_config(&Config {
        build: &build,
        data,
        run,
        network,
        access,
        openssl,
        strength,
        temporary,
        native,
        preload,
    })
}

#[test]
fn the_output_of_a_program_identifies_its_engine() {
    for (output, expected) in [
        (
            "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)\n",
            Some((Engine::MariaDb, "10.11.19")),
        ),
        (
            "/usr/sbin/mysqld  Ver 8.0.33 for Linux on x86_64 (MySQL Community Server - GPL)\n",
            Some((Engine::MySql, "8.0.33")),
        ),
        (
            "/usr/sbin/mysqld  Ver 8.0.46-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))\n",
            Some((Engine::MySql, "8.0.46")),
        ),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some((Engine::Postgres, "15.18"))),
        ("postgres (PostgreSQL) 18.0\n", Some((Engine::Postgres, "18.0"))),
        ("postgres (Other) 15.1\n", None),
        ("psql (PostgreSQL) 15.18\n", None),
        ("db version v7.0.14\nBuild Info: {", Some((Engine::MongoDb, "7.0.14"))),
        ("mongosh 2.3", None),
        ("version: v1.24.2\ncommit: unknown\n", Some((Engine::FerretDb, "1.24.2"))),
        ("version: v2.1.0\n", None),
        ("version: unknown\n", None),
        ("", None),
    ] {
        for engine in Engine::ALL {
            let version = expected.filter(|(expected, _)| *expected == engine).map(|(_, version)| version);
            let parsed = (of(engine).properties().parse_version)(output);
            assert_eq!(parsed.as_deref(), version, "{engine}: {output}");
        }
    }
}

#[test]
fn mongodb_is_configured_by_a_file() {
    let file = |certificate, access| -> serde_json::Value {
        let requirements = ClientRequirements { certificate, access };
        let text = |config: &Config<'_>| of(Engine::MongoDb).config_text(config).unwrap();
        serde_json::from_str(&with_config(Engine::MongoDb, &[], requirements, text)).unwrap()
    };
    let plain = file(CertificateRequest::Omitted, AccessControl::Accounts);
    assert_eq!(plain["net"]["bindIp"], "127.0.0.1");
    assert_eq!(plain["net"]["port"], 4711);
    assert_eq!(plain["net"]["tls"]["mode"], "preferTLS");
    assert_eq!(plain["net"]["tls"]["certificateKeyFile"], "/tls/certificate-and-key.pem");
    assert_eq!(plain["net"]["tls"]["allowConnectionsWithoutCertificates"], true);
    assert_eq!(plain["security"]["authorization"], "enabled");
    let mutual = file(CertificateRequest::Sent, AccessControl::Disabled);
    assert_eq!(mutual["net"]["tls"]["allowConnectionsWithoutCertificates"], false);
    assert_eq!(mutual["security"]["authorization"], "disabled");
}

#[test]
fn ferretdb_is_configured_by_arguments_except_its_password() {
    let arguments = |certificate, access| {
        let requirements = ClientRequirements { certificate, access };
        let arguments = |config: &Config<'_>| of(Engine::FerretDb).arguments(config, Path::new("/file"));
        with_config(Engine::FerretDb, &[], requirements, arguments).join(" ")
    };
    assert_eq!(
        arguments(CertificateRequest::Omitted, AccessControl::Accounts),
        "--handler=sqlite --log-level=ERROR --telemetry=disable --debug-addr=- --sqlite-url=file:/data/ \
         --state-dir=/run --listen-unix=/run/socket --listen-addr=127.0.0.1:4711 \
         --listen-tls=127.0.0.1:4712 --listen-tls-cert-file=/tls/certificate.pem \
         --listen-tls-key-file=/tls/key.pem --test-enable-new-auth \
         --setup-username=ciphertoll_control --setup-database=admin"
    );
    let mutual = arguments(CertificateRequest::Sent, AccessControl::Disabled);
    assert!(mutual.contains("--listen-tls-ca-file=/client-ca") && !mutual.contains("auth"), "{mutual}");
    let secrets = with_config(Engine::FerretDb, &[], ClientRequirements::default(), |config| {
        of(Engine::FerretDb).provisions(config).secrets
    });
    assert_eq!(secrets["FERRETDB_SETUP_PASSWORD"], Path::new("/access/file"));
}

#[test]
fn settings_of_the_user_come_first_and_replace_our_own() {
    let postgres = text(Engine::Postgres, &[("shared_buffers", "1GB"), ("work_mem", "8MB")]);
    assert!(postgres.starts_with("shared_buffers = '1GB'\nwork_mem = '8MB'\n"), "{postgres}");
    assert_eq!(postgres.matches("shared_buffers").count(), 1, "{postgres}");
    assert!(postgres.contains("\nport = '4711'\n"), "{postgres}");
    let mariadb = text(Engine::MariaDb, &[("innodb_buffer_pool_size", "64M")]);
    assert!(mariadb.starts_with("[mariadbd]\ninnodb_buffer_pool_size=\"64M\"\nbasedir="), "{mariadb}");
    assert_eq!(mariadb.matches("innodb_buffer_pool_size").count(), 1, "{mariadb}");
    let mysql = text(Engine::MySql, &[("innodb_buffer_pool_size", "64M")]);
    assert!(mysql.starts_with("[mysqld]\ninnodb_buffer_pool_size=\"64M\"\nbasedir="), "{mysql}");
    assert_eq!(mysql.matches("innodb_buffer_pool_size").count(), 1, "{mysql}");
}

#[test]
fn no_server_gets_options_of_another_engine() {
    let (mariadb, mysql) = (text(Engine::MariaDb, &[]), text(Engine::MySql, &[]));
    for option in ["mysqlx", "auto_generate_certs", "secure-file-priv"] {
        assert!(mysql.contains(option) && !mariadb.contains(option), "{option}");
    }
    assert!(mariadb.contains("feedback") && !mysql.contains("feedback"));
}

#[test]
fn values_are_quoted() {
    let postgres = text(Engine::Postgres, &[("application_name", r"it's \' # odd")]);
    assert!(postgres.starts_with("application_name = 'it''s \\\\'' # odd'\n"), "{postgres}");
    let mariadb = text(Engine::MariaDb, &[("init_connect", "SET @a = 1 # odd")]);
    assert!(mariadb.contains("\ninit_connect=\"SET @a = 1 # odd\"\n"), "{mariadb}");
}

#[test]
fn account_names_depend_on_the_credentials() {
    for (engine, auth, expected) in [
        (Engine::FerretDb, "scram-15000", "ciphertoll"),
        (Engine::MongoDb, "scram-15000", "ciphertoll"),
        (Engine::MongoDb, "scram-4096", "ciphertoll_4096"),
        (Engine::MongoDb, "scram-sha1", "ciphertoll_scram_sha1"),
        (Engine::MariaDb, "native", "ciphertoll"),
        (Engine::MySql, "native", "ciphertoll_native"),
        (Engine::MySql, "caching-sha2", "ciphertoll"),
        (Engine::MySql, "cert", "ciphertoll_cert"),
        (Engine::Postgres, "scram-4096", "toll_scram_4096"),
    ] {
        let auth: Auth = auth.parse().unwrap();
        assert_eq!(of(engine).account_name(auth.into()), expected, "{engine} {auth}");
    }
}

fn reason(path: &str, engine: Engine, release: &str, tls_library: &str) -> Option<String> {
    let path: ciphertoll_model::Path = path.parse().unwrap();
    let path = path.as_tls().unwrap();
    let name = &format!("{} {release}", engine.display_name());
    let server = TlsServer { name, release, tls_library: Some(tls_library) };
    let checked = support::check_client(path)
        .and_then(|()| support::check_release(path, engine, server))
        .and_then(|()| of(engine).check_tls(path, server));
    checked.err().map(|error| error.to_string())
}

#[test]
fn direct_tls_requires_postgres_17() {
    for path in ["tls1.3-p256+direct", "tls1.3-p256+eager"] {
        let reason_for = |release| reason(path, Engine::Postgres, release, "OpenSSL");
        assert_eq!((reason_for("17.2"), reason_for("18.6")), (None, None));
        let said = reason_for("15.18").unwrap();
        assert!(
            said.contains("PostgreSQL 15.18") && said.contains("`ciphertoll servers fetch postgres-18`"),
            "{said}"
        );
    }
    assert_eq!(reason("tls1.3-p256+eager", Engine::MariaDb, "10.11.19", "OpenSSL"), None);
    assert!(reason("tls1.3-p256+direct", Engine::MariaDb, "18.1", "OpenSSL").is_some());
}

#[test]
fn postgres_never_resumes() {
    let reason_for = |engine| reason("tls1.2-p256+resume", engine, "18.6", "OpenSSL");
    assert!(reason_for(Engine::Postgres).unwrap().contains("never resumes"));
    assert_eq!(reason_for(Engine::MariaDb), None);
}

#[test]
fn postgres_supports_p256_only_before_18() {
    let reason_for = |group: &str, release| {
        let path = format!("tls1.3-p256+group={group}");
        reason(&path, Engine::Postgres, release, "OpenSSL")
    };
    assert_eq!(reason_for("p256", "15.18"), None);
    assert!(reason_for("x25519", "17.2").unwrap().contains("supports P-256 only"));
    assert_eq!(reason_for("x25519", "18.6"), None);
}

#[test]
fn mysql_supports_nist_curves_only_from_9_7() {
    let reason_for = |path: &str, release| reason(path, Engine::MySql, release, "OpenSSL 3.6.5");
    let said = reason_for("tls1.3-p256+group=x25519", "9.7.4").unwrap();
    assert_eq!(said, "MySQL 9.7.4 supports NIST curves only, not x25519");
    assert_eq!(reason_for("tls1.3-p256+group=p384", "9.7.4"), None);
    assert_eq!(reason_for("tls1.3-p256+group=x25519", "8.0.33"), None);
    let said = reason_for("tls1.3-mldsa65+client=rustls", "9.7.4").unwrap();
    assert_eq!(said, "MySQL 9.7.4 refuses every handshake with an mldsa65 certificate");
}

#[test]
fn post_quantum_certificates_need_a_client_and_a_server_that_have_them() {
    let path = "tls1.3-mldsa65+client=rustls";
    assert_eq!(reason(path, Engine::MariaDb, "11.8.9", "OpenSSL 3.5.9"), None);
    let said = reason(path, Engine::MariaDb, "10.11.19", "OpenSSL 3.0.19").unwrap();
    assert_eq!(said, "MariaDB 10.11.19 uses OpenSSL 3.0.19; mldsa65 requires OpenSSL 3.5");
    if !ciphertoll_net::tls::openssl_has_post_quantum() {
        let said = reason("tls1.3-mldsa65", Engine::MariaDb, "11.8.9", "OpenSSL 3.5.9").unwrap();
        assert!(said.contains("cannot verify mldsa65") && said.contains("+client=openssl-3.5"), "{said}");
    }
}

#[test]
fn limitations_of_gos_tls_are_reported() {
    let reason_for = |path: &str| reason(path, Engine::FerretDb, "1.24.2", "Go 1.26.8 crypto/tls");
    for path in [
        "tls1.3-p256",
        "tls1.2-rsa2048",
        "tls1.3-p256+resume",
        "tls1.2-rsa2048+suite=ECDHE-RSA-AES256-SHA",
        "tls1.3-p256+suite=TLS_CHACHA20_POLY1305_SHA256+group=p521",
    ] {
        assert_eq!(reason_for(path), None, "{path}");
    }
    let said = reason_for("tls1.2-rsa2048+suite=AES256-GCM-SHA384").unwrap();
    assert!(said.contains("FerretDB 1.24.2") && said.contains("Go's crypto/tls"), "{said}");
    assert!(reason_for("tls1.3-p256+direct").unwrap().contains("begin with TLS"));
    let ml_kem = |library| ml_kem(Engine::FerretDb, "1.24.2", library);
    assert!(ml_kem(Some("Go 1.24.3 crypto/tls")).is_ok());
    assert!(ml_kem(Some("Go 1.23.9 crypto/tls")).is_err() && ml_kem(None).is_err());
}

#[test]
fn limitations_of_the_clients_library_are_reported() {
    let path = "tls1.2-p256+suite=ECDHE-ECDSA-AES256-SHA+client=rustls";
    let said = reason(path, Engine::MariaDb, "10.11.19", "OpenSSL 3.0.19").unwrap();
    assert!(said.contains("rustls") && said.contains("AES_256_CBC"), "{said}");
}

#[test]
fn mysql_has_chacha20_in_tls_1_3_only() {
    let reason_for = |path: &str| reason(path, Engine::MySql, "8.0.33", "OpenSSL 1.1.1t  7 Feb 2023");
    let said = reason_for("tls1.2-p256+suite=ECDHE-ECDSA-CHACHA20-POLY1305").unwrap();
    assert_eq!(said, "MySQL 8.0.33 has no ChaCha20-Poly1305 in TLS 1.2 (its ssl_cipher lists none)");
    assert_eq!(reason_for("tls1.3-p256+suite=TLS_CHACHA20_POLY1305_SHA256"), None);
    assert_eq!(reason_for("tls1.2-p256+suite=ECDHE-ECDSA-AES256-GCM-SHA384"), None);
    let newer = "8.4.7";
    assert_eq!(reason("tls1.2-rsa2048+suite=ECDHE-RSA-CHACHA20-POLY1305", Engine::MySql, newer, ""), None);
}

#[test]
fn ml_kem_requires_a_new_tls_library_of_the_server() {
    let with = |tls_library| ml_kem(Engine::MariaDb, "11.8.6", tls_library);
    assert!(with(Some("OpenSSL 3.0.19 27 Jan 2026")).is_err() && with(None).is_err());
    assert!(with(Some("OpenSSL 3.5.1")).is_ok());
}

fn ml_kem(engine: Engine, release: &str, tls_library: Option<&str>) -> Result<(), Error> {
    let path: ciphertoll_model::Path = "tls1.3-p256+group=x25519mlkem768".parse().unwrap();
    let path = path.as_tls().unwrap();
    assert_eq!(path.parameters.group, Some(Group::X25519MlKem768));
    of(engine).check_tls(path, TlsServer { name: "a server", release, tls_library })
}

#[test]
fn the_longest_socket_of_every_engine_fits() {
    let longest_root =
        PathBuf::from(format!("/{}", "x".repeat(MAX_SOCKET_BYTES - LONGEST_SOCKET_BELOW_ROOT - 1)));
    let lengths = Engine::ALL.map(|engine| {
        let run = longest_root.join("0123abcd/template-0123/run");
        of(engine).socket_path(&run, u16::MAX).as_os_str().len()
    });
    assert_eq!(lengths.iter().max(), Some(&MAX_SOCKET_BYTES), "{lengths:?}");
}
