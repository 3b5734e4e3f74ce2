use crate::{fault::Fault, reader::ProtocolError};

/// Why a protocol machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the server refused: {message} (error {code}, SQL state {sql_state})")]
    Server {
        code: u16,
        /// `HY000` if the server gave none.
        sql_state: String,
        /// Made printable.
        message: String,
    },
    #[error("the peer broke the MySQL protocol in its {message}: {reason}")]
    Protocol { message: &'static str, reason: &'static str },
    /// TLS was required and the server does not offer it. The machine never continues in plaintext.
    #[error("the server does not offer TLS")]
    TlsNotOffered,
    /// The account requires an authentication plugin that is not supported.
    #[error("the server asks for the authentication plugin {plugin:?}, which is not supported")]
    UnsupportedAuth {
        /// Made printable.
        plugin: String,
    },
    /// The account requires the cleartext password and the connection is not encrypted.
    #[error("the server requests the cleartext password over a connection that is not encrypted")]
    ClearPasswordRefused,
    /// The password is longer than the server's RSA key can encrypt.
    #[error("the password exceeds {limit} bytes, the limit of the server's RSA key")]
    PasswordTooLong { limit: usize },
    #[error("cannot {doing}: the cryptographic library failed")]
    Crypto { doing: &'static str },
    /// A packet exceeds what this side accepts or can send.
    #[error("a packet of {length} bytes exceeds the limit of {limit} bytes")]
    PacketTooLarge {
        /// The payload's length. For a message of several packets, the length announced so far.
        length: usize,
        limit: usize,
    },
    #[error("the result exceeds the limit of {limit} bytes")]
    ResultTooLarge { limit: usize },
    /// A command that would affect other clients of a pooled connection.
    #[error("{command} is not possible on a pooled connection")]
    NotPooled { command: &'static str },
    /// The login cannot be encoded.
    #[error("the {field} contains a NUL byte")]
    InvalidLogin { field: &'static str },
    #[error("the reader failed earlier and was not reset")]
    NotReset,
}

/// `ER_CON_COUNT_ERROR`: the server's connection limit is reached.
const TOO_MANY_CONNECTIONS: u16 = 1040;
/// `ER_TOO_MANY_USER_CONNECTIONS`: the user's connection limit is reached.
const TOO_MANY_USER_CONNECTIONS: u16 = 1203;
/// `ER_ACCESS_DENIED_ERROR`: the user, host or password is wrong.
const ACCESS_DENIED: u16 = 1045;
/// `ER_USER_LIMIT_REACHED`: the user has exceeded one of several resource limits.
const USER_LIMIT_REACHED: u16 = 1226;

impl Error {
    pub(crate) fn protocol(message: &'static str, reason: &'static str) -> Self {
        Self::Protocol { message, reason }
    }

    /// Whether the server has reached its limit of connections, in total or for this user.
    pub fn is_too_many_connections(&self) -> bool {
        match self {
            Self::Server { code, message, .. } => match *code {
                TOO_MANY_CONNECTIONS | TOO_MANY_USER_CONNECTIONS => true,
                // The message names the resource in every language: `max_user_connections`, or a limit of
                // statements.
                USER_LIMIT_REACHED => message.contains("connections"),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether the server refused the login because of its password, or for a reason that it reports in the
    /// same way.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { code: ACCESS_DENIED, .. })
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Server { .. }
            | Self::TlsNotOffered
            | Self::UnsupportedAuth { .. }
            | Self::ClearPasswordRefused => Fault::Server,
            Self::Protocol { .. } => Fault::Peer,
            Self::PasswordTooLong { .. }
            | Self::Crypto { .. }
            | Self::PacketTooLarge { .. }
            | Self::ResultTooLarge { .. }
            | Self::InvalidLogin { .. }
            | Self::NotPooled { .. }
            | Self::NotReset => Fault::Caller,
        }
    }
}

impl ProtocolError for Error {
    fn malformed(message: &'static str, reason: &'static str) -> Self {
        Self::protocol(message, reason)
    }
}
