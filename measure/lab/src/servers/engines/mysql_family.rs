//! What MariaDB and MySQL have in common.

mod config;
pub(super) mod queries;
pub(super) mod variant;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Auth, Engine, TlsPath};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql};

use self::variant::{CONTROL_USER, MySqlVariant, USER};
use super::sql;
use crate::at_rest::native::NativeEncryption;
use crate::datasets::loading::load_mysql_family;
use crate::datasets::progress::LoadProgress;
use crate::datasets::sysbench;
use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::servers::binary;
use crate::servers::build::Build;
use crate::servers::config::{ClientRequirements, Config};
use crate::servers::control::{self, ControlLogin};
use crate::servers::counters::{ConnectionCounts, Counters};
use crate::servers::directory::ServerDirectory;
use crate::servers::encryption::ConnectionEncryption;
use crate::servers::engine::{
    Change, EngineProperties, LoginRequest, PreparedLogin, ServerDescription, ServerEngine, SidecarPassword,
    UnmetSetting, UrlSyntax,
};
use crate::tls::credentials::Credentials;
use crate::tls::support::TlsServer;

/// What both have in common; each engine replaces the rest.
pub(super) const SHARED_PROPERTIES: EngineProperties = EngineProperties {
    engine: Engine::MySql,
    server_names: &["mysqld"],
    install_names: &[],
    install_directories: &[],
    version_arguments: &["--no-defaults", "--version"],
    parse_version: |_| None,
    series_parts: 2,
    how_to_get: "",
    tls_library_of: binary::linked_tls_library,
    native_encryption: None,
    socket_name: "socket",
    proxy_socket_name: "mysqld.sock",
    has_tls_port: false,
    port_taken_messages: &["Bind on TCP/IP port", "another mysqld server running on port"],
    reads_access_once: true,
    shutdown_signals: None,
    default_user: USER,
    encryption_query: "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')",
    lists_connections: false,
    loading_connections: 0,
    url_syntax: UrlSyntax {
        scheme: "mysql",
        ca_option: "ssl-ca",
        without_name: "ssl-mode=VERIFY_CA (with ssl-ca)",
        unverified: "ssl-mode=REQUIRED (without ssl-ca)",
    },
    sidecar_password: SidecarPassword::Variable("MYSQL_PWD"),
};

pub(super) struct MySqlFamily<V>(pub(super) V);

impl<V: MySqlVariant> ServerEngine for MySqlFamily<V> {
    fn properties(&self) -> &'static EngineProperties {
        &V::PROPERTIES
    }

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        self.0.check_auth(auth, release)
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        self.0.check_tls(path, server)
    }

    fn install_arguments(&self, build: &Build, data: &Path, run: &Path) -> Option<Vec<String>> {
        Some(self.0.install_arguments(build, data, run))
    }

    fn template_control(&self, socket: &Path) -> ControlLogin {
        ControlLogin::mysql(socket, "root", Secret::new(Vec::new()))
    }

    fn load_template(
        &self,
        control: &ControlLogin,
        name: &str,
        tables: &Tables,
        encryption: Option<&dyn NativeEncryption>,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        let mut client = control.connect()?;
        let schema = sysbench::SCHEMA;
        control::execute(&mut client, "create the schema", &format!("CREATE DATABASE {schema}"))?;
        control::execute(&mut client, "select the schema", &format!("USE {schema}"))?;
        load_mysql_family(&mut client, name, tables, progress)?;
        if let Some(encryption) = encryption {
            crate::at_rest::native::wait_until_encrypted(&mut client, encryption)?;
        }
        queries::drop_accounts(&mut client)
    }

    fn config_text(&self, config: &Config<'_>) -> Option<String> {
        Some(config::text(&self.0, config))
    }

    fn arguments(&self, _config: &Config<'_>, file: &Path) -> Vec<String> {
        // Must be the first argument, or the server also reads the system's configuration.
        vec![format!("--defaults-file={}", file.display())]
    }

    fn write_access(
        &self,
        directory: &ServerDirectory,
        password: &Secret,
        owner: RunAs,
    ) -> Result<PathBuf, Error> {
        let path = directory.root.join("init.sql");
        let statements = self.0.account_statements(password)?;
        files::write(&path, statements.as_bytes(), PRIVATE_FILE, owner)?;
        Ok(path)
    }

    fn control(&self, socket: &Path, password: &Secret) -> ControlLogin {
        ControlLogin::mysql(socket, CONTROL_USER, password.clone())
    }

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        server_name: &str,
    ) -> Result<(), Error> {
        let user = self.account_name(credentials);
        if user == USER {
            // It is one of the first accounts.
            return Ok(());
        }
        let identified = self.0.identification(control, credentials.auth, password, server_name)?;
        queries::create_account(control, credentials, &user, &identified)
    }

    fn prepare_login(&self, login: PreparedLogin<'_>) -> Result<(), Error> {
        self.0.prepare_login(login)
    }

    /// The server requests a client certificate from every client, and each account has its own authentication.
    fn apply_requirements(
        &self,
        _control: &ControlLogin,
        _directory: &ServerDirectory,
        _requirements: ClientRequirements,
    ) -> Result<Change, Error> {
        Ok(Change::NotApplicable)
    }

    fn reload_certificate(&self, control: &ControlLogin, _release: &str) -> Result<Change, Error> {
        /// MySQL 9.7 reloads a certificate only if `ssl-ca` has signed it. Here, that is the authority of clients. At the
        /// start it only warns.
        const INVALID_CERTIFICATES: &str = "3888";
        let doing = "reload the server's certificate";
        match control::execute(&mut control.connect()?, doing, V::RELOAD_CERTIFICATE) {
            Ok(()) => Ok(Change::Applied),
            Err(Error::Control { source: ciphertoll_net::Error::Protocol(error), .. })
                if error.is_refusal(INVALID_CERTIFICATES) =>
            {
                Ok(Change::NeedsRestart)
            }
            Err(error) => Err(error),
        }
    }

    fn describe(
        &self,
        control: &ControlLogin,
        scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error> {
        self.0.describe(control, scratch, build)
    }

    fn unmet_settings(
        &self,
        control: &ControlLogin,
        requested: &BTreeMap<String, String>,
    ) -> Result<Vec<UnmetSetting>, Error> {
        queries::unmet_settings(control, V::SETTINGS_QUERY, requested)
    }

    fn prewarm(&self, control: &ControlLogin, tables: &Tables, _data: &Path) -> Result<(), Error> {
        let mut client = queries::connect(control, "read all rows")?;
        let statements = tables.select(&queries::READ_SYSBENCH, &queries::READ_PGBENCH);
        sql::prewarm(&mut client, &statements, queries::buffer_misses)
    }

    fn buffer_misses(&self, control: &ControlLogin) -> Result<Option<u64>, Error> {
        queries::buffer_misses(&mut control.connect()?).map(Some)
    }

    fn counters(&self, control: &ControlLogin) -> Result<Counters, Error> {
        queries::counters(control)
    }

    fn connection_counts(&self, control: &ControlLogin) -> Result<ConnectionCounts, Error> {
        queries::connection_counts(control)
    }

    fn parse_encryption(&self, rows: Vec<Vec<String>>) -> ConnectionEncryption {
        let status = queries::pairs(rows);
        let of = |name: &str| status.get(name).map(String::as_str).unwrap_or_default();
        ConnectionEncryption::from_names(of("Ssl_version"), of("Ssl_cipher"))
    }

    /// The pages stay in the buffers.
    fn write_out(&self, control: &ControlLogin, tables: &Tables) -> Result<(), Error> {
        let names: Vec<&str> = tables.names().collect();
        if names.is_empty() {
            return Ok(());
        }
        let doing = "write out the tables";
        let mut client = queries::connect(control, doing)?;
        control::execute(&mut client, doing, &format!("FLUSH TABLES {} FOR EXPORT", names.join(", ")))?;
        control::execute(&mut client, doing, "UNLOCK TABLES")
    }

    /// Empties pgbench's history. InnoDB updates rows in place and purges old versions itself.
    fn refresh(&self, control: &ControlLogin, tables: &Tables) -> Result<(), Error> {
        let Some(history) = tables.history() else { return Ok(()) };
        let sql = format!("TRUNCATE TABLE {}.{history}", sysbench::SCHEMA);
        control::execute(&mut control.connect()?, "empty pgbench's history", &sql)
    }

    fn write_marker(&self, control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error> {
        let doing = "write the marker";
        let mut client = queries::connect(control, doing)?;
        let flush = [format!("FLUSH TABLES {table} FOR EXPORT"), "UNLOCK TABLES".to_owned()];
        for statement in sql::write_statements(table, texts).iter().chain(&flush) {
            control::execute(&mut client, doing, statement)?;
        }
        control::close(client)
    }

    fn remove_marker(&self, control: &ControlLogin, table: &str) -> Result<(), Error> {
        let doing = "remove the marker";
        let mut client = queries::connect(control, doing)?;
        control::execute(&mut client, doing, &sql::drop_statement(table))
    }

    fn create_database(&self, client: &mut Client, doing: &'static str, database: &str) -> Result<(), Error> {
        control::execute(client, doing, &format!("CREATE DATABASE IF NOT EXISTS {database}"))
    }

    fn table_names(&self, client: &mut Client, database: &str) -> Result<Vec<String>, Error> {
        let query =
            format!("SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'");
        Ok(control::query(client, "list tables", &query)?.into_iter().flatten().collect())
    }

    fn load_tables(
        &self,
        client: &mut Client,
        name: &str,
        tables: &Tables,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        load_mysql_family(client, name, tables, progress)
    }

    fn login(&self, request: &LoginRequest<'_>) -> Login {
        Login::MySql(Arc::new(mysql::MySqlLogin {
            database: request.database.map(ToOwned::to_owned),
            plugin: V::LOGIN_PLUGIN,
            encryption: if request.with_tls { mysql::MySqlTlsMode::Tls } else { mysql::MySqlTlsMode::Plain },
            transport: if request.over_unix_socket {
                mysql::Transport::UnixSocket
            } else {
                mysql::Transport::Tcp
            },
            ..mysql::MySqlLogin::new(request.user, request.password.clone())
        }))
    }
}
