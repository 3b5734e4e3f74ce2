//! The settings that switch a configuration on, to paste.

use ciphertoll_model::{
    AtRest, ClientCertificate, Engine, Path, PoolMode, ProxyProgram, TlsPath, TlsStart, TlsVersion, Treatment,
};

/// Where settings go, and their text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// A file, an option, or the page to read if there is no template.
    pub place: String,
    pub text: String,
}

/// systemd's unit of the sidecar, the same that is shipped.
const SIDECAR_UNIT: &str = include_str!("../../../../packaging/ciphertoll-proxy.service");
/// Where the examples expect files. The names are placeholders, except those that the unit has.
const AUTHORITY: &str = "/etc/ssl/db-ca.pem";
const SERVER_CERTIFICATE: &str = "/etc/ssl/db-cert.pem";
const SERVER_KEY: &str = "/etc/ssl/private/db-key.pem";
const CLIENTS_AUTHORITY: &str = "/etc/ssl/clients-ca.pem";
const CLIENT_CERTIFICATE: &str = "/etc/ssl/app-cert.pem";
const CLIENT_KEY: &str = "/etc/ssl/private/app-key.pem";
const HOST: &str = "db.example";

/// The settings of server, clients and processes between them for `treatment`, or the page to read instead. Names of hosts,
/// users, databases and files are examples.
pub fn settings(treatment: &Treatment) -> Vec<SettingsFile> {
    let (engine, path) = (treatment.server.engine, treatment.path);
    let mut files = match path {
        Path::Tls(tls) => {
            let mut files = server_settings(engine, path, tls.version, tls.client_certificate);
            files.push(file("driver URL", [driver_url(engine, tls)]));
            files
        }
        Path::Proxy(proxy) if proxy.program == ProxyProgram::SIDECAR => {
            let mut files = server_settings(engine, path, proxy.version, ClientCertificate::None);
            files.extend(sidecar_settings(engine, proxy.mode));
            files
        }
        Path::Proxy(_) => vec![no_template("docs/measure/proxies.md", &path)],
        Path::Tunnel(_) => vec![no_template("docs/measure/tunnels.md", &path)],
        Path::Plain | Path::Compressed(_) | Path::Unix => vec![no_template("docs/measure/paths.md", &path)],
    };
    files.extend(at_rest(treatment.at_rest));
    files
}

fn file(place: &str, lines: impl IntoIterator<Item = String>) -> SettingsFile {
    let text = lines.into_iter().fold(String::new(), |text, line| text + &line + "\n");
    SettingsFile { place: place.to_owned(), text }
}

fn no_template(page: &str, level: &impl std::fmt::Display) -> SettingsFile {
    file(page, [format!("# There is no template for {level}: this page shows how it was set up here.")])
}

/// Requires TLS and verifies the server.
fn driver_url(engine: Engine, tls: TlsPath) -> String {
    let own = |certificate: &str, key: &str| match tls.client_certificate {
        ClientCertificate::None => String::new(),
        ClientCertificate::Demanded => format!("&{certificate}={CLIENT_CERTIFICATE}&{key}={CLIENT_KEY}"),
    };
    match engine {
        Engine::Postgres => {
            let own = own("sslcert", "sslkey");
            let direct = if tls.start == TlsStart::Direct { "&sslnegotiation=direct" } else { "" };
            format!(
                "postgres://app@{HOST}:5432/shop?sslmode=verify-full&sslrootcert={AUTHORITY}{own}{direct}"
            )
        }
        Engine::MariaDb | Engine::MySql => {
            let own = own("ssl-cert", "ssl-key");
            format!("mysql://app@{HOST}:3306/shop?ssl-mode=VERIFY_IDENTITY&ssl-ca={AUTHORITY}{own}")
        }
        Engine::MongoDb | Engine::FerretDb => {
            format!("mongodb://app@{HOST}:27017/shop?tls=true&tlsCAFile={AUTHORITY}")
        }
    }
}

/// The server's certificate, the oldest version that it accepts, and that it refuses plaintext.
fn server_settings(
    engine: Engine,
    path: Path,
    oldest: TlsVersion,
    clients: ClientCertificate,
) -> Vec<SettingsFile> {
    match engine {
        Engine::Postgres => postgres_settings(path, oldest, clients),
        Engine::MariaDb | Engine::MySql => mysql_settings(path, oldest, clients),
        Engine::MongoDb | Engine::FerretDb => vec![no_template("docs/measure/documents.md", &path)],
    }
}

fn postgres_settings(path: Path, oldest: TlsVersion, clients: ClientCertificate) -> Vec<SettingsFile> {
    let oldest = if oldest == TlsVersion::Tls13 { "TLSv1.3" } else { "TLSv1.2" };
    let mut server = vec![
        format!("# Measured as {path}."),
        "ssl = on".to_owned(),
        format!("ssl_cert_file = '{SERVER_CERTIFICATE}'"),
        format!("ssl_key_file = '{SERVER_KEY}'"),
        format!("ssl_min_protocol_version = '{oldest}'"),
    ];
    let mut access = vec![
        "# The first lines of the file. Connections without TLS are refused.".to_owned(),
        "hostnossl all all all reject".to_owned(),
    ];
    if clients == ClientCertificate::Demanded {
        server.push(format!("ssl_ca_file = '{CLIENTS_AUTHORITY}'"));
        access.push("hostssl all all all scram-sha-256 clientcert=verify-full".to_owned());
    }
    vec![file("postgresql.conf", server), file("pg_hba.conf", access)]
}

fn mysql_settings(path: Path, oldest: TlsVersion, clients: ClientCertificate) -> Vec<SettingsFile> {
    let versions = if oldest == TlsVersion::Tls13 { "TLSv1.3" } else { "TLSv1.2,TLSv1.3" };
    let mut server = vec![
        "[mysqld]".to_owned(),
        format!("# Measured as {path}."),
        format!("ssl_cert = {SERVER_CERTIFICATE}"),
        format!("ssl_key = {SERVER_KEY}"),
        format!("tls_version = {versions}"),
        "# Connections without TLS are refused.".to_owned(),
        "require_secure_transport = ON".to_owned(),
    ];
    if clients == ClientCertificate::None {
        return vec![file("my.cnf", server)];
    }
    server.push(format!("ssl_ca = {CLIENTS_AUTHORITY}"));
    vec![file("my.cnf", server), file("SQL, on the server", ["ALTER USER app REQUIRE X509;".to_owned()])]
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
        file("/etc/ciphertoll-proxy/ciphertoll-proxy.toml", lines),
        SettingsFile {
            place: "/etc/systemd/system/ciphertoll-proxy.service".to_owned(),
            text: SIDECAR_UNIT.to_owned(),
        },
        file("driver URL", [url.to_owned()]),
    ]
}

fn at_rest(level: AtRest) -> Option<SettingsFile> {
    match level {
        AtRest::None | AtRest::AsIs => None,
        AtRest::Tde(_) => Some(file(
            "commands (docs/at-rest/page-encryption.md)",
            [
                "ciphertoll tde keygen /etc/ciphertoll/main.kek".to_owned(),
                "ciphertoll tde convert --help   # an existing cluster; for a new one: ciphertoll tde init --help"
                    .to_owned(),
            ],
        )),
        AtRest::Native | AtRest::Gocryptfs | AtRest::Fscrypt => Some(no_template("docs/measure/at-rest.md", &level)),
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{Auth, Driver, Link};

    use super::*;

    fn all(server: &str, path: &str, at_rest: AtRest) -> String {
        let treatment = Treatment {
            server: server.parse().unwrap(),
            path: path.parse().unwrap(),
            auth: Auth::Trust,
            ctx: None,
            driver: Driver::Native,
            link: Link::Local,
            at_rest,
        };
        settings(&treatment)
            .into_iter()
            .fold(String::new(), |text, file| text + &file.place + "\n" + &file.text)
    }

    #[test]
    fn servers_refuse_plaintext_and_older_versions() {
        let postgres = all("postgres", "tls1.3-p256", AtRest::None);
        for line in ["hostnossl all all all reject", "ssl_min_protocol_version = 'TLSv1.3'"] {
            assert!(postgres.contains(line), "{line}: {postgres}");
        }
        let mariadb = all("mariadb", "tls1.2-p256", AtRest::None);
        for line in ["require_secure_transport = ON", "tls_version = TLSv1.2,TLSv1.3"] {
            assert!(mariadb.contains(line), "{line}: {mariadb}");
        }
    }

    #[test]
    fn client_certificates_that_were_measured_are_demanded() {
        let postgres = all("postgres", "tls1.3-p256+mtls", AtRest::None);
        for line in ["clientcert=verify-full", "ssl_ca_file", "sslcert="] {
            assert!(postgres.contains(line), "{line}: {postgres}");
        }
        let mariadb = all("mariadb", "tls1.3-p256+mtls", AtRest::None);
        for line in ["REQUIRE X509", "ssl_ca = ", "ssl-cert="] {
            assert!(mariadb.contains(line), "{line}: {mariadb}");
        }
    }

    /// Nothing that was measured is left out without a word.
    #[test]
    fn what_has_no_template_is_named() {
        for (path, at_rest, page) in [
            ("ssh-aes256-gcm", AtRest::None, "docs/measure/tunnels.md"),
            ("pgbouncer", AtRest::None, "docs/measure/proxies.md"),
            ("tls1.3-p256", AtRest::Gocryptfs, "docs/measure/at-rest.md"),
        ] {
            let text = all("postgres", path, at_rest);
            assert!(text.contains(page) && text.contains("no template"), "{path}: {text}");
        }
    }
}
