//! What a client shows of itself, and what it meets with TLS: the halves of a path that the server must be made ready for.

use ciphertoll_model::{Auth, ChainLength, ClientCertificate, ServerKey, TlsPath};

/// What a client proves who it is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// How it logs in.
    pub auth: Auth,
    /// Whether it shows a certificate beside.
    pub client_certificate: ClientCertificate,
}

impl Credentials {
    /// Whether the client shows a certificate, and nobody gets in without.
    pub(crate) fn need_a_certificate(self) -> bool {
        self.auth == Auth::Cert || self.client_certificate == ClientCertificate::Demanded
    }

    /// Tells the account that demands a certificate beside its authentication from the one that does not.
    pub(crate) fn account_suffix(self) -> &'static str {
        match self.client_certificate {
            ClientCertificate::None => "",
            ClientCertificate::Demanded => "_mtls",
        }
    }
}

impl From<Auth> for Credentials {
    /// No certificate but where that is the authentication.
    fn from(auth: Auth) -> Self {
        Self { auth, client_certificate: ClientCertificate::None }
    }
}

/// A server's certificate and those that it sends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Its key.
    pub key: ServerKey,
    /// How many are sent, itself included; where absent, itself and whatever the server finds by itself.
    pub chain: Option<ChainLength>,
}

impl ServerCertificate {
    /// A directory's name.
    pub(crate) fn label(self) -> String {
        match self.chain {
            None => self.key.label().to_owned(),
            Some(length) => format!("{}-chain{length}", self.key),
        }
    }

    /// How many certificates stand between it and the authority.
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
