//! The CPU time of one signature and of one key agreement on this machine, with the OpenSSL that the client
//! uses.
//!
//! These are the big-number computations of a TLS handshake; the rest of a handshake is messages, wake-ups
//! and ciphers. Each operation is timed alone, by the thread's CPU clock, in several short rounds. The result
//! is the median of the rounds' times per operation, and is valid for this machine only.

mod agreement;
mod rounds;
mod signature;

use openssl::error::ErrorStack;

pub(crate) use agreement::key_exchange;
pub(crate) use signature::signature;

/// Why an operation could not be timed.
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
