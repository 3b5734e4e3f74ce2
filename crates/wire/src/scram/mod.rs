//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), and SCRAM-SHA-1 for MongoDB: each side proves to the other that it knows the
//! password, or what was derived from it, and neither sends it.
//!
//! - [`ClientFirst`] makes the first message, its answer is a [`ClientFinal`], which checks the server's signature.
//! - [`ServerFirst`] is the other role; it has a [`Verifier`] in place of the password.
//!
//! **`SASLprep`.** Passwords are taken as they are. For ASCII that is what RFC 4013 asks for, less its ban of control
//! characters; other text would have to be brought into Unicode's form NFKC first. `libpq` uses the bytes as they are
//! where that cannot be done, and here it is never done: a password whose NFKC form differs from what was typed (a
//! ligature, a letter and its accent apart) logs in only where the server's verifier was made from the same bytes.

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

/// The most iterations of the key derivation that a client agrees to: seconds of work. Servers use 4096 unless told.
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// Which of the two mechanisms of SHA-256 is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// Without channel binding.
    Sha256,
    /// With channel binding.
    Sha256Plus,
}

impl Mechanism {
    /// Its name in SASL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    /// The mechanism of this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Sha256, Self::Sha256Plus].into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }
}

/// What ties the exchange to the encrypted channel that it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding<'a> {
    /// Nothing.
    None,
    /// Nothing, as the server offers nothing to bind to. It is told so: one that did make an offer knows then that
    /// somebody between the two has taken it away.
    NotOffered,
    /// `tls-server-end-point` (RFC 5929): a hash of the server's certificate.
    ServerEndPoint(&'a [u8]),
}

impl Binding<'_> {
    /// The mechanism that this binding makes.
    pub fn mechanism(self) -> Mechanism {
        match self {
            Self::None | Self::NotOffered => Mechanism::Sha256,
            Self::ServerEndPoint(_) => Mechanism::Sha256Plus,
        }
    }
}

/// Why an exchange stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer sent what SCRAM does not allow.
    #[error("the peer's {message} breaks SCRAM: {reason}")]
    Protocol {
        /// The message it happened in.
        message: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The server said no in SCRAM's own words.
    #[error("the server refused: {reason}")]
    Refused {
        /// Its reason, made printable.
        reason: String,
    },
    /// The server does not know the password: it is not the one it passes for.
    #[error("the server's signature is wrong")]
    ServerSignature,
    /// The client does not know the password.
    #[error("the client's proof is wrong")]
    WrongProof,
    /// Client and server do not see the same channel, or one does not use it as the other expects.
    #[error("the channel binding does not match")]
    BindingMismatch,
    /// The server asks for more work than anyone should do for it.
    #[error("the server asks for {iterations} iterations; at most {limit} are done")]
    IterationsTooMany {
        /// What it asks for.
        iterations: u64,
        /// The most that are done.
        limit: u32,
    },
    /// The server asks for so little work that who listens could find the password.
    #[error("the server asks for {iterations} iterations; at least {limit} are expected")]
    IterationsTooFew {
        /// What it asks for.
        iterations: u32,
        /// The fewest that are taken.
        limit: u32,
    },
    /// A text is no verifier.
    #[error("not a SCRAM-SHA-256 verifier: {reason}")]
    InvalidVerifier {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// OpenSSL could not do its part: it has no memory, or not these algorithms.
    #[error("OpenSSL failed at {operation}")]
    Crypto {
        /// What it was to do.
        operation: &'static str,
    },
}
