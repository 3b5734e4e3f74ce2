//! What can go wrong on a PostgreSQL connection, and whose fault it is.

use super::{Fault, Severity};
use crate::scram;

/// Why a machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server understood and said no.
    #[error("the server refused: {message} ({severity}, SQL state {sqlstate})")]
    Server {
        /// How bad it is. After [`Severity::Error`] the connection awaits the next command, after worse it is closed.
        severity: Severity,
        /// Five characters of SQL state, such as 28P01.
        sqlstate: String,
        /// The server's words, made printable.
        message: String,
    },
    /// The peer sent what the protocol does not allow.
    #[error("the peer broke the PostgreSQL protocol in its {message}: {reason}")]
    Protocol {
        /// The message it happened in.
        message: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A client's first message cannot have this length. Servers close the connection and say nothing.
    #[error("a start-up message cannot have {length} bytes")]
    StartupLength {
        /// The length that it says it has.
        length: usize,
    },
    /// TLS was asked for and the server has none; the machine never goes on in plaintext instead.
    #[error("the server does not offer TLS")]
    TlsNotOffered,
    /// The server answered the request for TLS with an error. Its text came in plaintext from nobody knows whom
    /// (CVE-2024-10977) and is not passed on; the server's log has it.
    #[error("the server answered the request for TLS with an error; its log may say which")]
    ErrorBeforeTls,
    /// The server wants a way to authenticate that is not built.
    #[error("the server asks for the authentication method {method:?}, which is not supported")]
    UnsupportedAuth {
        /// The method or methods, made printable.
        method: String,
    },
    /// The server wants the password itself and anybody could read it on the way.
    #[error("the server asks for the password in the clear on a connection without TLS")]
    PasswordInPlain,
    /// Channel binding was asked for and the server authenticates without.
    #[error("the server does not bind its authentication to the channel (SCRAM-SHA-256-PLUS)")]
    ChannelBindingNotOffered,
    /// Channel binding was asked for and there is nothing to bind to.
    #[error("channel binding needs TLS and a hash of the server's certificate")]
    NotBound,
    /// The server does not know the password: it is not the one it passes for.
    #[error("the server did not prove that it knows the password")]
    ServerSignature,
    /// The server asks for more work than anyone should do for it.
    #[error("the server asks for {iterations} SCRAM iterations; at most {limit} are done")]
    IterationsTooMany {
        /// What it asks for.
        iterations: u64,
        /// The most that are done.
        limit: u32,
    },
    /// A message is longer than this side takes or can send.
    #[error("a message of {length} bytes is over the limit of {limit} bytes")]
    MessageTooLarge {
        /// Its payload's length.
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
    /// The login cannot be written in the protocol.
    #[error("the {field} has a NUL byte")]
    InvalidLogin {
        /// Which part of the login.
        field: &'static str,
    },
    /// A command cannot be written in the protocol.
    #[error("the {field} has a NUL byte")]
    InvalidText {
        /// Which part of the command.
        field: &'static str,
    },
    /// A statement can have 65,535 parameters.
    #[error("{count} parameters are more than the protocol can count")]
    TooManyParams {
        /// How many there were.
        count: usize,
    },
    /// The statement is a COPY FROM STDIN, whose data the caller did not mean to send. The server still waits for it.
    #[error("the server waits for the data of a COPY")]
    CopyNotExpected,
    /// The statement was to be a COPY and is none. The connection awaits the next command.
    #[error("the statement is not the COPY that was expected")]
    NotACopy,
    /// OpenSSL could not do its part: it has no memory, or not these algorithms.
    #[error("OpenSSL failed at {operation}")]
    Crypto {
        /// What it was to do.
        operation: &'static str,
    },
    /// A machine was stepped again after it had failed and before it was reset.
    #[error("the reader has failed before and was not reset")]
    NotReset,
}

/// `too_many_connections`: of the server, the database or the role.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// `invalid_password`.
const INVALID_PASSWORD: &str = "28P01";

impl Error {
    /// Whether the server has no room for one more connection, of anybody's or of this role's.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Server { sqlstate, .. } if sqlstate == TOO_MANY_CONNECTIONS)
    }

    /// Whether the server refused the login for its password, or for what it does not tell from that.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { sqlstate, .. } if sqlstate == INVALID_PASSWORD)
    }

    /// Whose fault it is.
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
            // PostgreSQL's clients know no least number.
            scram::Error::IterationsTooFew { .. } => {
                Self::Protocol { message: "SCRAM message", reason: "too few iterations" }
            }
            scram::Error::Crypto { operation } => Self::Crypto { operation },
            scram::Error::WrongProof => Self::Protocol { message: "SCRAM message", reason: "a wrong proof" },
            scram::Error::BindingMismatch => {
                Self::Protocol { message: "SCRAM message", reason: "another channel binding" }
            }
            scram::Error::InvalidVerifier { reason } => Self::Protocol { message: "verifier", reason },
        }
    }
}
