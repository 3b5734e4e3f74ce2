//! What is known of a proxy program: what it supports, how to get it, and its configuration.

use std::net::SocketAddr;
use std::path::Path;

use super::{Engine, QueryLanguage, TlsVersion};
use crate::labelled;

/// Everything that ciphertoll knows of a proxy program.
#[derive(Debug)]
pub struct ProxyDefinition {
    /// The name of its level and of its file.
    pub label: &'static str,
    /// As in a sentence: `PgBouncer`.
    pub display_name: &'static str,
    pub protocol: ProxyProtocol,
    /// A version other than TLS 1.3 that it can be limited to for connections to the server.
    pub older_version: Option<TlsVersion>,
    /// Why it is never advised, if so.
    pub insufficient: Option<&'static str>,
    pub source: ProxySource,
    /// What it needs to start; absent for the sidecar, which takes arguments.
    pub configure: Option<fn(&ProxySite<'_>) -> ProxyConfiguration>,
}

labelled! {
    /// How long a client keeps a server connection.
    pub enum PoolMode {
        /// Until it disconnects; the session is then reset.
        Session = "session",
        /// Until its transaction ends.
        Transaction = "transaction",
    }
}

/// The servers that a proxy supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    Sql,
    Postgres,
    MySql,
    /// MySQL's protocol; connections to `MariaDB` are not pooled.
    MySqlOnly,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxySource {
    /// It is installed with ciphertoll.
    Own,
    /// A package of Debian and Ubuntu.
    Package(&'static str),
    /// Advice for a program that Debian or Ubuntu does not package.
    Elsewhere(&'static str),
}

/// What a proxy requires of clients on its Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAuth {
    /// None: only we can reach the socket, or the proxy checks the kernel-verified peer UID.
    Trusted,
    /// The account's password, as the protocol requires it.
    Password,
}

/// Where clients connect.
#[derive(Clone, Copy, Debug)]
pub enum ProxyListen<'a> {
    Unix(&'a Path),
    Tcp(SocketAddr),
}

/// What a proxy is started for.
#[derive(Clone, Copy, Debug)]
pub struct ProxySite<'a> {
    pub program: &'a Path,
    /// For configuration files.
    pub directory: &'a Path,
    /// The proxy's own directory, for sockets.
    pub run: &'a Path,
    pub listen: ProxyListen<'a>,
    pub mode: PoolMode,
    /// The TLS version of connections to the server.
    pub version: TlsVersion,
    /// The server's address as seen by the proxy.
    pub upstream: SocketAddr,
    pub admission: SocketAuth,
    /// The account of clients, and of the proxy's server login.
    pub user: &'a str,
    /// The lab's passwords are hexadecimal, so configuration files need no escaping.
    pub password: &'a str,
    pub database: &'a str,
    /// The CA of the server's certificate.
    pub authority: &'a Path,
    /// Maximum number of server connections.
    pub pool_size: u32,
    /// Maximum number of clients.
    pub max_clients: u32,
    /// A password for the proxy's own interfaces.
    pub admin_password: &'a str,
}

/// Private files in [`ProxySite::directory`], and the arguments of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfiguration {
    pub files: Vec<(&'static str, String)>,
    pub arguments: Vec<String>,
}

impl ProxySite<'_> {
    /// The path of a configuration file, as text.
    pub(super) fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl ProxyProtocol {
    pub(super) fn supports(self, engine: Engine) -> bool {
        match self {
            Self::Sql => engine.query_language() != QueryLanguage::Documents,
            Self::Postgres => engine == Engine::Postgres,
            Self::MySql => engine.is_mysql_family(),
            Self::MySqlOnly => engine == Engine::MySql,
        }
    }
}
