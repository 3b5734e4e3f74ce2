//! PostgreSQL.

mod access;
mod config;
mod counters;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_host::exec::{Provisions, SharedMemory};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Engine, Resumption, TlsPath, TlsStart};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};
use nix::sys::signal::Signal;

use self::access::{CONTROL_ROLE, DEFAULT_ROLE};
use super::sql;
use crate::at_rest::native::NativeEncryption;
use crate::datasets::loading::load_postgres;
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
    Change, EngineProperties, LoginRequest, ServerDescription, ServerEngine, ShutdownSignals,
    SidecarPassword, UnmetSetting, UrlSyntax,
};
use crate::tls::credentials::Credentials;
use crate::tls::support::{TlsServer, check_openssl, has_direct_tls, no_direct_tls, unavailable};

const PROPERTIES: EngineProperties = EngineProperties {
    engine: Engine::Postgres,
    server_names: &["postgres"],
    install_names: &["initdb"],
    install_directories: &["bin"],
    version_arguments: &["--version"],
    parse_version,
    series_parts: 1,
    how_to_get: "install it (Debian and Ubuntu: the package postgresql) \
         or name its directory: postgres=/opt/pgsql",
    tls_library_of: binary::linked_tls_library,
    native_encryption: None,
    socket_name: ".s.PGSQL.PORT",
    proxy_socket_name: ".s.PGSQL.5432",
    has_tls_port: false,
    port_taken_messages: &["could not create any TCP/IP sockets", "could not bind"],
    reads_access_once: false,
    // SIGTERM would wait for clients; SIGKILL would leave children and shared memory behind.
    shutdown_signals: Some(ShutdownSignals { fast: Signal::SIGINT, immediate: Signal::SIGQUIT }),
    default_user: DEFAULT_ROLE,
    encryption_query: "SELECT coalesce(version, ''), coalesce(cipher, '') FROM pg_stat_ssl \
         WHERE pid = pg_backend_pid()",
    lists_connections: true,
    loading_connections: 0,
    url_syntax: UrlSyntax {
        scheme: "postgres",
        ca_option: "sslrootcert",
        without_name: "sslmode=verify-ca (with sslrootcert)",
        unverified: "sslmode=require (without sslrootcert)",
    },
    sidecar_password: SidecarPassword::PgPass,
};

pub(super) struct Postgres;

impl ServerEngine for Postgres {
    fn properties(&self) -> &'static EngineProperties {
        &PROPERTIES
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        match path.start {
            TlsStart::Direct | TlsStart::Eager if !has_direct_tls(server.release) => {
                return Err(no_direct_tls(path.start, server));
            }
            TlsStart::Direct | TlsStart::Eager | TlsStart::Requested => {}
        }
        if matches!(path.resumption, Resumption::Always | Resumption::BySessionId) {
            let reason =
                "PostgreSQL never resumes TLS sessions: it issues no tickets and keeps no session ids";
            return Err(unavailable(reason));
        }
        check_openssl(path, server)
    }

    /// The access rules of a new data directory admit everybody who reaches the socket, which is in a private directory.
    /// Servers that start on a copy have their own rules.
    fn install_arguments(&self, _build: &Build, data: &Path, _run: &Path) -> Option<Vec<String>> {
        Some(vec![
            format!("--pgdata={}", data.display()),
            format!("--username={CONTROL_ROLE}"),
            "--no-sync".to_owned(),
            "--encoding=UTF8".to_owned(),
            "--locale=C".to_owned(),
            "--auth=trust".to_owned(),
        ])
    }

    fn template_control(&self, socket: &Path) -> ControlLogin {
        ControlLogin::postgres(socket, CONTROL_ROLE, "postgres")
    }

    fn load_template(
        &self,
        control: &ControlLogin,
        name: &str,
        tables: &Tables,
        _encryption: Option<&dyn NativeEncryption>,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        let create = format!("CREATE DATABASE {}", sysbench::SCHEMA);
        control::execute(&mut control.connect()?, "create the database", &create)?;
        let mut client = control.in_database(sysbench::SCHEMA).connect()?;
        load_postgres(&mut client, name, tables, progress)?;
        access::create_groups(&mut client)?;
        control::execute(&mut client, "write out the tables", "CHECKPOINT")
    }

    fn config_text(&self, config: &Config<'_>) -> Option<String> {
        Some(config::text(config))
    }

    fn arguments(&self, _config: &Config<'_>, file: &Path) -> Vec<String> {
        vec![format!("--config-file={}", file.display())]
    }

    fn provisions(&self, _config: &Config<'_>) -> Provisions {
        Provisions { shared_memory: SharedMemory::Own, ..Provisions::default() }
    }

    fn write_access(
        &self,
        directory: &ServerDirectory,
        _password: &Secret,
        owner: RunAs,
    ) -> Result<PathBuf, Error> {
        access::write_access_rules(directory, owner)
    }

    fn control(&self, socket: &Path, _password: &Secret) -> ControlLogin {
        ControlLogin::postgres(socket, CONTROL_ROLE, sysbench::SCHEMA)
    }

    fn account_name(&self, credentials: Credentials) -> String {
        access::role_name(credentials)
    }

    fn create_account(
        &self,
        control: &ControlLogin,
        credentials: Credentials,
        password: &Secret,
        _server_name: &str,
    ) -> Result<(), Error> {
        access::create_role(control, credentials, password)
    }

    fn apply_requirements(
        &self,
        control: &ControlLogin,
        directory: &ServerDirectory,
        requirements: ClientRequirements,
    ) -> Result<Change, Error> {
        access::write_certificate_request(directory, requirements.certificate)?;
        counters::reload(control)?;
        Ok(Change::Applied)
    }

    fn reload_certificate(&self, control: &ControlLogin, _release: &str) -> Result<Change, Error> {
        counters::reload(control)?;
        Ok(Change::Applied)
    }

    fn describe(
        &self,
        control: &ControlLogin,
        _scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error> {
        let doing = "read the server's version and settings";
        let mut client = control.connect()?;
        let identity = "SELECT current_setting('server_version'), current_setting('ssl_library')";
        let mut identity = control::query(&mut client, doing, identity)?.into_iter().flatten();
        let version = identity.next().unwrap_or_default();
        // The server reports the library without its version.
        let reported = identity.next().filter(|library| !library.is_empty());
        let tls_library = binary::linked_tls_library(&build.server_program).or(reported);
        let changed = "SELECT name, current_setting(name) FROM pg_settings \
             WHERE source IN ('configuration file', 'command line')";
        let rows = control::query(&mut client, doing, changed)?;
        let pairs = rows.into_iter().filter_map(|row| <[String; 2]>::try_from(row).ok());
        let settings =
            pairs.filter(|[_, value]| !value.starts_with('/')).map(|[name, value]| (name, value)).collect();
        Ok(ServerDescription { version, tls_library, settings })
    }

    fn unmet_settings(
        &self,
        control: &ControlLogin,
        requested: &BTreeMap<String, String>,
    ) -> Result<Vec<UnmetSetting>, Error> {
        counters::unmet_settings(control, requested)
    }

    fn prewarm(&self, control: &ControlLogin, tables: &Tables, _data: &Path) -> Result<(), Error> {
        counters::prewarm(control, tables)
    }

    fn buffer_misses(&self, control: &ControlLogin) -> Result<Option<u64>, Error> {
        counters::settled_buffer_misses(control).map(Some)
    }

    fn counters(&self, control: &ControlLogin) -> Result<Counters, Error> {
        counters::counters(control)
    }

    fn connection_counts(&self, control: &ControlLogin) -> Result<ConnectionCounts, Error> {
        counters::connection_counts(control)
    }

    fn parse_encryption(&self, rows: Vec<Vec<String>>) -> ConnectionEncryption {
        let mut values = rows.into_iter().flatten();
        let (version, suite) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
        ConnectionEncryption::from_names(&version, &suite)
    }

    fn open_connections(
        &self,
        client: &mut Client,
        user: &str,
    ) -> Result<Vec<(ConnectionEncryption, u64)>, Error> {
        counters::open_connections(client, user)
    }

    fn write_out(&self, control: &ControlLogin, _tables: &Tables) -> Result<(), Error> {
        control::execute(&mut control.connect()?, "write out the tables", "CHECKPOINT")
    }

    /// `VACUUM` now, because the server would otherwise do it in the background at any time.
    fn refresh(&self, control: &ControlLogin, tables: &Tables) -> Result<(), Error> {
        let mut client = control.connect()?;
        if let Some(history) = tables.history() {
            control::execute(&mut client, "empty pgbench's history", &format!("TRUNCATE {history}"))?;
        }
        for table in tables.names() {
            control::execute(&mut client, "remove dead rows", &format!("VACUUM ANALYZE {table}"))?;
            control::execute(&mut client, "rebuild the indexes", &format!("REINDEX TABLE {table}"))?;
        }
        Ok(())
    }

    fn write_marker(&self, control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error> {
        let mut client = control.connect()?;
        for statement in sql::write_statements(table, texts).iter().chain(&["CHECKPOINT".to_owned()]) {
            control::execute(&mut client, "write the marker", statement)?;
        }
        control::close(client)
    }

    fn remove_marker(&self, control: &ControlLogin, table: &str) -> Result<(), Error> {
        control::execute(&mut control.connect()?, "remove the marker", &sql::drop_statement(table))
    }

    fn create_database(&self, client: &mut Client, doing: &'static str, database: &str) -> Result<(), Error> {
        let known = format!("SELECT 1 FROM pg_database WHERE datname = '{database}'");
        if control::query(client, doing, &known)?.is_empty() {
            control::execute(client, doing, &format!("CREATE DATABASE {database}"))?;
        }
        Ok(())
    }

    fn table_names(&self, client: &mut Client, _database: &str) -> Result<Vec<String>, Error> {
        let query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
        Ok(control::query(client, "list tables", query)?.into_iter().flatten().collect())
    }

    fn load_tables(
        &self,
        client: &mut Client,
        name: &str,
        tables: &Tables,
        progress: &mut LoadProgress<'_>,
    ) -> Result<(), Error> {
        load_postgres(client, name, tables, progress)
    }

    fn login(&self, request: &LoginRequest<'_>) -> Login {
        let (encryption, channel_binding) = if request.with_tls {
            (postgres::PostgresTlsMode::Tls, postgres::ChannelBinding::Preferred)
        } else {
            (postgres::PostgresTlsMode::Plain, postgres::ChannelBinding::Disabled)
        };
        Login::Postgres(Arc::new(postgres::PostgresLogin {
            startup: request.startup.to_vec(),
            user: request.user.to_owned(),
            password: request.password.clone(),
            database: request.database.map(ToOwned::to_owned),
            encryption,
            channel_binding,
        }))
    }
}

/// `15.18`
fn parse_version(text: &str) -> Option<String> {
    let version = text.strip_prefix("postgres (PostgreSQL) ")?.split_ascii_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_an_answer_has_no_encryption() {
        let tls = ConnectionEncryption::Tls { version: "tls1.3".to_owned(), suite: "S".to_owned() };
        let row = |values: [&str; 2]| vec![values.map(ToOwned::to_owned).to_vec()];
        assert_eq!(Postgres.parse_encryption(row(["TLSv1.3", "S"])), tls);
        assert_eq!(Postgres.parse_encryption(row(["", ""])), ConnectionEncryption::None);
        assert_eq!(Postgres.parse_encryption(Vec::new()), ConnectionEncryption::None);
    }
}
