//! Command-line arguments. Flags take precedence over the configuration file.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use ciphertoll_proxy::{
    Config, ConfigError, Format, HumanDuration, Level, LimitsSection, ListenAddress, LogSection, Pooling,
    Resolved, UnixAuth,
};
use clap::{Parser, Subcommand};

/// Pools encrypted connections to a PostgreSQL, MySQL or MariaDB server for applications on this machine.
///
/// Clients connect over a local socket in plaintext; every upstream connection uses TLS, and the server's
/// certificate is verified. Passwords are never arguments. The password is read from CIPHERTOLL_PASSWORD,
/// from PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass) for PostgreSQL, from MYSQL_PWD for MySQL and
/// MariaDB, or from the source that the configuration names. SIGTERM drains clients and exits; SIGHUP reloads
/// settings and certificates.
#[derive(Clone, Parser)]
#[expect(clippy::doc_markdown, reason = "these texts are shown by --help, which does not render backticks")]
#[command(
    name = "ciphertoll-proxy",
    version,
    max_term_width = 110,
    override_usage = "ciphertoll-proxy --listen ADDRESS --server URL [OPTIONS]\n       \
                      ciphertoll-proxy --config FILE [--check] [OPTIONS]\n       \
                      ciphertoll-proxy status|schema",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Subcommands>,
    /// Read settings from a TOML file (see the command `schema`); flags take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check settings, certificates and passwords, print the effective configuration and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Address for clients
    #[arg(
        long,
        value_name = "ADDRESS",
        required_unless_present = "config",
        help = "Address for clients: unix:/PATH/.s.PGSQL.6432 (PostgreSQL: libpq expects this name), unix:/PATH/mysqld.sock \
                (MySQL, MariaDB: any name), or tcp:127.0.0.1:6432, where clients must know the password (may be repeated)"
    )]
    listen: Vec<ListenAddress>,
    /// URL of the server: postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE, or mysql:// or
    /// mariadb://…?ssl-ca=FILE. The server's certificate and host name are verified unless sslmode (ssl-mode)
    /// says otherwise
    // Parsed later: clap would print an invalid value, which may contain a password.
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    server: Option<String>,
    /// Certificate (PEM) for TCP clients; they must then use TLS, and may connect from other machines
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// CA file for client certificates: each client must present one issued to its user name, and needs no
    /// password
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// How long a client keeps a server connection [default: session]
    #[arg(long, value_name = "MODE")]
    mode: Option<Pooling>,
    /// Number of worker threads; more than one helps only if one CPU is not enough [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<NonZeroUsize>,
    /// Address for status and metrics over HTTP
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Address for status and metrics over HTTP: unix:/PATH or tcp:127.0.0.1:PORT"
    )]
    admin: Option<ListenAddress>,
    /// UID allowed to connect over the unix socket, in addition to the proxy's own (may be repeated)
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// How clients authenticate on the unix socket [default: peer]
    #[arg(long, value_name = "METHOD")]
    unix_auth: Option<UnixAuth>,
    /// Maximum number of server connections, over all databases [default: 20]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pool_size: Option<NonZeroUsize>,
    /// Server connections of each user that are opened in advance and kept open [default: 0]
    #[arg(long, value_name = "N")]
    warm_up: Option<usize>,
    /// Maximum number of clients [default: 10000]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    max_clients: Option<NonZeroUsize>,
    /// Maximum number of clients that wait for a server connection [default: the value of max-clients]
    #[arg(long, value_name = "N")]
    queue_limit: Option<usize>,
    /// How long a client waits for a server connection: 500ms, 30s, 2m, or a number of seconds [default: 30s]
    #[arg(long, value_name = "TIME")]
    queue_time: Option<HumanDuration>,
    /// Time limit for opening a server connection [default: 10s]
    #[arg(long, value_name = "TIME")]
    connect_time: Option<HumanDuration>,
    /// Close a server connection that has been idle for this long [default: 10m]
    #[arg(long, value_name = "TIME")]
    idle_time: Option<HumanDuration>,
    /// Maximum age of a server connection when it is handed to another client [default: 1h]
    #[arg(long, value_name = "TIME")]
    max_age: Option<HumanDuration>,
    /// Check a server connection that has been idle for this long; 0 disables the check [default: 30s]
    #[arg(long, value_name = "TIME")]
    health_time: Option<HumanDuration>,
    /// How long clients have to disconnect after SIGTERM or SIGINT; a second signal stops at once [default:
    /// 30s]
    #[arg(long, value_name = "TIME")]
    drain_time: Option<HumanDuration>,
    /// Minimum level of log events, written to stderr [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
    /// Log format [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
}

#[derive(Clone, Subcommand)]
pub(crate) enum Subcommands {
    /// Show the status of a running proxy
    Status {
        /// Admin address of the running proxy (its --admin)
        #[arg(long, value_name = "ADDRESS", required_unless_present = "config")]
        admin: Option<ListenAddress>,
        /// Configuration file of the running proxy, which names its admin address
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
}

impl Arguments {
    /// Reads the configuration file anew at each call.
    pub(crate) fn load(&self) -> Result<Resolved, ConfigError> {
        let flags = self.flags();
        let config = match &self.config {
            Some(path) => flags.or(Config::read(path)?),
            None => flags,
        };
        config.resolve()
    }

    fn flags(&self) -> Config {
        Config {
            listen: self.listen.clone(),
            server: self.server.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            tls_client_ca: self.tls_client_ca.clone(),
            admin: self.admin.clone(),
            mode: self.mode,
            threads: self.threads,
            allow_uid: self.allow_uid.clone(),
            unix_auth: self.unix_auth,
            scram_iterations: None,
            warm_up: self.warm_up,
            health_time: self.health_time,
            limits: LimitsSection {
                pool_size: self.pool_size,
                max_clients: self.max_clients,
                queue_limit: self.queue_limit,
                queue_time: self.queue_time,
                connect_time: self.connect_time,
                idle_time: self.idle_time,
                max_age: self.max_age,
                drain_time: self.drain_time,
                ..LimitsSection::default()
            },
            log: LogSection { level: self.log, format: self.log_format },
            user: Vec::new(),
        }
    }
}

fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number of at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_covers_every_protocol() {
        let help = Arguments::command().render_long_help().to_string();
        for word in ["PostgreSQL", "MySQL", "MariaDB", "mysql://", "MYSQL_PWD", "ssl-ca", "mysqld.sock"] {
            assert!(help.contains(word), "{word}: {help}");
        }
    }

    #[test]
    fn listen_and_server_are_enough_and_so_is_a_config_file() {
        let two = ["x", "--listen", "unix:/x", "--server", "postgres://a@h/?sslmode=disable"];
        let resolved = Arguments::try_parse_from(two).unwrap().load().unwrap();
        assert_eq!(resolved.settings.limits, ciphertoll_proxy::Limits::default());
        assert!(Arguments::try_parse_from(["x", "--config", "/x.toml"]).is_ok());
        assert!(Arguments::try_parse_from(&two[..3]).is_err());
        assert!(Arguments::try_parse_from(["x", "schema"]).is_ok());
        assert!(Arguments::try_parse_from(["x", "status"]).is_err());
        assert!(Arguments::try_parse_from(["x", "status", "--admin", "unix:/x"]).is_ok());
    }

    #[test]
    fn help_shows_the_effective_defaults() {
        let two = ["x", "--listen", "unix:/x", "--server", "postgres://a@h/?sslmode=disable"];
        let effective = Arguments::try_parse_from(two).unwrap().load().unwrap().effective;
        let shown: toml::Table = toml::from_str(&effective.to_toml()).unwrap();
        let mut checked = 0;
        for argument in Arguments::command().get_arguments() {
            let Some(name) = argument.get_long() else { continue };
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let Some((_, default)) = help.rsplit_once("[default: ") else { continue };
            let value = match name {
                // Described in words.
                "queue-limit" => continue,
                "log" => shown["log"].get("level"),
                "log-format" => shown["log"].get("format"),
                name => shown["limits"].get(name).or(shown.get(name)),
            };
            let value = value.unwrap_or_else(|| panic!("{name} is not shown")).to_string();
            assert_eq!(default.trim_end_matches(']'), value.trim_matches('"'), "{name}");
            checked += 1;
        }
        assert!(checked >= 10, "{checked}");
    }
}
