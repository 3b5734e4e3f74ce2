//! Failures of a SCRAM exchange.

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer violates SCRAM.
    #[error("the peer's {message} breaks SCRAM: {reason}")]
    Protocol { message: &'static str, reason: &'static str },
    /// The server refused with a SCRAM error.
    #[error("the server refused: {reason}")]
    Refused {
        /// Made printable.
        reason: String,
    },
    /// The server does not know the password, so it may be an impostor.
    #[error("the server's signature is wrong")]
    ServerSignature,
    /// The client does not know the password.
    #[error("the client's proof is wrong")]
    WrongProof,
    /// Client and server see different channels, or disagree on binding.
    #[error("the channel binding does not match")]
    BindingMismatch,
    /// The server requests more key derivation work than a client should do.
    #[error("the server requests {iterations} iterations; the limit is {limit}")]
    IterationsTooMany { iterations: u64, limit: u32 },
    /// The server requests so few iterations that an eavesdropper could find the password.
    #[error("the server requests {iterations} iterations; the minimum is {limit}")]
    IterationsTooFew { iterations: u32, limit: u32 },
    /// The keys are those of a client's proof, and the server has another verifier now.
    #[error("the server's salt or iterations are not those with which the client proved its password")]
    OtherVerifier,
    /// A text is not a verifier.
    #[error("not a SCRAM-SHA-256 verifier: {reason}")]
    InvalidVerifier { reason: &'static str },
    /// OpenSSL failed, for lack of memory or of an algorithm.
    #[error("OpenSSL failed at {operation}")]
    Crypto { operation: &'static str },
}
