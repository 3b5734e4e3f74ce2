//! What can go wrong on a `MySQL` connection, and whose fault it is.

/// Why a machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server understood and said no.
    #[error("the server refused: {message} (error {code}, SQL state {sql_state})")]
    Server {
        /// The server's error number, such as 1045.
        code: u16,
        /// Five characters of SQL state; `HY000` where the server gave none.
        sql_state: String,
        /// The server's words, made printable.
        message: String,
    },
    /// The peer sent what the protocol does not allow.
    #[error("the peer broke the MySQL protocol in its {message}: {reason}")]
    Protocol {
        /// The message it happened in.
        message: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// TLS was asked for and the server has none; the machine never goes on in plaintext instead.
    #[error("the server does not offer TLS")]
    TlsNotOffered,
    /// The account wants a way to authenticate that is not built.
    #[error("the server asks for the authentication plugin {plugin:?}, which is not supported")]
    UnsupportedAuth {
        /// The plugin's name, made printable.
        plugin: String,
    },
    /// The account wants the clear password, and the connection is not encrypted.
    #[error("the server asks for the clear password over a connection that is not encrypted")]
    ClearPasswordRefused,
    /// The password is longer than the server's key can encrypt at once.
    #[error("the password is over the limit of {limit} bytes that the server's key sets")]
    PasswordTooLong {
        /// The key's limit.
        limit: usize,
    },
    /// The cryptographic library failed where it never should.
    #[error("cannot {doing}: the cryptographic library failed")]
    Crypto {
        /// What was to be done.
        doing: &'static str,
    },
    /// A packet is longer than this side takes or can send.
    #[error("a packet of {length} bytes is over the limit of {limit} bytes")]
    PacketTooLarge {
        /// Its payload's length; of a packet that continues, the part announced.
        length: usize,
        /// The limit it breaks.
        limit: usize,
    },
    /// A result is larger than the caller said it would take.
    #[error("the result is over the limit of {limit} bytes")]
    ResultTooLarge {
        /// The caller's limit.
        limit: usize,
    },
    /// A command that does not go through a connection which others have had and will have.
    #[error("{command} is not possible on a pooled connection")]
    NotPooled {
        /// The protocol's name for it.
        command: &'static str,
    },
    /// The login cannot be written in the protocol.
    #[error("the {field} has a NUL byte")]
    InvalidLogin {
        /// Which part of the login.
        field: &'static str,
    },
    /// A reader was stepped again after it had failed and before it was reset.
    #[error("the reader has failed before and was not reset")]
    NotReset,
}

/// Who can do something about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The server refused, or is not set up for what was asked.
    Server,
    /// The peer does not speak the protocol, or something between does not.
    Peer,
    /// The caller asked for what cannot be done.
    Caller,
}

/// `ER_CON_COUNT_ERROR`: all connections of the server are taken.
const TOO_MANY_CONNECTIONS: u16 = 1040;
/// `ER_TOO_MANY_USER_CONNECTIONS`: all connections of the user are taken.
const TOO_MANY_USER_CONNECTIONS: u16 = 1203;
/// `ER_ACCESS_DENIED_ERROR`: the user, its host or its password is wrong.
const ACCESS_DENIED: u16 = 1045;
/// `ER_USER_LIMIT_REACHED`: the user has used up one of several resources.
const USER_LIMIT_REACHED: u16 = 1226;

impl Error {
    /// Whether the server has no room for one more connection, of anybody's or of this user's.
    pub fn is_too_many_connections(&self) -> bool {
        match self {
            Self::Server { code, message, .. } => match *code {
                TOO_MANY_CONNECTIONS | TOO_MANY_USER_CONNECTIONS => true,
                // Its text names the resource, in every language: `max_user_connections`, or one for statements.
                USER_LIMIT_REACHED => message.contains("connections"),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether the server refused the login for its password, or for what it does not tell from that.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { code: ACCESS_DENIED, .. })
    }

    /// Whose fault it is.
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
