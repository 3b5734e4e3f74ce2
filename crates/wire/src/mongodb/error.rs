//! What can go wrong on a MongoDB connection, and whose fault it is.

use super::{Fault, TemplateError};
use crate::scram;

/// Why a machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server understood and said no, to the whole command or to a part of it. The connection awaits the next
    /// command.
    #[error("the server refused: {message} ({code_name}, code {code})")]
    Server {
        /// The number of the error, such as 11000.
        code: i32,
        /// Its name, such as `DuplicateKey`; empty where the server did not say.
        code_name: String,
        /// The server's words, made printable.
        message: String,
    },
    /// The peer sent what the protocol does not allow.
    #[error("the peer broke the MongoDB protocol in its {message}: {reason}")]
    Protocol {
        /// The message it happened in.
        message: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server knows no way to authenticate this user that is built.
    #[error("the server offers the user only {method:?}, which is not supported")]
    UnsupportedAuth {
        /// The mechanisms, made printable.
        method: String,
    },
    /// A message is compressed in a way that was not agreed on.
    #[error("the server compressed a message with compressor {compressor}, which is not supported")]
    UnsupportedCompressor {
        /// The compressor's number.
        compressor: u8,
    },
    /// The login is by certificate, which only TLS can show.
    #[error("authentication by certificate needs TLS")]
    CertificateInPlain,
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
    /// The server asks for so little work that who listens could find the password.
    #[error("the server asks for {iterations} SCRAM iterations; at least {limit} are expected")]
    IterationsTooFew {
        /// What it asks for.
        iterations: u32,
        /// [`MIN_ITERATIONS`](super::MIN_ITERATIONS).
        limit: u32,
    },
    /// A message is longer than this side takes or can send.
    #[error("a message of {length} bytes is over the limit of {limit} bytes")]
    MessageTooLarge {
        /// Its length.
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
    /// A result has more documents than came with the first answer, and the caller did not mean to ask for more. The
    /// connection awaits the next command.
    #[error("the result has more documents than one batch; ask for a larger batchSize")]
    ResultContinues,
    /// The login cannot be written in the protocol.
    #[error("the {field} is empty, too long or has a NUL")]
    InvalidLogin {
        /// Which part of the login.
        field: &'static str,
    },
    /// A command cannot be written in the protocol.
    #[error("the {field} is not UTF-8")]
    InvalidText {
        /// Which part of the command.
        field: &'static str,
    },
    /// A template was given more or fewer parameters than it has.
    #[error("{given} parameters were given for {expected}")]
    WrongParameters {
        /// How many the template has.
        expected: usize,
        /// How many there were.
        given: usize,
    },
    /// A text is no command.
    #[error("not a MongoDB command: {0}")]
    Template(#[from] TemplateError),
    /// What only SQL servers have was asked for.
    #[error("MongoDB has no prepared statements")]
    NoPreparedStatements,
    /// What only MongoDB has was asked for.
    #[error("only MongoDB takes documents")]
    NoDocuments,
    /// zlib could not do its part.
    #[error("zlib failed at {operation}")]
    Compression {
        /// What it was to do.
        operation: &'static str,
    },
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

/// `NetworkInterfaceExceededTimeLimit`: a router found no free connection to its servers in time.
const NO_CONNECTION_IN_TIME: i32 = 202;
/// `AuthenticationFailed`.
const AUTHENTICATION_FAILED: i32 = 18;

impl Error {
    /// Whether the server has no room for one more connection. `mongod` never says so: beyond
    /// `maxIncomingConnections` it closes a connection without a word. A router says it of its own connections.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Server { code: NO_CONNECTION_IN_TIME, .. })
    }

    /// Whether the server refused the login for its password, or for what it does not tell from that.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { code: AUTHENTICATION_FAILED, .. })
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Server { .. }
            | Self::UnsupportedAuth { .. }
            | Self::IterationsTooMany { .. }
            | Self::IterationsTooFew { .. } => Fault::Server,
            Self::Protocol { .. } | Self::UnsupportedCompressor { .. } | Self::ServerSignature => Fault::Peer,
            Self::CertificateInPlain
            | Self::MessageTooLarge { .. }
            | Self::ResultTooLarge { .. }
            | Self::ResultContinues
            | Self::InvalidLogin { .. }
            | Self::InvalidText { .. }
            | Self::WrongParameters { .. }
            | Self::Template(_)
            | Self::NoPreparedStatements
            | Self::NoDocuments
            | Self::Compression { .. }
            | Self::Crypto { .. }
            | Self::NotReset => Fault::Caller,
        }
    }
}

impl From<scram::Error> for Error {
    fn from(error: scram::Error) -> Self {
        let protocol = |reason| Self::Protocol { message: "SCRAM message", reason };
        match error {
            scram::Error::Protocol { reason, .. } | scram::Error::InvalidVerifier { reason } => {
                protocol(reason)
            }
            scram::Error::Refused { reason } => {
                Self::Server { code: 18, code_name: "AuthenticationFailed".to_owned(), message: reason }
            }
            scram::Error::ServerSignature => Self::ServerSignature,
            scram::Error::IterationsTooMany { iterations, limit } => {
                Self::IterationsTooMany { iterations, limit }
            }
            scram::Error::IterationsTooFew { iterations, limit } => {
                Self::IterationsTooFew { iterations, limit }
            }
            scram::Error::Crypto { operation } => Self::Crypto { operation },
            scram::Error::WrongProof => protocol("a wrong proof"),
            scram::Error::BindingMismatch => protocol("another channel binding"),
        }
    }
}
