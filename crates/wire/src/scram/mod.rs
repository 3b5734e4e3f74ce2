//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), and SCRAM-SHA-1 for MongoDB. Each side proves
//! that it knows the password, or what was derived from it, without sending it.
//!
//! - [`ClientFirst`] is the client's first message. Its answer to the server is a [`ClientFinal`], which
//!   verifies the server's signature.
//! - [`ServerFirst`] is the server side; it has a [`Verifier`] in place of the password.
//!
//! **`SASLprep`.** Passwords are used as they are. For ASCII that is what RFC 4013 requires, except that
//! control characters are not refused. Other text would have to be normalized to NFKC first, which is not
//! done here. `libpq` normalizes if it can. A password whose NFKC form differs (a ligature, a letter with a
//! separate accent) can log in only if the server's verifier was made from the same bytes.

mod cache;
mod client;
mod derivation;
mod digest;
mod keys;
mod message;
mod server;
mod verifier;

pub use cache::KeyCache;
pub(crate) use client::Challenge;
pub use client::{ClientFinal, ClientFirst};
pub(crate) use derivation::DerivedKeys;
pub use derivation::KeyDerivation;
pub use digest::Digest;
pub use server::ServerFirst;
pub use verifier::Verifier;

/// The most iterations that a client accepts: seconds of work. Servers use 4096 by default.
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// The mechanisms of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    Sha256,
    Sha256Plus,
}

impl Mechanism {
    /// The name in SASL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Sha256, Self::Sha256Plus].into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }
}

/// The channel binding of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding<'a> {
    None,
    /// The client supports channel binding, but the server does not offer it. The client says so, which
    /// reveals an attacker who removed the offer.
    NotOffered,
    /// `tls-server-end-point` (RFC 5929): a hash of the server's certificate.
    ServerEndPoint(&'a [u8]),
}

impl Binding<'_> {
    pub fn mechanism(self) -> Mechanism {
        match self {
            Self::None | Self::NotOffered => Mechanism::Sha256,
            Self::ServerEndPoint(_) => Mechanism::Sha256Plus,
        }
    }
}

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer violates SCRAM.
    #[error("the peer's {message} breaks SCRAM: {reason}")]
    Protocol {
        message: &'static str,
        reason: &'static str,
    },
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
    IterationsTooMany {
        iterations: u64,
        limit: u32,
    },
    /// The server requests so few iterations that an eavesdropper could find the password.
    #[error("the server requests {iterations} iterations; the minimum is {limit}")]
    IterationsTooFew {
        iterations: u32,
        limit: u32,
    },
    /// A text is not a verifier.
    #[error("not a SCRAM-SHA-256 verifier: {reason}")]
    InvalidVerifier {
        reason: &'static str,
    },
    /// OpenSSL failed, for lack of memory or of an algorithm.
    #[error("OpenSSL failed at {operation}")]
    Crypto {
        operation: &'static str,
    },
}
