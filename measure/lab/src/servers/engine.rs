//! What the rest of the crate needs to know about a database engine. Each engine implements [`ServerEngine`] in its own
//! module of `engines`; `engines::of` selects it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Auth, Engine, TlsPath};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use ciphertoll_wire::session::Login;
use nix::sys::signal::Signal;

use crate::at_rest::native::NativeEncryption;
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::config::{ClientRequirements, Config, ListenAddress};
use crate::servers::control::ControlLogin;
use crate::servers::counters::{ConnectionCounts, Counters};
use crate::servers::directory::ServerDirectory;
use crate::servers::encryption::ConnectionEncryption;
use crate::tls::credentials::ClientAccount;
use crate::tls::credentials::Credentials;
use crate::tls::support::TlsServer;

pub(crate) struct EngineProperties {
    pub(crate) engine: Engine,
    pub(crate) server_names: &'static [&'static str],
    /// Empty if the server creates its data directory itself.
    pub(crate) install_names: &'static [&'static str],
    /// Directories of the installer, relative to the installation prefix.
    pub(crate) install_directories: &'static [&'static str],
    pub(crate) version_arguments: &'static [&'static str],
    /// The version in the output of the server program; `None` for another engine's program.
    pub(crate) parse_version: fn(&str) -> Option<String>,
    /// Number of parts of a version that name a series: 2 for `10.11`, 1 for `18`.
    pub(crate) series_parts: usize,
    pub(crate) how_to_get: &'static str,
    /// The TLS library of a server program, as far as the file tells.
    pub(crate) tls_library_of: fn(&Path) -> Option<String>,
    /// Encryption at rest by the server itself, if the engine has it.
    pub(crate) native_encryption: Option<&'static dyn NativeEncryption>,
    /// Name of the server's Unix socket; `PORT` stands for its port.
    pub(crate) socket_name: &'static str,
    /// Name of a proxy's Unix socket in the directory that clients are given.
    pub(crate) proxy_socket_name: &'static str,
    /// Whether the server listens for TLS on a second port.
    pub(crate) has_tls_port: bool,
    /// Texts in the log of a server whose port is in use.
    pub(crate) port_taken_messages: &'static [&'static str],
    /// Whether the file that [`Config::access`] names must be removed once the server has started.
    pub(crate) reads_access_once: bool,
    /// Signals of a server of several processes; `None` for a single process.
    pub(crate) shutdown_signals: Option<ShutdownSignals>,
    /// Account of the engine's default authentication.
    pub(crate) default_user: &'static str,
    /// The query by which a connection reports its own encryption.
    pub(crate) encryption_query: &'static str,
    /// Whether the server lists the encryption of other connections.
    pub(crate) lists_connections: bool,
    /// Number of connections that load documents in parallel.
    pub(crate) loading_connections: usize,
    pub(crate) url_syntax: UrlSyntax,
    pub(crate) sidecar_password: SidecarPassword,
}

/// Signals for a server of several processes, whose SIGTERM and SIGKILL do not do the right thing.
pub(crate) struct ShutdownSignals {
    /// Shuts the server down without waiting for clients.
    pub(crate) fast: Signal,
    /// Ends the server without writing out its buffers.
    pub(crate) immediate: Signal,
}

pub(crate) struct ServerDescription {
    pub(crate) version: String,
    pub(crate) tls_library: Option<String>,
    /// Settings that differ from the defaults, without paths.
    pub(crate) settings: BTreeMap<String, String>,
}

/// A setting that the server was started with and that did not take effect.
pub(crate) struct UnmetSetting {
    pub(crate) name: String,
    /// The actual value; `None` if the server has no such setting.
    pub(crate) value: Option<String>,
}

/// Whether a server changed something at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It takes effect from the next connection on.
    Applied,
    /// The engine has no such setting.
    NotApplicable,
    /// It takes effect after a restart only.
    NeedsRestart,
}

/// A login that a server may have to be prepared for.
pub(crate) struct PreparedLogin<'a> {
    pub(crate) credentials: Credentials,
    pub(crate) account: ClientAccount,
    pub(crate) password: Secret,
    pub(crate) socket: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) listen: ListenAddress,
    pub(crate) ca_file: &'a Path,
}

/// A login through a proxy or to a server at a URL.
pub(crate) struct LoginRequest<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a Secret,
    pub(crate) database: Option<&'a str>,
    pub(crate) over_unix_socket: bool,
    pub(crate) with_tls: bool,
    /// Parameters of PostgreSQL's startup message.
    pub(crate) startup: &'a [(String, String)],
}

/// How the sidecar gets the password of its server login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SidecarPassword {
    /// In this environment variable.
    Variable(&'static str),
    /// In a file in the format of `pgpass`.
    PgPass,
    /// The sidecar does not support the protocol.
    Unsupported,
}

/// The parts of a server URL that differ between engines.
pub(crate) struct UrlSyntax {
    pub(crate) scheme: &'static str,
    /// The option that names the CA file.
    pub(crate) ca_option: &'static str,
    /// The option with which the name in the server's certificate is not verified, for errors.
    pub(crate) without_name: &'static str,
    /// That with which nothing is verified.
    pub(crate) unverified: &'static str,
}

/// A database engine. Methods that most engines do not need have a default.
pub(crate) trait ServerEngine: Sync {
    fn properties(&self) -> &'static EngineProperties;

    /// Fails if no server of this release supports `auth`.
    fn check_auth(&self, _auth: Auth, _release: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Fails if the server does not support the TLS settings of `path`.
    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error>;

    // Data directory

    /// Arguments of the install program; `None` if the server creates its data directory when it starts.
    fn install_arguments(&self, _build: &Build, _data: &Path, _run: &Path) -> Option<Vec<String>> {
        None
    }

    /// Login to a server on a new data directory.
    fn template_control(&self, socket: &Path) -> ControlLogin;

    /// Fills a new data directory and removes accounts without a password.
    fn load_template(
        &self,
        control: &ControlLogin,
        name: &str,
        tables: &Tables,
        encryption: Option<&dyn NativeEncryption>,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error>;

    // Start

    fn socket_path(&self, run: &Path, port: u16) -> PathBuf {
        run.join(self.properties().socket_name.replace("PORT", &port.to_string()))
    }

    /// Contents of the configuration file; `None` if the server reads no file.
    fn config_text(&self, _config: &Config<'_>) -> Option<String> {
        None
    }

    /// Arguments of the server program; `file` has the configuration.
    fn arguments(&self, config: &Config<'_>, file: &Path) -> Vec<String>;

    fn provisions(&self, _config: &Config<'_>) -> Provisions {
        Provisions::default()
    }

    /// Writes the file that [`Config::access`] names. A document database needs the password only.
    fn write_access(
        &self,
        directory: &ServerDirectory,
        _password: &Secret,
        _owner: RunAs,
    ) -> Result<PathBuf, Error> {
        Ok(directory.password.clone())
    }

    fn control(&self, socket: &Path, password: &Secret) -> ControlLogin;

    /// Creates the account of control connections if the started server has none yet; returns its login.
    fn create_control_account(
        &self,
        control: ControlLogin,
        _password: &Secret,
    ) -> Result<ControlLogin, Error> {
        Ok(control)
    }

    // Accounts

    /// Account name, which is also the common name of its client certificate.
    fn account_name(&self, credentials: Credentials) -> String {
        let EngineProperties { engine, default_user: user, .. } = *self.properties();
        let name = match credentials.auth {
            auth if auth == Auth::default_of(engine) => user.to_owned(),
            Auth::Scram { iterations, .. } => format!("{user}_{}", iterations.number()),
            auth => format!("{user}_{auth}").replace('-', "_"),
        };
        format!("{name}{}", credentials.account_suffix())
    }

    /// Creates the account for `credentials` if it does not exist yet.
    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        server_name: &str,
    ) -> Result<(), Error>;

    /// Does what a server must do before each use of a login so that every trial's logins take the same steps.
    fn prepare_login(&self, _login: PreparedLogin<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Makes the server require, or no longer require, what `requirements` says.
    fn apply_requirements(
        &self,
        _control: &ControlLogin,
        _directory: &ServerDirectory,
        _requirements: ClientRequirements,
    ) -> Result<Change, Error> {
        Ok(Change::NeedsRestart)
    }

    fn reload_certificate(&self, _control: &ControlLogin, _release: &str) -> Result<Change, Error> {
        Ok(Change::NeedsRestart)
    }

    // Observation

    fn describe(
        &self,
        control: &ControlLogin,
        scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error>;

    /// The settings in `requested` that did not take effect.
    fn unmet_settings(
        &self,
        _control: &ControlLogin,
        _requested: &BTreeMap<String, String>,
    ) -> Result<Vec<UnmetSetting>, Error> {
        Ok(Vec::new())
    }

    /// Reads tables and indexes until none of their pages comes from disk, or until a pass reads as many as the one before.
    fn prewarm(&self, control: &ControlLogin, tables: &Tables, data: &Path) -> Result<(), Error>;

    /// Pages read from disk because the server's buffers did not contain them; `None` if the server does not report it.
    fn buffer_misses(&self, _control: &ControlLogin) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn counters(&self, control: &ControlLogin) -> Result<Counters, Error> {
        let pages_read = self.buffer_misses(control)?;
        Ok(Counters { buffer_misses: pages_read, pages_read, ..Counters::default() })
    }

    /// Connection counters; `own` is left at 0.
    fn connection_counts(&self, control: &ControlLogin) -> Result<ConnectionCounts, Error>;

    /// The encryption in the answer to [`EngineProperties::encryption_query`]. Document databases do not report it.
    fn parse_encryption(&self, _rows: Vec<Vec<String>>) -> ConnectionEncryption {
        ConnectionEncryption::None
    }

    /// Open connections of `user`, by encryption.
    fn open_connections(
        &self,
        _client: &mut Client,
        _user: &str,
    ) -> Result<Vec<(ConnectionEncryption, u64)>, Error> {
        Ok(Vec::new())
    }

    // Between trials

    /// Writes out changed pages, which the server would otherwise do during a measurement.
    fn write_out(&self, _control: &ControlLogin, _tables: &Tables) -> Result<(), Error> {
        Ok(())
    }

    /// Removes dead rows, index bloat and pgbench's history.
    fn refresh(&self, _control: &ControlLogin, _tables: &Tables) -> Result<(), Error> {
        Ok(())
    }

    /// Writes `texts` to a new table or collection, and makes the server write it to its files.
    fn write_marker(&self, control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error>;

    fn remove_marker(&self, control: &ControlLogin, table: &str) -> Result<(), Error>;

    // Proxies and servers at URLs. In document databases, the first write creates a database.

    /// Creates `database` unless it exists.
    fn create_database(
        &self,
        _client: &mut Client,
        _doing: &'static str,
        _database: &str,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn table_names(&self, _client: &mut Client, _database: &str) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn load_tables(
        &self,
        _client: &mut Client,
        _name: &str,
        _tables: &Tables,
        _progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn login(&self, request: &LoginRequest<'_>) -> Login;
}
