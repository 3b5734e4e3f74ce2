//! The inputs of a server's configuration; each engine writes them in its own format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_model::SecurityLevel;

use crate::at_rest::native::NativeKeys;
use crate::at_rest::preload::Preload;
use crate::servers::build::Build;
use crate::workspace::Workspace;

/// File names in a directory of TLS files.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const CLIENT_CA_FILE: &str = "client-ca.pem";
pub(crate) const CERTIFICATE_FILE: &str = "certificate.pem";
pub(crate) const KEY_FILE: &str = "key.pem";
/// Certificate and key in one file, for MongoDB.
pub(crate) const COMBINED_FILE: &str = "certificate-and-key.pem";

/// The port in the socket name of a server that does not listen for TCP.
const NO_PORT: u16 = 5432;

pub(crate) struct Config<'a> {
    pub(crate) build: &'a Build,
    pub(crate) data: &'a Path,
    /// For sockets and temporary files.
    pub(crate) run: &'a Path,
    pub(crate) network: Network,
    /// MariaDB and MySQL: statements that create the first accounts. PostgreSQL: the access rules. FerretDB: the first
    /// account's password, if the account does not exist yet.
    pub(crate) access: Option<&'a Path>,
    /// The OpenSSL configuration that replaces the system's.
    pub(crate) openssl: Option<&'a Path>,
    /// Whether obsolete TLS versions are accepted.
    pub(crate) strength: SecurityLevel,
    /// For temporary files.
    pub(crate) temporary: &'a Path,
    /// Keys and plugins for encryption at rest by the server itself.
    pub(crate) native: Option<NativeKeys<'a>>,
    /// The preloaded library that encrypts the server's files.
    pub(crate) preload: Option<&'a Preload>,
}

/// The address that a server listens on for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Loopback,
    /// All addresses of a private network namespace, which only the ends of a link can reach.
    Everywhere,
}

impl ListenAddress {
    /// For the servers of a workspace.
    pub(crate) fn of(workspace: &Workspace) -> Self {
        if workspace.network.is_some() { Self::Everywhere } else { Self::Loopback }
    }

    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Loopback => "127.0.0.1",
            Self::Everywhere => "0.0.0.0",
        }
    }
}

/// How a server listens, in addition to its Unix socket.
pub(crate) enum Network {
    SocketOnly,
    Tcp {
        listen: ListenAddress,
        ports: ListenPorts,
        /// Directory of the server certificate and its key.
        tls: PathBuf,
        client_ca: PathBuf,
        requirements: ClientRequirements,
        /// Settings that the user chose; they replace the lab's own.
        settings: BTreeMap<String, String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenPorts {
    pub(crate) plain: u16,
    /// Equal to `plain` for most engines.
    pub(crate) tls: u16,
}

/// What a server requires of all clients, independent of their account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientRequirements {
    pub(crate) certificate: CertificateRequest,
    pub(crate) access: AccessControl,
}

/// Whether the server requests a client certificate in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CertificateRequest {
    Sent,
    #[default]
    Omitted,
}

/// Whether a document database requires a login: it has no accounts without a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessControl {
    #[default]
    Accounts,
    Disabled,
}

impl Config<'_> {
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let openssl = self.openssl.map(|file| ("OPENSSL_CONF".to_owned(), file.display().to_string()));
        let preload = self.preload.map(Preload::environment).unwrap_or_default();
        openssl.into_iter().chain(preload).collect()
    }

    /// The TCP port; a placeholder if there is none.
    pub(crate) fn port(&self) -> u16 {
        match self.network {
            Network::SocketOnly => NO_PORT,
            Network::Tcp { ports, .. } => ports.plain,
        }
    }

    /// Settings that the user chose.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&String, &String)> {
        let settings = match &self.network {
            Network::SocketOnly => None,
            Network::Tcp { settings, .. } => Some(settings),
        };
        settings.into_iter().flatten()
    }

    /// Whether the user chose a value for one of the lab's own options.
    pub(crate) fn is_set(&self, option: &str) -> bool {
        let option = option.replace('-', "_");
        self.settings().any(|(name, _)| *name == option)
    }
}
