//! Why an operation could not be timed.

use openssl::error::ErrorStack;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PrimitiveError {
    /// The library does not support it, for example because a policy forbids an algorithm.
    #[error("OpenSSL cannot do {what}: {why}")]
    OpenSsl { what: &'static str, why: ErrorStack },
    #[error("OpenSSL cannot verify its own signature with {what}")]
    NotVerified { what: &'static str },
    #[error("cannot read the CPU clock of a thread: {0}")]
    NoClock(#[from] nix::Error),
    #[error("interrupted")]
    Interrupted,
}
