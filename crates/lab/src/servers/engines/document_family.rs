//! What MongoDB and FerretDB have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{Auth, Engine, TlsPath, TlsStart, TlsVersion};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb};
use serde_json::{Map, Value, json};

use crate::at_rest::native::NativeEncryption;
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::documents::commands::{self, CONTROL_USER, DATABASE, command, number};
use crate::documents::loading::{self, DocumentLoad};
use crate::error::Error;
use crate::host::exec::Provisions;
use crate::host::user::RunAs;
use crate::servers::build::Build;
use crate::servers::config::{AccessControl, ClientRequirements, Config};
use crate::servers::control::{self, ControlLogin};
use crate::servers::counters::{ConnectionCounts, Counters};
use crate::servers::directory::ServerDirectory;
use crate::servers::encryption::ConnectionEncryption;
use crate::servers::engine::{
    Change, LoginRequest, ServerDescription, ServerEngine, ServerPrograms, SidecarPassword, UrlSyntax,
};
use crate::tls::credentials::Credentials;
use crate::tls::support::{TlsServer, unavailable};

/// The account for [`Auth::default_of`].
const USER: &str = "ciphertoll";

/// What distinguishes MongoDB and FerretDB.
pub(super) trait DocumentVariant: Sync {
    fn programs(&self) -> &'static ServerPrograms;

    fn tls_library_of(&self, program: &Path) -> Option<String>;

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error>;

    /// Fails if the server does not support the suite, resumption or group of `path`.
    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error>;

    fn socket_path(&self, run: &Path, port: u16) -> PathBuf;

    fn config_text(&self, config: &Config<'_>) -> Option<String>;

    fn arguments(&self, config: &Config<'_>, file: &Path) -> Vec<String>;

    fn provisions(&self, config: &Config<'_>) -> Provisions;

    fn has_tls_port(&self) -> bool;

    fn port_taken_messages(&self) -> &'static [&'static str];

    /// Login before [`Self::create_control_account`].
    fn first_control(&self, socket: &Path, password: &Secret) -> ControlLogin;

    fn create_control_account(&self, control: ControlLogin, password: &Secret)
    -> Result<ControlLogin, Error>;

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
    ) -> Result<(), Error>;

    fn reload_certificate(&self, control: &ControlLogin, release: &str) -> Result<Change, Error>;

    fn describe(&self, control: &ControlLogin, build: &Build) -> Result<ServerDescription, Error>;

    fn prewarm(&self, control: &ControlLogin, tables: &Tables, data: &Path) -> Result<(), Error>;

    fn buffer_misses(&self, control: &ControlLogin) -> Result<Option<u64>, Error>;

    fn loading_connections(&self) -> usize;
}

pub(super) struct DocumentFamily<V>(pub(super) V);

impl<V: DocumentVariant> ServerEngine for DocumentFamily<V> {
    fn programs(&self) -> &'static ServerPrograms {
        self.0.programs()
    }

    fn tls_library_of(&self, program: &Path) -> Option<String> {
        self.0.tls_library_of(program)
    }

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        self.0.check_auth(auth, release)
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        check_version(path.version, server)?;
        match path.start {
            TlsStart::Requested => self.0.check_tls(path, server),
            TlsStart::Direct | TlsStart::Eager => {
                let reason = "MongoDB's protocol has no request for TLS: connections always begin with TLS";
                Err(unavailable(reason))
            }
        }
    }

    fn install_arguments(&self, _build: &Build, _data: &Path, _run: &Path) -> Option<Vec<String>> {
        None
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
        let Some(records) = tables.ycsb else { return Ok(()) };
        let (control, records) = (control.in_database(DATABASE), records.rows());
        let connections = self.loading_connections();
        loading::load(DocumentLoad { control: &control, name, records, connections }, progress).map(drop)
    }

    fn socket_path(&self, run: &Path, port: u16) -> PathBuf {
        self.0.socket_path(run, port)
    }

    fn config_text(&self, config: &Config<'_>) -> Option<String> {
        self.0.config_text(config)
    }

    fn arguments(&self, config: &Config<'_>, file: &Path) -> Vec<String> {
        self.0.arguments(config, file)
    }

    fn provisions(&self, config: &Config<'_>) -> Provisions {
        self.0.provisions(config)
    }

    fn has_tls_port(&self) -> bool {
        self.0.has_tls_port()
    }

    fn port_taken_messages(&self) -> &'static [&'static str] {
        self.0.port_taken_messages()
    }

    fn write_access(
        &self,
        directory: &ServerDirectory,
        _password: &Secret,
        _owner: RunAs,
    ) -> Result<PathBuf, Error> {
        Ok(directory.password.clone())
    }

    fn control(&self, socket: &Path, password: &Secret) -> ControlLogin {
        self.0.first_control(socket, password)
    }

    fn create_control_account(
        &self,
        control: ControlLogin,
        password: &Secret,
    ) -> Result<ControlLogin, Error> {
        self.0.create_control_account(control, password)
    }

    fn default_user(&self) -> &'static str {
        USER
    }

    fn account_name(&self, credentials: Credentials) -> String {
        account_name(credentials)
    }

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        _server_name: &str,
    ) -> Result<(), Error> {
        if credentials.auth == Auth::Trust {
            // Access control is disabled.
            return Ok(());
        }
        self.0.create_account(control, credentials, password)
    }

    fn apply_requirements(
        &self,
        _control: &ControlLogin,
        _directory: &ServerDirectory,
        _requirements: ClientRequirements,
    ) -> Result<Change, Error> {
        Ok(Change::NeedsRestart)
    }

    fn control_under(
        &self,
        control: &ControlLogin,
        requirements: ClientRequirements,
        password: Secret,
    ) -> ControlLogin {
        match requirements.access {
            AccessControl::Accounts => control.as_account(CONTROL_USER, password),
            AccessControl::Disabled => control.without_account(),
        }
    }

    fn reload_certificate(&self, control: &ControlLogin, release: &str) -> Result<Change, Error> {
        self.0.reload_certificate(control, release)
    }

    fn describe(
        &self,
        control: &ControlLogin,
        _scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error> {
        self.0.describe(control, build)
    }

    fn prewarm(&self, control: &ControlLogin, tables: &Tables, data: &Path) -> Result<(), Error> {
        self.0.prewarm(control, tables, data)
    }

    fn buffer_misses(&self, control: &ControlLogin) -> Result<Option<u64>, Error> {
        self.0.buffer_misses(control)
    }

    fn counters(&self, control: &ControlLogin) -> Result<Counters, Error> {
        let pages_read = self.0.buffer_misses(control)?;
        Ok(Counters { buffer_misses: pages_read, pages_read, ..Counters::default() })
    }

    fn connection_counts(&self, control: &ControlLogin) -> Result<ConnectionCounts, Error> {
        let status = server_status(control)?;
        let created = status.get("connections").and_then(|connections| connections.get("totalCreated"));
        let commands = status.get("metrics").and_then(|metrics| metrics.get("commands")?.as_object());
        let total = |commands: &Map<String, Value>| {
            commands.values().filter_map(|command| command.get("total")).filter_map(number).sum()
        };
        Ok(ConnectionCounts {
            connections: created.and_then(number),
            requests: commands.map(total),
            ..ConnectionCounts::default()
        })
    }

    fn encryption_query(&self) -> &'static str {
        commands::PING
    }

    /// The servers do not report it.
    fn parse_encryption(&self, _rows: Vec<Vec<String>>) -> ConnectionEncryption {
        ConnectionEncryption::None
    }

    fn write_marker(&self, control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error> {
        let documents: Vec<_> =
            texts.iter().enumerate().map(|(number, text)| json!({"_id": number, "word": text})).collect();
        let mut client = control.in_database(DATABASE).connect()?;
        let insert = command("insert", &table.into(), &[("documents", json!(documents))]);
        control::execute(&mut client, "write the marker", &insert)?;
        control::close(client)
    }

    fn remove_marker(&self, control: &ControlLogin, table: &str) -> Result<(), Error> {
        let mut client = control.in_database(DATABASE).connect()?;
        control::execute(&mut client, "remove the marker", &command("drop", &table.into(), &[]))
    }

    fn loading_connections(&self) -> usize {
        self.0.loading_connections()
    }

    /// The first write creates a database.
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

    fn login(&self, request: &LoginRequest<'_>) -> Login {
        let login = mongodb::MongoDbLogin::new(request.user, request.password.clone());
        let database = request.database.map_or_else(|| login.database.clone(), ToOwned::to_owned);
        let tls =
            if request.with_tls { mongodb::MongoDbTlsMode::Tls } else { mongodb::MongoDbTlsMode::Plain };
        Login::MongoDb(Arc::new(mongodb::MongoDbLogin { database, tls, ..login }))
    }

    fn url_syntax(&self) -> UrlSyntax {
        UrlSyntax {
            scheme: "mongodb",
            ca_option: "tlsCAFile",
            weaker_options: "tlsAllowInvalidHostnames=true (no name) or tlsInsecure=true (nothing)",
        }
    }

    fn proxy_socket_name(&self) -> &'static str {
        "mongodb-27017.sock"
    }

    fn sidecar_password(&self) -> SidecarPassword {
        SidecarPassword::Unsupported
    }
}

fn check_version(version: TlsVersion, server: TlsServer<'_>) -> Result<(), Error> {
    if !version.is_forbidden() {
        return Ok(());
    }
    Err(unavailable(format!("{} does not offer {version} by default", server.name)))
}

/// Account name, which is also the common name of its client certificate.
fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        // The default of both engines.
        auth if auth == Auth::default_of(Engine::FerretDb) => USER.to_owned(),
        Auth::Scram { iterations, .. } => format!("{USER}_{}", iterations.number()),
        auth => format!("{USER}_{auth}").replace('-', "_"),
    };
    format!("{name}{}", credentials.account_suffix())
}

/// Creates the account for `credentials` with these roles.
pub(super) fn create_account(
    control: &ControlLogin,
    credentials: Credentials,
    password: &Secret,
    roles: &Value,
) -> Result<(), Error> {
    let mechanism = if credentials.auth == Auth::ScramSha1 { "SCRAM-SHA-1" } else { "SCRAM-SHA-256" };
    let user = account_name(credentials);
    commands::create_user(&mut control.connect()?, &user, password, roles, &[mechanism])
}

pub(super) fn server_status(control: &ControlLogin) -> Result<Map<String, Value>, Error> {
    let command = command("serverStatus", &json!(1), &[]);
    commands::ask(&mut control.connect()?, "read the server's counters", &command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_names_depend_on_the_credentials() {
        let of = |auth: &str| account_name(auth.parse::<Auth>().unwrap().into());
        assert_eq!(of("scram-15000"), USER);
        assert_eq!(
            (of("scram-4096"), of("scram-sha1")),
            ("ciphertoll_4096".into(), "ciphertoll_scram_sha1".into())
        );
    }
}
