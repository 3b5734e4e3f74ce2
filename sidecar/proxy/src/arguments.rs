//! Command-line arguments. Flags take precedence over the configuration file.

use std::ffi::OsString;
use std::path::PathBuf;

use ciphertoll_proxy::{Config, ConfigError, ConfigFile, ListenAddress, ResolvedServers, ServerName};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Error, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

/// Pools encrypted connections to a PostgreSQL, MySQL or MariaDB server for applications on this machine.
///
/// Clients connect over a local socket in plaintext; every upstream connection uses TLS, and the server's
/// certificate is verified. Passwords are never arguments. The password is read from CIPHERTOLL_PASSWORD,
/// from PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass) for PostgreSQL, from MYSQL_PWD for MySQL and
/// MariaDB, or from the source that the configuration names. SIGTERM drains clients and exits; SIGHUP reloads
/// settings and certificates; SIGUSR2 starts the program anew, which takes over without a lost connection.
#[derive(Clone, Parser)]
#[expect(clippy::doc_markdown, reason = "these texts are shown by --help, which does not render backticks")]
#[command(
    name = "ciphertoll-proxy",
    version,
    max_term_width = 110,
    override_usage = "ciphertoll-proxy --listen ADDRESS --server URL [OPTIONS]\n       \
                      ciphertoll-proxy --config FILE [--check] [OPTIONS]\n       \
                      ciphertoll-proxy status|console|import|schema|completions|man",
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
    /// Take over the listening sockets of the proxy that starts this process: see SIGUSR2
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
    /// The flags, which take precedence over the file.
    #[command(flatten)]
    settings: Config,
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
    /// Carry out a command of the console of a running proxy, such as 'SHOW POOLS' or PAUSE
    Console {
        /// The command
        command: String,
        /// Admin address of the running proxy (its --admin); a unix socket for commands that change anything
        #[arg(long, value_name = "ADDRESS", required_unless_present = "config")]
        admin: Option<ListenAddress>,
        /// Configuration file of the running proxy, which names its admin address
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The server, if the process has several
        #[arg(long, value_name = "NAME")]
        server_name: Option<ServerName>,
        /// Print rows as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the settings of a pgbouncer.ini as a configuration file; what is not taken over is printed on stderr
    Import {
        /// The file pgbouncer.ini; files that it includes are read, too
        file: PathBuf,
        /// The file with users, instead of the one that the file names
        #[arg(long, value_name = "FILE")]
        userlist: Option<PathBuf>,
        /// The database of [databases] whose server is used, instead of the first one
        #[arg(long, value_name = "NAME")]
        database: Option<String>,
        /// End with exit code 6 if a setting is not taken over
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print the completion script for a shell
    Completions { shell: Shell },
    /// Print the man page
    Man,
}

/// What was given on the command line.
#[derive(Clone)]
pub(crate) struct CommandLine {
    pub(crate) arguments: Arguments,
    matches: ArgMatches,
}

impl CommandLine {
    pub(crate) fn parse<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<Self, Error> {
        let matches = Arguments::command().try_get_matches_from(words)?;
        Ok(Self { arguments: Arguments::from_arg_matches(&matches)?, matches })
    }

    /// Reads the configuration file anew at each call.
    pub(crate) fn load(&self) -> Result<ResolvedServers, ConfigError> {
        let Arguments { config, settings, .. } = &self.arguments;
        let Some(path) = config else { return ConfigFile::from(settings.clone()).resolve() };
        let mut file = ConfigFile::read(path)?;
        if file.has_names() {
            let given = |flag: &&str| self.matches.value_source(flag) == Some(ValueSource::CommandLine);
            if let Some(flag) = ["listen", "server"].into_iter().find(given) {
                return Err(ConfigError::SeveralServers(flag));
            }
        }
        for (_, config) in &mut file.servers {
            // Fails only for matches of another command line.
            let _ = config.update_from_arg_matches(&self.matches);
        }
        if let Some((_, config)) = file.servers.first() {
            // Flags of the whole process.
            (file.admin, file.log) = (config.admin.clone(), config.log.clone());
        }
        file.resolve()
    }
}

#[cfg(test)]
mod tests;
