//! Client credentials and server certificates: the two parts of a path that a server is prepared for.

use std::path::PathBuf;

use ciphertoll_model::{Auth, ChainLength, ClientCertificate, Identity, ServerKey, TlsPath};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub auth: Auth,
    /// Whether the client presents a certificate in addition.
    pub client_certificate: ClientCertificate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAccount {
    pub user: String,
    /// A private file (0600) whose whole content is the password; empty if the account has none.
    pub password_file: PathBuf,
    /// The client certificate, if the account requires one.
    pub identity: Option<Identity>,
}

impl Credentials {
    pub(crate) fn require_certificate(self) -> bool {
        self.auth == Auth::Cert || self.client_certificate == ClientCertificate::Demanded
    }

    /// Distinguishes the account that requires a client certificate from the one that does not.
    pub(crate) fn account_suffix(self) -> &'static str {
        match self.client_certificate {
            ClientCertificate::None => "",
            ClientCertificate::Demanded => "_mtls",
        }
    }
}

impl From<Auth> for Credentials {
    fn from(auth: Auth) -> Self {
        Self { auth, client_certificate: ClientCertificate::None }
    }
}

/// The kind of a server certificate and the length of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCertificate {
    pub key: ServerKey,
    /// Number of certificates sent, including the server's own; the server's own choice if absent.
    pub chain: Option<ChainLength>,
}

impl ServerCertificate {
    /// Name of the directory of this certificate.
    pub(crate) fn label(self) -> String {
        match self.chain {
            None => self.key.label().to_owned(),
            Some(length) => format!("{}-chain{length}", self.key),
        }
    }

    /// Number of certificates between the server's and the authority's.
    pub(crate) fn intermediates(self) -> u8 {
        self.chain.map_or(0, |length| length.count() - 1)
    }
}

impl From<ServerKey> for ServerCertificate {
    fn from(key: ServerKey) -> Self {
        Self { key, chain: None }
    }
}

impl From<TlsPath> for ServerCertificate {
    fn from(path: TlsPath) -> Self {
        Self { key: path.key.unwrap_or(ServerKey::P256), chain: path.chain }
    }
}
