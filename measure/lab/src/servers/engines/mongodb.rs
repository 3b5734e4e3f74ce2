//! MongoDB: its configuration, its first account, its queries.
//!
//! Written from the manual and not tested: no package registry has a `mongod`. The server starts with access control
//! enabled; until the first account exists, a connection over the Unix socket may create the first one and do nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::{Auth, Engine, TlsPath, ycsb};
use ciphertoll_wire::Secret;
use ciphertoll_wire::session::Login;
use serde_json::{Value, json};

use super::document_family::{self, server_status};
use crate::at_rest::native::NativeEncryption;
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::documents::commands::{self, CONTROL_USER, DATABASE, command, number};
use crate::error::Error;
use crate::servers::binary;
use crate::servers::build::Build;
use crate::servers::config::{AccessControl, COMBINED_FILE, CertificateRequest, Config, Network};
use crate::servers::control::{self, ADMIN, ControlLogin};
use crate::servers::counters::ConnectionCounts;
use crate::servers::engine::{
    Change, EngineProperties, LoginRequest, ServerDescription, ServerEngine, SidecarPassword,
};
use crate::tls::credentials::Credentials;
use crate::tls::support::{TlsServer, check_openssl};

const PROPERTIES: EngineProperties = EngineProperties {
    engine: Engine::MongoDb,
    server_names: &["mongod"],
    install_names: &[],
    install_directories: &[],
    version_arguments: &["--version"],
    parse_version,
    series_parts: 2,
    how_to_get: "install it from MongoDB's own repository, or name the directory of an unpacked server: \
         mongodb=/opt/mongodb",
    tls_library_of: binary::linked_tls_library,
    native_encryption: None,
    socket_name: "mongodb-PORT.sock",
    proxy_socket_name: document_family::PROXY_SOCKET,
    has_tls_port: false,
    port_taken_messages: &["Address already in use"],
    reads_access_once: false,
    shutdown_signals: None,
    default_user: document_family::USER,
    encryption_query: commands::PING,
    lists_connections: false,
    loading_connections: 3,
    url_syntax: document_family::URL_SYNTAX,
    sidecar_password: SidecarPassword::Unsupported,
};
/// The size of the other engines' buffers; MongoDB's own minimum is larger.
const CACHE_GB: f64 = 0.25;
/// The first version that reloads its certificate.
const RELOADS_CERTIFICATE: u32 = 5;
const MIN_ITERATIONS: u32 = 5_000;

pub(super) struct MongoDb;

impl ServerEngine for MongoDb {
    fn properties(&self) -> &'static EngineProperties {
        &PROPERTIES
    }

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        let name = format!("{} {release}", Engine::MongoDb.display_name());
        let reason = match auth {
            Auth::Scram { iterations, .. } if iterations.number() < MIN_ITERATIONS => {
                format!("{name} requires at least {MIN_ITERATIONS} SCRAM iterations")
            }
            // For `Trust`, access control is disabled.
            Auth::Scram { .. } | Auth::ScramSha1 | Auth::Trust => return Ok(()),
            Auth::Cert => {
                format!("{name} has it (MONGODB-X509), but ciphertoll cannot create such accounts yet")
            }
            auth => format!("{name} has no {auth}"),
        };
        Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        document_family::check_tls(path, server)?;
        check_openssl(path, server)
    }

    fn template_control(&self, socket: &Path) -> ControlLogin {
        ControlLogin::documents(socket, None)
    }

    fn load_template(
        &self,
        control: &ControlLogin,
        name: &str,
        tables: &Tables,
        _encryption: Option<&dyn NativeEncryption>,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        document_family::load_template(control, name, tables, PROPERTIES.loading_connections, progress)
    }

    fn config_text(&self, config: &Config<'_>) -> Option<String> {
        Some(config_text(config))
    }

    fn arguments(&self, _config: &Config<'_>, file: &Path) -> Vec<String> {
        vec![format!("--config={}", file.display())]
    }

    /// There is no account yet.
    fn control(&self, socket: &Path, _password: &Secret) -> ControlLogin {
        ControlLogin::documents(socket, None)
    }

    fn create_control_account(
        &self,
        control: ControlLogin,
        password: &Secret,
    ) -> Result<ControlLogin, Error> {
        let roles = json!(["root"]);
        let mut client = control.connect()?;
        commands::create_user(&mut client, CONTROL_USER, password, &roles, &["SCRAM-SHA-256"])?;
        control::close(client)?;
        Ok(control.as_account(CONTROL_USER, password.clone()))
    }

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        _server_name: &str,
    ) -> Result<(), Error> {
        if let Auth::Scram { iterations, .. } = credentials.auth {
            let iterations = json!(iterations.number());
            let command = command("setParameter", &json!(1), &[("scramSHA256IterationCount", iterations)]);
            control::execute(&mut control.connect()?, "set the SCRAM iterations", &command)?;
        }
        let (user, roles) =
            (self.account_name(credentials), json!([{ "role": "readWrite", "db": DATABASE }]));
        document_family::create_account(control, credentials.auth, &user, password, &roles)
    }

    fn reload_certificate(&self, control: &ControlLogin, release: &str) -> Result<Change, Error> {
        if version_numbers(release).first().is_none_or(|major| *major < RELOADS_CERTIFICATE) {
            return Ok(Change::NeedsRestart);
        }
        let command = command("rotateCertificates", &json!(1), &[]);
        let mut client = control.in_database(ADMIN).connect()?;
        control::execute(&mut client, "reload the server's certificate", &command)?;
        Ok(Change::Applied)
    }

    fn describe(
        &self,
        control: &ControlLogin,
        _scratch: &Path,
        _build: &Build,
    ) -> Result<ServerDescription, Error> {
        let doing = "read the server's version and settings";
        let mut client = control.connect()?;
        let build = commands::ask(&mut client, doing, &command("buildInfo", &json!(1), &[]))?;
        let version = build.get("version").and_then(Value::as_str).unwrap_or_default().to_owned();
        let library = build.get("openssl").and_then(|library| library.get("running")?.as_str());
        let options = commands::ask(&mut client, doing, &command("getCmdLineOpts", &json!(1), &[]))?;
        let mut settings = BTreeMap::new();
        if let Some(parsed) = options.get("parsed") {
            flatten("", parsed, &mut settings);
        }
        settings.retain(|_, value| !value.contains('/'));
        Ok(ServerDescription { version, tls_library: library.map(ToOwned::to_owned), settings })
    }

    /// Reads every record. The filter matches none, so that the server examines all records and sends nothing.
    fn prewarm(&self, control: &ControlLogin, tables: &Tables, _data: &Path) -> Result<(), Error> {
        if tables.ycsb.is_none() {
            return Ok(());
        }
        let command = command("find", &ycsb::COLLECTION.into(), &[("filter", json!({ "field0": "" }))]);
        let mut client = control.in_database(DATABASE).connect()?;
        control::execute(&mut client, "read all documents", &command)
    }

    fn buffer_misses(&self, control: &ControlLogin) -> Result<Option<u64>, Error> {
        let status = server_status(control)?;
        let cache = status.get("wiredTiger").and_then(|engine| engine.get("cache"));
        Ok(cache.and_then(|cache| cache.get("pages read into cache")).and_then(number))
    }

    fn connection_counts(&self, control: &ControlLogin) -> Result<ConnectionCounts, Error> {
        document_family::connection_counts(control)
    }

    fn write_marker(&self, control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error> {
        document_family::write_marker(control, table, texts)
    }

    fn remove_marker(&self, control: &ControlLogin, table: &str) -> Result<(), Error> {
        document_family::remove_marker(control, table)
    }

    fn login(&self, request: &LoginRequest<'_>) -> Login {
        document_family::login(request)
    }
}

/// `7.0.14`
fn parse_version(text: &str) -> Option<String> {
    let version = text.strip_prefix("db version v")?.split_ascii_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// The configuration file in JSON, which is valid YAML.
fn config_text(config: &Config<'_>) -> String {
    let sockets = json!({ "enabled": true, "pathPrefix": config.run.display().to_string() });
    let network = match &config.network {
        // A path is a valid address, and `bindIp` must not be empty.
        Network::SocketOnly => {
            let bound = config.run.join("bound").display().to_string();
            json!({ "bindIp": bound, "port": config.port(), "unixDomainSocket": sockets })
        }
        Network::Tcp { listen, ports, tls, client_ca, requirements, .. } => json!({
            "bindIp": listen.address(),
            "port": ports.plain,
            "unixDomainSocket": sockets,
            "tls": {
                "mode": "preferTLS",
                "certificateKeyFile": tls.join(COMBINED_FILE).display().to_string(),
                "CAFile": client_ca.display().to_string(),
                "allowConnectionsWithoutCertificates": requirements.certificate == CertificateRequest::Omitted,
            },
        }),
    };
    let authorization = match &config.network {
        Network::Tcp { requirements, .. } if requirements.access == AccessControl::Accounts => "enabled",
        Network::SocketOnly | Network::Tcp { .. } => "disabled",
    };
    let file = json!({
        "storage": {
            "dbPath": config.data.display().to_string(),
            "wiredTiger": { "engineConfig": { "cacheSizeGB": CACHE_GB } },
        },
        "net": network,
        "security": { "authorization": authorization },
        "setParameter": { "diagnosticDataCollectionEnabled": false },
    });
    format!("{file:#}\n")
}

/// Collects nested settings under names like `storage.wiredTiger.engineConfig.cacheSizeGB`.
fn flatten(name: &str, value: &Value, settings: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, settings);
            }
        }
        Value::String(text) => drop(settings.insert(name.to_owned(), text.clone())),
        other => drop(settings.insert(name.to_owned(), other.to_string())),
    }
}
