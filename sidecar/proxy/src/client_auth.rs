//! How clients authenticate, in every protocol.

use crate::refusal::Refusal;

/// How a client must authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// The kernel-verified peer UID is allowed, and that is enough.
    Granted,
    /// The kernel-verified peer UID is not allowed.
    Denied {
        uid: u32,
    },
    PasswordByUnix,
    /// Over TCP without TLS, which is not offered.
    PasswordByTcp,
    PasswordByTls,
    /// With TLS and a certificate issued to its user name.
    Certificate,
}

/// TLS on a client connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsState {
    /// Not offered.
    Off,
    /// Required and not established yet.
    Required,
    Established {
        /// The common name of the client's verified certificate, if it presented one.
        name: Option<String>,
    },
}

impl ClientAuth {
    /// The state of a connection whose client has not sent anything yet.
    pub(crate) fn initial_tls(self) -> TlsState {
        match self {
            Self::PasswordByTls | Self::Certificate => TlsState::Required,
            Self::Granted | Self::Denied { .. } | Self::PasswordByUnix | Self::PasswordByTcp => TlsState::Off,
        }
    }

    pub(crate) fn needs_password(self) -> bool {
        matches!(self, Self::PasswordByUnix | Self::PasswordByTcp | Self::PasswordByTls)
    }

    /// Refuses clients that cannot be accepted. Without passwords to check, none that needs one is accepted.
    pub(crate) fn check(self, has_passwords: bool) -> Result<(), Refusal> {
        let peer = match self {
            Self::Denied { uid } => format!("UID {uid}"),
            _ if self.needs_password() && !has_passwords => "this client".to_owned(),
            _ => return Ok(()),
        };
        Err(Refusal::new(Refusal::WHO, format!("{peer} may not use this proxy (--allow-uid)")))
    }

    /// Whether the client is authenticated as this user by other means than a password.
    pub(crate) fn is_met(self, tls: &TlsState, user: &str) -> bool {
        match (self, tls) {
            (Self::Granted, _) => true,
            (Self::Certificate, TlsState::Established { name: Some(name) }) => name == user,
            _ => false,
        }
    }
}
