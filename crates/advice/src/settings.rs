//! The settings that switch a configuration on, to paste.

use ciphertoll_model::{
    AtRest, ClientCertificate, Engine, Path, PoolMode, ProxyProgram, ServerKey, TlsPath, TlsStart,
    TlsVersion, Treatment,
};

/// Where settings go, and their text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// A file, or a command's or a driver's option.
    pub place: String,
    pub text: String,
}

/// systemd's unit of the sidecar, the same that is shipped.
const SIDECAR_UNIT: &str = include_str!("../../../packaging/ciphertoll-proxy.service");
/// Where the examples expect files. The names are placeholders, except those that the unit has.
const AUTHORITY: &str = "/etc/ssl/db-ca.pem";
const SERVER_CERTIFICATE: &str = "/etc/ssl/db-cert.pem";
const SERVER_KEY: &str = "/etc/ssl/private/db-key.pem";
const CLIENT_CERTIFICATE: &str = "/etc/ssl/app-cert.pem";
const CLIENT_KEY: &str = "/etc/ssl/private/app-key.pem";
const HOST: &str = "db.example";

/// The settings of server, clients and processes between them for `treatment`. Names of hosts, users, databases and files are
/// examples. Empty for what ciphertoll has no template for.
pub fn settings(treatment: &Treatment) -> Vec<SettingsFile> {
    let engine = treatment.server.engine;
    let mut files = match treatment.path {
        Path::Tls(tls) => {
            let server = server_settings(engine, tls.version, tls.key);
            server.into_iter().chain([file("driver URL", &[driver_url(engine, tls)])]).collect()
        }
        Path::Proxy(proxy) if proxy.program == ProxyProgram::Sidecar => {
            let server = server_settings(engine, proxy.version, Some(proxy.key));
            server.into_iter().chain(sidecar_settings(engine, proxy.mode)).collect()
        }
        Path::Proxy(_) | Path::Tunnel(_) | Path::Plain | Path::Compressed(_) | Path::Unix => Vec::new(),
    };
    files.extend(at_rest(engine, treatment.at_rest));
    files
}

fn file(place: impl Into<String>, lines: &[String]) -> SettingsFile {
    SettingsFile { place: place.into(), text: lines.join("\n") + "\n" }
}

fn driver_url(engine: Engine, tls: TlsPath) -> String {
    let mtls = tls.client_certificate == ClientCertificate::Demanded;
    match engine {
        Engine::Postgres => {
            let direct = if tls.start == TlsStart::Direct { "&sslnegotiation=direct" } else { "" };
            let own = if mtls {
                format!("&sslcert={CLIENT_CERTIFICATE}&sslkey={CLIENT_KEY}")
            } else {
                String::new()
            };
            format!(
                "postgres://app@{HOST}:5432/shop?sslmode=verify-full&sslrootcert={AUTHORITY}{own}{direct}"
            )
        }
        Engine::MariaDb | Engine::MySql => {
            let own = if mtls {
                format!("&ssl-cert={CLIENT_CERTIFICATE}&ssl-key={CLIENT_KEY}")
            } else {
                String::new()
            };
            format!("mysql://app@{HOST}:3306/shop?ssl-mode=VERIFY_IDENTITY&ssl-ca={AUTHORITY}{own}")
        }
        Engine::MongoDb | Engine::FerretDb => {
            format!("mongodb://app@{HOST}:27017/shop?tls=true&tlsCAFile={AUTHORITY}")
        }
    }
}

/// The server's certificate, and the oldest version that it accepts; plaintext is refused.
fn server_settings(engine: Engine, oldest: TlsVersion, key: Option<ServerKey>) -> Option<SettingsFile> {
    let comment = key.map(|key| format!("# Measured with a certificate of this key type: {}", key.label()));
    let lines = |lines: [String; 5]| comment.into_iter().chain(lines).collect::<Vec<_>>();
    Some(match engine {
        Engine::Postgres => {
            let settings = lines([
                "ssl = on".to_owned(),
                format!("ssl_cert_file = '{SERVER_CERTIFICATE}'"),
                format!("ssl_key_file = '{SERVER_KEY}'"),
                format!("ssl_min_protocol_version = '{}'", version(oldest)),
                "# In pg_hba.conf, `hostssl` instead of `host` refuses connections without TLS.".to_owned(),
            ]);
            file("postgresql.conf", &settings)
        }
        Engine::MariaDb | Engine::MySql => {
            let versions = match oldest {
                TlsVersion::Tls13 => "TLSv1.3",
                _ => "TLSv1.2,TLSv1.3",
            };
            let settings = lines([
                format!("ssl_cert = {SERVER_CERTIFICATE}"),
                format!("ssl_key = {SERVER_KEY}"),
                format!("tls_version = {versions}"),
                "# Connections without TLS are refused.".to_owned(),
                "require_secure_transport = ON".to_owned(),
            ]);
            file("my.cnf", &[vec!["[mysqld]".to_owned()], settings].concat())
        }
        Engine::MongoDb | Engine::FerretDb => return None,
    })
}

fn sidecar_settings(engine: Engine, mode: PoolMode) -> Vec<SettingsFile> {
    let (socket, server, url) = match engine {
        Engine::Postgres => (
            "/run/ciphertoll-proxy/.s.PGSQL.6432",
            format!("postgres://app@{HOST}:5432/shop?sslrootcert={AUTHORITY}"),
            "postgres://app@/shop?host=/run/ciphertoll-proxy&port=6432",
        ),
        _ => (
            "/run/ciphertoll-proxy/mysql.sock",
            format!("mysql://app@{HOST}:3306/shop?ssl-ca={AUTHORITY}"),
            "mysql://app@localhost/shop?socket=/run/ciphertoll-proxy/mysql.sock",
        ),
    };
    let mut lines = vec![
        format!("listen = \"unix:{socket}\""),
        "# Encrypted, and verified, because it does not say otherwise.".to_owned(),
        format!("server = \"{server}\""),
        "# The UIDs of the processes that may connect, as `id -u` prints them.".to_owned(),
        "allow-uid = [33]".to_owned(),
    ];
    if mode == PoolMode::Transaction {
        lines.push("mode = \"transaction\"".to_owned());
    }
    lines.extend([
        String::new(),
        "[limits]".to_owned(),
        "# Connections to the server, shared by all clients.".to_owned(),
        "pool-size = 20".to_owned(),
        String::new(),
        "[[user]]".to_owned(),
        "name = \"app\"".to_owned(),
        "# systemd reads the file and passes it on as a credential.".to_owned(),
        "password-file = \"/run/credentials/ciphertoll-proxy.service/app\"".to_owned(),
    ]);
    vec![
        file("/etc/ciphertoll/ciphertoll-proxy.toml", &lines),
        SettingsFile {
            place: "/etc/systemd/system/ciphertoll-proxy.service".to_owned(),
            text: SIDECAR_UNIT.to_owned(),
        },
        file("driver URL", &[url.to_owned()]),
    ]
}

fn at_rest(engine: Engine, level: AtRest) -> Option<SettingsFile> {
    match (level, engine) {
        (AtRest::Tde(_), Engine::Postgres) => {
            let commands = [
                "ciphertoll tde keygen /etc/ciphertoll/main.kek".to_owned(),
                "ciphertoll tde convert --help   # an existing cluster; or: ciphertoll tde init".to_owned(),
            ];
            Some(file("commands (docs/at-rest/page-encryption.md)", &commands))
        }
        _ => None,
    }
}

fn version(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Tls10 => "TLSv1",
        TlsVersion::Tls11 => "TLSv1.1",
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    }
}
