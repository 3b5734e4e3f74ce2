//! What can be said on the command line. Flags are settings as a file has them, and go before those.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use ciphertoll_proxy::{
    Config, ConfigError, Format, Level, LimitsSection, Listen, LogSection, Pooling, Resolved, Span, UnixAuth,
};
use clap::{Parser, Subcommand};

/// Pools encrypted connections to a PostgreSQL, MySQL or MariaDB server for applications on this machine.
///
/// Clients connect over a local socket, in plaintext; every connection to the server is encrypted and its certificate
/// verified. The password is read from CIPHERTOLL_PASSWORD, else from PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass)
/// for PostgreSQL, from MYSQL_PWD for MySQL and MariaDB, or from where the configuration says, never from an argument.
/// SIGTERM lets clients finish, SIGHUP reads settings and certificates again.
#[derive(Clone, Parser)]
#[expect(clippy::doc_markdown, reason = "these texts are those of --help, where backticks would be shown")]
#[command(
    name = "ciphertoll-proxy",
    version,
    max_term_width = 110,
    override_usage = "ciphertoll-proxy --listen PLACE --server URL [OPTIONS]\n       \
                      ciphertoll-proxy --config FILE [--check] [OPTIONS]\n       \
                      ciphertoll-proxy status|schema",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Settings in TOML, with the names of these flags (see the command `schema`); flags go before them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Reads all settings, certificates and passwords, says what is in force, and serves nobody
    #[arg(long)]
    pub(crate) check: bool,
    /// Where clients come to
    #[arg(
        long,
        value_name = "PLACE",
        required_unless_present = "config",
        help = "Where clients connect: unix:/PATH/.s.PGSQL.6432 (PostgreSQL: libpq expects this name), unix:/PATH/mysqld.sock \
                (MySQL, MariaDB: any name), or tcp:127.0.0.1:6432, where they must know the password (may be repeated)"
    )]
    listen: Vec<Listen>,
    /// The server: postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE, or mysql:// or mariadb://…?ssl-ca=FILE. Its
    /// certificate and name are verified, unless sslmode (ssl-mode) says less
    // Parsed later: clap would show a wrong value, which may have a password in it.
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    server: Option<String>,
    /// A PEM file by which clients that come by TCP know the proxy; they must use TLS, and may come from other machines
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Authorities of clients' certificates: each client must show one with its user's name, and needs no password
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// How long a client has a server connection [default: session]
    #[arg(long, value_name = "MODE")]
    mode: Option<Pooling>,
    /// How many threads serve; more than one pay where one processor is not enough [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<NonZeroUsize>,
    /// Where status and metrics are asked for
    #[arg(
        long,
        value_name = "PLACE",
        help = "Where status and metrics are asked for, by HTTP: unix:/PATH or tcp:127.0.0.1:PORT"
    )]
    admin: Option<Listen>,
    /// A user, beside our own, whose processes may come by the unix socket (a number; may be repeated)
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// How clients that come by unix socket show who they are [default: peer]
    #[arg(long, value_name = "HOW")]
    unix_auth: Option<UnixAuth>,
    /// The most server connections, over all databases [default: 20]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pool_size: Option<NonZeroUsize>,
    /// Server connections that are opened before anybody asks for them, and kept [default: 0]
    #[arg(long, value_name = "N")]
    warm_up: Option<usize>,
    /// The most clients at a time [default: 10000]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    max_clients: Option<NonZeroUsize>,
    /// The most clients that wait for others' connections at a time [default: as many as there may be]
    #[arg(long, value_name = "N")]
    queue_limit: Option<usize>,
    /// How long a client waits for a server connection: 500ms, 30s, 2m, a number of seconds [default: 30s]
    #[arg(long, value_name = "TIME")]
    queue_time: Option<Span>,
    /// How long opening a server connection may take [default: 10s]
    #[arg(long, value_name = "TIME")]
    connect_time: Option<Span>,
    /// How long a server connection may be idle [default: 10m]
    #[arg(long, value_name = "TIME")]
    idle_time: Option<Span>,
    /// How old a server connection may be when the next client gets it [default: 1h]
    #[arg(long, value_name = "TIME")]
    max_age: Option<Span>,
    /// How long a server connection may be idle before the server is asked whether it is there; 0: never [default: 30s]
    #[arg(long, value_name = "TIME")]
    health_time: Option<Span>,
    /// How long clients have to leave after SIGTERM or SIGINT; a second signal ends it at once [default: 30s]
    #[arg(long, value_name = "TIME")]
    drain_time: Option<Span>,
    /// What is logged, on stderr [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
    /// How it is written [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
}

#[derive(Clone, Subcommand)]
pub(crate) enum Command {
    /// Says how a proxy is that runs
    Status {
        /// Where it is asked: its --admin
        #[arg(long, value_name = "PLACE", required_unless_present = "config")]
        admin: Option<Listen>,
        /// The settings that it runs with, which say where it is asked
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Prints the JSON Schema of the settings' file
    Schema,
}

impl Arguments {
    /// Reads the settings, as often as it is called.
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
    text.parse().map_err(|_| "a whole number from 1 on".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_one() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_is_for_all_protocols() {
        let help = Arguments::command().render_long_help().to_string();
        for word in ["PostgreSQL", "MySQL", "MariaDB", "mysql://", "MYSQL_PWD", "ssl-ca", "mysqld.sock"] {
            assert!(help.contains(word), "{word}: {help}");
        }
    }

    #[test]
    fn two_flags_are_enough_and_one_file_is() {
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
    fn a_default_that_help_tells_of_is_the_one_in_force() {
        let two = ["x", "--listen", "unix:/x", "--server", "postgres://a@h/?sslmode=disable"];
        let effective = Arguments::try_parse_from(two).unwrap().load().unwrap().effective;
        let shown: toml::Table = toml::from_str(&effective.to_toml()).unwrap();
        let mut told = 0;
        for argument in Arguments::command().get_arguments() {
            let Some(name) = argument.get_long() else { continue };
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let Some((_, default)) = help.rsplit_once("[default: ") else { continue };
            let value = match name {
                // In words.
                "queue-limit" => continue,
                "log" => shown["log"].get("level"),
                "log-format" => shown["log"].get("format"),
                name => shown["limits"].get(name).or(shown.get(name)),
            };
            let value = value.unwrap_or_else(|| panic!("{name} is not shown")).to_string();
            assert_eq!(default.trim_end_matches(']'), value.trim_matches('"'), "{name}");
            told += 1;
        }
        assert!(told >= 10, "{told}");
    }
}
