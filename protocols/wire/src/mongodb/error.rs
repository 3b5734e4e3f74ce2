use crate::{fault::Fault, scram};

/// The deepest nesting accepted; servers accept about twice as much.
pub const MAX_DEPTH: usize = 100;

/// Why a protocol machine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server refused the command or a part of it. The connection awaits the next command.
    #[error("the server refused: {message} ({code_name}, code {code})")]
    Server {
        /// Such as 11000.
        code: i32,
        /// Such as `DuplicateKey`; empty if the server gave none.
        code_name: String,
        /// Made printable.
        message: String,
    },
    #[error("the peer broke the MongoDB protocol in its {message}: {reason}")]
    Protocol { message: &'static str, reason: &'static str },
    #[error("the peer broke the MongoDB protocol in its BSON document: {reason}")]
    InvalidDocument {
        /// Made printable.
        reason: String,
    },
    /// The server offers no supported authentication mechanism for this user.
    #[error("the server offers the user only {method:?}, which is not supported")]
    UnsupportedAuth {
        /// Made printable.
        method: String,
    },
    /// A message is compressed with a compressor that was not negotiated.
    #[error("the server compressed a message with compressor {compressor}, which is not supported")]
    UnsupportedCompressor { compressor: u8 },
    /// Certificate authentication without TLS.
    #[error("authentication by certificate needs TLS")]
    CertificateInPlain,
    /// The server does not know the password, so it may be an impostor.
    #[error("the server did not prove that it knows the password")]
    ServerSignature,
    /// The server requests more key derivation work than a client should do.
    #[error("the server requests {iterations} SCRAM iterations; the limit is {limit}")]
    IterationsTooMany { iterations: u64, limit: u32 },
    /// The server requests so few iterations that an eavesdropper could find the password.
    #[error("the server requests {iterations} SCRAM iterations; the minimum is {limit}")]
    IterationsTooFew {
        iterations: u32,
        /// [`MIN_ITERATIONS`](super::MIN_ITERATIONS).
        limit: u32,
    },
    /// A message exceeds what this side accepts or can send.
    #[error("a message of {length} bytes exceeds the limit of {limit} bytes")]
    MessageTooLarge { length: usize, limit: usize },
    #[error("the result exceeds the limit of {limit} bytes")]
    ResultTooLarge { limit: usize },
    /// The first reply did not have all documents of the result, and the caller does not read further
    /// batches. The connection awaits the next command.
    #[error("the result has more documents than one batch; ask for a larger batchSize")]
    ResultContinues,
    /// The login cannot be encoded.
    #[error("the {field} is empty, too long or contains a NUL byte")]
    InvalidLogin { field: &'static str },
    /// A command cannot be encoded.
    #[error("the {field} is not UTF-8")]
    InvalidText { field: &'static str },
    #[error("the command has {expected} parameters, but {given} were given")]
    WrongParameters { expected: usize, given: usize },
    #[error("not a MongoDB command: {0}")]
    Template(#[from] TemplateError),
    /// The caller requested a feature of SQL servers.
    #[error("MongoDB has no prepared statements")]
    NoPreparedStatements,
    /// The caller requested a feature of MongoDB.
    #[error("only MongoDB accepts documents")]
    NoDocuments,
    /// zlib failed.
    #[error("zlib failed at {operation}")]
    Compression { operation: &'static str },
    /// OpenSSL failed, for lack of memory or of an algorithm.
    #[error("OpenSSL failed at {operation}")]
    Crypto { operation: &'static str },
    /// A machine was stepped again after it had failed and before it was reset.
    #[error("the reader failed earlier and was not reset")]
    NotReset,
}

/// `NetworkInterfaceExceededTimeLimit`: a router got no connection to its shards in time.
const NO_CONNECTION_IN_TIME: i32 = 202;
/// `AuthenticationFailed`.
const AUTHENTICATION_FAILED: i32 = 18;

impl Error {
    pub(crate) fn protocol(message: &'static str, reason: &'static str) -> Self {
        Self::Protocol { message, reason }
    }

    /// Whether the server has reached its limit of connections. `mongod` does not report it: beyond
    /// `maxIncomingConnections` it closes the connection. Routers report it for their own connections.
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Server { code: NO_CONNECTION_IN_TIME, .. })
    }

    /// Whether the server refused the login because of its password, or for a reason that it reports in the
    /// same way.
    pub fn is_wrong_password(&self) -> bool {
        matches!(self, Self::Server { code: AUTHENTICATION_FAILED, .. })
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Server { .. }
            | Self::UnsupportedAuth { .. }
            | Self::IterationsTooMany { .. }
            | Self::IterationsTooFew { .. } => Fault::Server,
            Self::Protocol { .. }
            | Self::InvalidDocument { .. }
            | Self::UnsupportedCompressor { .. }
            | Self::ServerSignature => Fault::Peer,
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
            scram::Error::OtherVerifier => {
                protocol("another salt, or other iterations, than in an earlier proof")
            }
            scram::Error::BindingMismatch => protocol("another channel binding"),
        }
    }
}

/// Why a text is not a command template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is not JSON.
    #[error("{message}")]
    Json { message: String },
    #[error("it must be an object whose first key is a command's name")]
    NotACommand,
    /// The database is that of the login.
    #[error("$db is added to each command and must not be in it")]
    DatabaseGiven,
    /// A key cannot be encoded in BSON.
    #[error("a key contains a NUL byte")]
    InvalidKey,
    /// An object that looks like an extended type but is malformed.
    #[error("{form} is wrong: {reason}")]
    InvalidForm { form: &'static str, reason: &'static str },
    /// It is nested too deeply.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}
