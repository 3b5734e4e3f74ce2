//! FerretDB version 1 with its SQLite back end.
//!
//! Measured with 1.24.2, built with Go 1.26:
//! - It has no configuration file, only arguments and environment variables (`FERRETDB_SETUP_PASSWORD`).
//! - A process listens on a plaintext port, on a TLS port, and on a Unix socket. TLS begins with the first byte; no port
//!   accepts both.
//! - It reads its certificate at its start only. With `--listen-tls-ca-file` it requires a certificate of every TLS client,
//!   otherwise it requests none. A change of either requires a restart, which takes 0.1 s.
//! - Access control is enabled (`--test-enable-new-auth`) or disabled at its start.
//! - Its TLS is Go's: versions 1.2 and 1.3; suites with ECDHE only; X25519, P-256, P-384, P-521 and, by default,
//!   X25519MLKEM768; resumption by tickets, not by session ids. It does not compress messages.
//! - The account of `--setup-username` is created only if the database `--setup-database` does not exist yet. There are no
//!   roles: every account may do everything. An account has keys for SCRAM-SHA-256 with 15000 iterations and for SCRAM-SHA-1
//!   with 10000; both are fixed.
//! - On SIGTERM it accepts no new connections and waits at most three seconds for open ones; its exit status is 0. A second
//!   SIGTERM ends it at once.
//! - It uses as many threads as it has processors at its start, or as the quota of its cgroup allows; the only setting is
//!   `GOMAXPROCS` in its environment.
//! - `buildInfo` reports a version of MongoDB for compatibility, and FerretDB's own version in another field. `serverStatus`
//!   counts commands, but neither connections nor reads.
//! - SQLite has a cache of 2 MB per connection; the rest is in the system's page cache.
//! - With `--log-level=INFO` it writes two lines per connection.

use std::collections::BTreeMap;
use std::path::Path;

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::files;
use ciphertoll_model::{Auth, Engine, Group, Resumption, ServerKey, TlsPath, TlsVersion};
use ciphertoll_wire::Secret;
use ciphertoll_wire::session::Login;
use serde_json::json;

use super::document_family;
use crate::at_rest::native::NativeEncryption;
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::documents::commands::{self, CONTROL_USER, command};
use crate::error::Error;
use crate::servers::binary;
use crate::servers::build::Build;
use crate::servers::config::{
    AccessControl, CERTIFICATE_FILE, CertificateRequest, Config, KEY_FILE, Network,
};
use crate::servers::control::{ADMIN, ControlLogin};
use crate::servers::counters::ConnectionCounts;
use crate::servers::engine::{
    EngineProperties, LoginRequest, ServerDescription, ServerEngine, SidecarPassword,
};
use crate::tls::credentials::Credentials;
use crate::tls::support::{TlsServer, check_post_quantum, unavailable};

const PROPERTIES: EngineProperties = EngineProperties {
    engine: Engine::FerretDb,
    server_names: &["ferretdb"],
    install_names: &[],
    install_directories: &[],
    version_arguments: &["--version"],
    parse_version,
    series_parts: 2,
    how_to_get: "name the directory of a built server: ferretdb=/opt/ferretdb",
    tls_library_of: binary::go_tls_library,
    native_encryption: None,
    socket_name: SOCKET,
    proxy_socket_name: document_family::PROXY_SOCKET,
    has_tls_port: true,
    port_taken_messages: &["bind: address already in use"],
    reads_access_once: false,
    shutdown_signals: None,
    default_user: document_family::USER,
    encryption_query: commands::PING,
    lists_connections: false,
    // FerretDB executes one write at a time.
    loading_connections: 1,
    url_syntax: document_family::URL_SYNTAX,
    sidecar_password: SidecarPassword::Unsupported,
};
/// Options that every server gets and that the record lists.
const OPTIONS: [(&str, &str); 4] =
    [("handler", "sqlite"), ("log-level", "ERROR"), ("telemetry", "disable"), ("debug-addr", "-")];
/// Documents per transaction while a template is loaded; the default is 100.
const LOAD_BATCH: u16 = 500;
/// The variable with the first account's password.
const PASSWORD_VARIABLE: &str = "FERRETDB_SETUP_PASSWORD";
const SOCKET: &str = "socket";
/// The first Go with ML-KEM.
const GO_WITH_ML_KEM: [u32; 2] = [1, 24];

pub(super) struct FerretDb;

impl ServerEngine for FerretDb {
    fn properties(&self) -> &'static EngineProperties {
        &PROPERTIES
    }

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        let name = format!("{} {release}", Engine::FerretDb.display_name());
        let default = Auth::default_of(Engine::FerretDb);
        let reason = match auth {
            // For `Trust`, access control is disabled.
            Auth::Trust | Auth::ScramSha1 => return Ok(()),
            auth if auth == default => return Ok(()),
            Auth::Scram { .. } => {
                format!("{name} has a fixed number of SCRAM iterations: it supports {default} only")
            }
            auth => format!("{name} has no {auth}"),
        };
        Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        document_family::check_tls(path, server)?;
        // Paths can name suites of TLS 1.3, with ECDHE, and with RSA key transport, which Go disables.
        if let Some(suite) = path.parameters.suite
            && path.parameters.version != TlsVersion::Tls13
            && !suite.label().starts_with("ECDHE-")
        {
            let name = server.name;
            return Err(unavailable(format!("{name} does not offer {suite}: Go's crypto/tls disables it")));
        }
        if path.resumption == Resumption::BySessionId {
            return Err(unavailable(
                "FerretDB resumes by tickets only: Go's crypto/tls has no session cache",
            ));
        }
        let known = [Group::X25519, Group::P256, Group::P384, Group::P521, Group::X25519MlKem768];
        let lacking = path.parameters.group.filter(|group| !known.contains(group)).map(Group::label);
        let lacking = lacking.or(path.key.filter(|key| key.is_ml_dsa()).map(ServerKey::label));
        if let Some(what) = lacking {
            return Err(unavailable(format!("{} uses Go's crypto/tls, which has no {what}", server.name)));
        }
        check_post_quantum(path, server, "Go", GO_WITH_ML_KEM)
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

    /// Secrets are in its environment.
    fn arguments(&self, config: &Config<'_>, _file: &Path) -> Vec<String> {
        let mut arguments: Vec<String> =
            OPTIONS.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let (data, pragma) = (
            config.data.display(),
            match config.network {
                // An incomplete template is discarded, so it needs no syncs.
                Network::SocketOnly => "?_pragma=synchronous(off)",
                Network::Tcp { .. } => "",
            },
        );
        arguments.extend([
            format!("--sqlite-url=file:{data}/{pragma}"),
            // The state need not outlive the server.
            format!("--state-dir={}", config.run.display()),
            format!("--listen-unix={}", config.run.join(SOCKET).display()),
        ]);
        match &config.network {
            Network::SocketOnly => {
                arguments.extend(["--listen-addr=".to_owned(), format!("--test-batch-size={LOAD_BATCH}")]);
            }
            Network::Tcp { listen, ports, tls, client_ca, requirements, .. } => {
                let address = listen.address();
                arguments.extend([
                    format!("--listen-addr={address}:{}", ports.plain),
                    format!("--listen-tls={address}:{}", ports.tls),
                    format!("--listen-tls-cert-file={}", tls.join(CERTIFICATE_FILE).display()),
                    format!("--listen-tls-key-file={}", tls.join(KEY_FILE).display()),
                ]);
                if requirements.access == AccessControl::Accounts {
                    arguments.push("--test-enable-new-auth".to_owned());
                }
                if requirements.certificate == CertificateRequest::Sent {
                    arguments.push(format!("--listen-tls-ca-file={}", client_ca.display()));
                }
            }
        }
        if config.access.is_some() {
            arguments
                .extend([format!("--setup-username={CONTROL_USER}"), format!("--setup-database={ADMIN}")]);
        }
        arguments
    }

    /// The password of the first account, if the server creates it.
    fn provisions(&self, config: &Config<'_>) -> Provisions {
        let secrets = config.access.map(|file| (PASSWORD_VARIABLE.to_owned(), file.to_owned()));
        Provisions { secrets: secrets.into_iter().collect(), ..Provisions::default() }
    }

    fn control(&self, socket: &Path, password: &Secret) -> ControlLogin {
        ControlLogin::documents(socket, Some((CONTROL_USER, password.clone())))
    }

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        _server_name: &str,
    ) -> Result<(), Error> {
        // FerretDB has no roles and refuses any.
        let (user, roles) = (self.account_name(credentials), json!([]));
        document_family::create_account(control, credentials.auth, &user, password, &roles)
    }

    fn describe(
        &self,
        control: &ControlLogin,
        _scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error> {
        let command = command("buildInfo", &json!(1), &[]);
        let info = commands::ask(&mut control.connect()?, "read the server's version", &command)?;
        let text = |name: &str| info.get(name).and_then(|value| value.as_str());
        let own = text("ferretdbVersion").map(|version| version.trim_start_matches('v'));
        let mut settings: BTreeMap<String, String> =
            OPTIONS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        settings.insert("test-enable-new-auth".to_owned(), "true".to_owned());
        if let Some(compatible) = text("version") {
            settings.insert("mongodb-version".to_owned(), compatible.to_owned());
        }
        Ok(ServerDescription {
            version: own.unwrap_or(&build.version).to_owned(),
            tls_library: binary::go_tls_library(&build.server_program),
            settings,
        })
    }

    /// Reads the files: FerretDB relies on the system's page cache.
    fn prewarm(&self, _control: &ControlLogin, _tables: &Tables, data: &Path) -> Result<(), Error> {
        Ok(files::read_directory(data)?)
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

/// `1.24.2`. Version 2 is not supported: it stores nothing itself, but is a front end of PostgreSQL with extensions.
fn parse_version(text: &str) -> Option<String> {
    const SUPPORTED: &str = "1.";
    let version = text.lines().find_map(|line| line.strip_prefix("version: v"))?.trim();
    version.starts_with(SUPPORTED).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_authentications_are_refused_with_the_reason() {
        let of = |auth: &str| {
            FerretDb.check_auth(auth.parse().unwrap(), "1.24.2").err().map(|error| error.to_string())
        };
        assert_eq!([of("scram-15000"), of("scram-sha1"), of("trust")], [None, None, None]);
        assert_eq!(
            of("scram-4096").unwrap(),
            "FerretDB 1.24.2 has a fixed number of SCRAM iterations: it supports scram-15000 only"
        );
        assert_eq!(of("cert").unwrap(), "FerretDB 1.24.2 has no cert");
    }
}
