//! The settings that switch a configuration on, to paste.

use ciphertoll_model::{
    AtRest, ClientCertificate, Engine, Path, PoolMode, ProxyProgram, ServerUrl, TlsPath, TlsStart,
    TlsVersion, Treatment,
};

use super::names::SettingNames;
use super::refused::oldest_accepted;

/// Where settings go, and their text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// A file, an option, or the page to read if there is no template.
    pub place: String,
    pub text: String,
}

/// systemd's unit of the sidecar, the same that is shipped.
const SIDECAR_UNIT: &str = include_str!("../../../../packaging/ciphertoll-proxy.service");
/// Where the examples expect files of the server, which no URL names.
const SERVER_CERTIFICATE: &str = "/etc/ssl/db-cert.pem";
const SERVER_KEY: &str = "/etc/ssl/private/db-key.pem";
const CLIENTS_AUTHORITY: &str = "/etc/ssl/clients-ca.pem";

/// The settings of server, clients and processes between them for `treatment`, or the page to read instead. Hosts, users,
/// databases and files are those of `url`, of the URL that was measured, or examples.
pub fn settings(treatment: &Treatment, url: Option<&ServerUrl>) -> Vec<SettingsFile> {
    let (engine, path) = (treatment.server.engine, treatment.path);
    let names = SettingNames::of(engine, url.or(treatment.server.url.as_deref()));
    let mut files = match path {
        Path::Tls(tls) => {
            let mut files =
                server_settings(engine, path, (tls.parameters.version, tls.client_certificate), &names);
            files.push(file("driver URL", [driver_url(engine, tls, &names)]));
            files
        }
        Path::Proxy(proxy) if proxy.program == ProxyProgram::SIDECAR => {
            let mut files = server_settings(engine, path, (proxy.version, ClientCertificate::None), &names);
            files.extend(sidecar_settings(engine, proxy.mode, &names));
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
fn driver_url(engine: Engine, tls: TlsPath, names: &SettingNames) -> String {
    let place = names.place();
    let own = |certificate: &str, key: &str| match tls.client_certificate {
        ClientCertificate::None => String::new(),
        ClientCertificate::Demanded => names.identity_options(certificate, key),
    };
    match engine {
        Engine::Postgres => {
            let own = own("sslcert", "sslkey");
            let direct = if tls.start == TlsStart::Direct { "&sslnegotiation=direct" } else { "" };
            let authority = names.authority_option("sslrootcert").unwrap_or("sslrootcert=system".to_owned());
            format!("postgres://{place}?sslmode=verify-full&{authority}{own}{direct}")
        }
        Engine::MariaDb | Engine::MySql => {
            let own = own("ssl-cert", "ssl-key");
            let authority =
                names.authority_option("ssl-ca").map_or(String::new(), |option| format!("&{option}"));
            format!("mysql://{place}?ssl-mode=VERIFY_IDENTITY{authority}{own}")
        }
        Engine::MongoDb | Engine::FerretDb => names.verified_documents_url.clone().unwrap_or_else(|| {
            let authority = names.authority_option("tlsCAFile");
            let authority = authority.map_or(String::new(), |option| format!("&{option}"));
            format!("mongodb://{place}?tls=true{authority}")
        }),
    }
}

/// The server's certificate, the oldest version that it accepts, and that it refuses plaintext.
fn server_settings(
    engine: Engine,
    path: Path,
    (version, clients): (TlsVersion, ClientCertificate),
    names: &SettingNames,
) -> Vec<SettingsFile> {
    match engine {
        Engine::Postgres => postgres_settings(path, oldest_accepted(version), clients),
        Engine::MariaDb | Engine::MySql => mysql_settings(path, oldest_accepted(version), clients, names),
        Engine::MongoDb | Engine::FerretDb => vec![no_template("docs/measure/documents.md", &path)],
    }
}

/// Above the setting that refuses older clients.
const KEEPS_OLDER: &str = "# Clients without TLS 1.3 are refused. To let those of TLS 1.2 connect: ";

fn postgres_settings(path: Path, oldest: TlsVersion, clients: ClientCertificate) -> Vec<SettingsFile> {
    let is_newest = oldest == TlsVersion::Tls13;
    let mut server = vec![
        format!("# Measured as {path}."),
        "ssl = on".to_owned(),
        format!("ssl_cert_file = '{SERVER_CERTIFICATE}'"),
        format!("ssl_key_file = '{SERVER_KEY}'"),
    ];
    server.extend(is_newest.then(|| format!("{KEEPS_OLDER}'TLSv1.2'")));
    server.push(format!("ssl_min_protocol_version = '{}'", if is_newest { "TLSv1.3" } else { "TLSv1.2" }));
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

fn mysql_settings(
    path: Path,
    oldest: TlsVersion,
    clients: ClientCertificate,
    names: &SettingNames,
) -> Vec<SettingsFile> {
    const BOTH: &str = "TLSv1.2,TLSv1.3";
    let is_newest = oldest == TlsVersion::Tls13;
    let mut server = vec![
        "[mysqld]".to_owned(),
        format!("# Measured as {path}."),
        format!("ssl_cert = {SERVER_CERTIFICATE}"),
        format!("ssl_key = {SERVER_KEY}"),
    ];
    server.extend(is_newest.then(|| format!("{KEEPS_OLDER}{BOTH}")));
    server.push(format!("tls_version = {}", if is_newest { "TLSv1.3" } else { BOTH }));
    server.push("# Connections without TLS are refused.".to_owned());
    server.push("require_secure_transport = ON".to_owned());
    if clients == ClientCertificate::None {
        return vec![file("my.cnf", server)];
    }
    server.push(format!("ssl_ca = {CLIENTS_AUTHORITY}"));
    let statement = format!("ALTER USER {} REQUIRE X509;", names.sql_user());
    vec![file("my.cnf", server), file("SQL, on the server", [statement])]
}

fn sidecar_settings(engine: Engine, mode: PoolMode, names: &SettingNames) -> Vec<SettingsFile> {
    let (place, user, database) = (names.place(), names.url_user(), names.url_database());
    let authority =
        |option: &str| names.authority_option(option).map_or(String::new(), |own| format!("?{own}"));
    let (socket, server, url) = match engine {
        Engine::Postgres => (
            "/run/ciphertoll-proxy/.s.PGSQL.6432",
            format!("postgres://{place}{}", authority("sslrootcert")),
            format!("postgres://{user}@/{database}?host=/run/ciphertoll-proxy&port=6432"),
        ),
        _ => (
            "/run/ciphertoll-proxy/mysql.sock",
            format!("mysql://{place}{}", authority("ssl-ca")),
            format!("mysql://{user}@localhost/{database}?socket=/run/ciphertoll-proxy/mysql.sock"),
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
        format!("name = {}", names.toml_user()),
        "# systemd reads the file and passes it on as a credential.".to_owned(),
        "password-file = \"/run/credentials/ciphertoll-proxy.service/app\"".to_owned(),
    ]);
    vec![
        file("/etc/ciphertoll-proxy/ciphertoll-proxy.toml", lines),
        SettingsFile {
            place: "/etc/systemd/system/ciphertoll-proxy.service".to_owned(),
            text: SIDECAR_UNIT.to_owned(),
        },
        file("driver URL", [url]),
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
mod tests;
