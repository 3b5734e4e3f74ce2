use crate::{fault::Fault, postgres::codec::severity::Severity, reader::ProtocolError, scram};

/// Why a protocol machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the server refused: {message} ({severity}, SQL state {sqlstate})")]
    Server {
        /// After [`Severity::Error`] the connection awaits the next command; after a higher severity it is
        /// closed.
        severity: Severity,
        sqlstate: String,
        /// Made printable.
        message: String,
    },
    #[error("the peer broke the PostgreSQL protocol in its {message}: {reason}")]
    Protocol { message: &'static str, reason: &'static str },
    /// A client's first message cannot have this length. Servers close the connection without a reply.
    #[error("a startup message cannot have {length} bytes")]
    StartupLength {
        /// The announced length.
        length: usize,
    },
    /// TLS was required and the server does not offer it. The machine never continues in plaintext.
    #[error("the server does not offer TLS")]
    TlsNotOffered,
    /// The server answered the TLS request with an error. Its text is not shown, because it came in plaintext
    /// from an unauthenticated sender (CVE-2024-10977). The server's log has it.
    #[error("the server answered the TLS request with an error; see the server's log")]
    ErrorBeforeTls,
    /// The server requires an authentication method that is not supported.
    #[error("the server asks for the authentication method {method:?}, which is not supported")]
    UnsupportedAuth {
        /// The method or methods, made printable.
        method: String,
    },
    /// The server requests the cleartext password on an unencrypted connection.
    #[error("the server requests the cleartext password on a connection without TLS")]
    PasswordInPlain,
    /// Channel binding is required and the server authenticates without it.
    #[error("the server does not bind its authentication to the channel (SCRAM-SHA-256-PLUS)")]
    ChannelBindingNotOffered,
    /// Channel binding is required and no certificate hash is available.
    #[error("channel binding needs TLS and a hash of the server's certificate")]
    NotBound,
    /// The server does not know the password, so it may be an impostor.
    #[error("the server did not prove that it knows the password")]
    ServerSignature,
    /// The server requests more key derivation work than a client should do.
    #[error("the server requests {iterations} SCRAM iterations; the limit is {limit}")]
    IterationsTooMany { iterations: u64, limit: u32 },
    /// A message exceeds what this side accepts or can send.
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    MessageTooLarge {
        /// The payload's length.
        length: usize,
        limit: usize,
    },
    #[error("the result exceeds the limit of {limit} bytes")]
    ResultTooLarge { limit: usize },
    /// The login cannot be encoded.
    #[error("the {field} contains a NUL byte")]
    InvalidLogin { field: &'static str },
    /// A command cannot be encoded.
    #[error("the {field} contains a NUL byte")]
    InvalidText { field: &'static str },
    /// A statement has at most 65,535 parameters.
    #[error("{count} parameters exceed the protocol's limit of 65,535")]
    TooManyParams { count: usize },
    /// The statement is a COPY FROM STDIN, which the caller did not expect. The server waits for its data.
    #[error("the server waits for the data of a COPY")]
    CopyNotExpected,
    /// The statement is not the expected COPY. The connection awaits the next command.
    #[error("the statement is not the COPY that was expected")]
    NotACopy,
    /// OpenSSL failed, for lack of memory or of an algorithm.
    #[error("OpenSSL failed at {operation}")]
    Crypto { operation: &'static str },
    /// A machine was stepped again after it had failed and before it was reset.
    #[error("the reader failed earlier and was not reset")]
    NotReset,
}

/// `too_many_connections`: of the server, the database or the role.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// `invalid_password`.
const INVALID_PASSWORD: &str = "28P01";

impl Error {
    pub(crate) fn protocol(message: &'static str, reason: &'static str) -> Self {
        Self::Protocol { message, reason }
    }

    /// Whether the server has reached its limit of connections, in total or for this role.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Server { sqlstate, .. } if sqlstate == TOO_MANY_CONNECTIONS)
    }

    /// Whether the server refused the login because of its password, or for a reason that it reports in the
    /// same way.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { sqlstate, .. } if sqlstate == INVALID_PASSWORD)
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Server { .. }
            | Self::TlsNotOffered
            | Self::ErrorBeforeTls
            | Self::UnsupportedAuth { .. }
            | Self::PasswordInPlain
            | Self::ChannelBindingNotOffered
            | Self::IterationsTooMany { .. } => Fault::Server,
            Self::Protocol { .. } | Self::StartupLength { .. } | Self::ServerSignature => Fault::Peer,
            Self::NotBound
            | Self::MessageTooLarge { .. }
            | Self::ResultTooLarge { .. }
            | Self::InvalidLogin { .. }
            | Self::InvalidText { .. }
            | Self::TooManyParams { .. }
            | Self::CopyNotExpected
            | Self::NotACopy
            | Self::Crypto { .. }
            | Self::NotReset => Fault::Caller,
        }
    }
}

impl From<scram::Error> for Error {
    fn from(error: scram::Error) -> Self {
        match error {
            scram::Error::Protocol { reason, .. } => Self::Protocol { message: "SCRAM message", reason },
            scram::Error::Refused { reason } => {
                Self::Server { severity: Severity::Fatal, sqlstate: "28000".to_owned(), message: reason }
            }
            scram::Error::ServerSignature => Self::ServerSignature,
            scram::Error::IterationsTooMany { iterations, limit } => {
                Self::IterationsTooMany { iterations, limit }
            }
            // PostgreSQL clients set no minimum.
            scram::Error::IterationsTooFew { .. } => {
                Self::Protocol { message: "SCRAM message", reason: "too few iterations" }
            }
            scram::Error::Crypto { operation } => Self::Crypto { operation },
            scram::Error::WrongProof => Self::Protocol { message: "SCRAM message", reason: "a wrong proof" },
            // What the server would have said to a client with the former password.
            scram::Error::OtherVerifier => Self::Server {
                severity: Severity::Fatal,
                sqlstate: "28P01".to_owned(),
                message: "the password has been changed on the server: log in again".to_owned(),
            },
            scram::Error::BindingMismatch => {
                Self::Protocol { message: "SCRAM message", reason: "another channel binding" }
            }
            scram::Error::InvalidVerifier { reason } => Self::Protocol { message: "verifier", reason },
        }
    }
}

impl ProtocolError for Error {
    fn malformed(message: &'static str, reason: &'static str) -> Self {
        Self::protocol(message, reason)
    }
}
