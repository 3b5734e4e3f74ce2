//! What one signature and one key agreement take on this machine, with the OpenSSL that our own client uses.
//!
//! They are what a TLS handshake computes with long numbers; the rest of it is messages, wake-ups and ciphers. Each is
//! timed alone, by its thread's CPU clock, in several short rounds: the figure is the median round's time ÷ its
//! operations. Nothing of it is carried from one machine to another.

mod agreement;
mod rounds;
mod signature;

use openssl::error::ErrorStack;

pub use agreement::key_exchange;
pub use signature::signature;

/// Why a primitive has no time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library cannot do it, as where a policy forbids an algorithm. The machine's fault.
    #[error("OpenSSL cannot do {what}: {why}")]
    OpenSsl {
        /// The key or the group.
        what: &'static str,
        /// What the library says.
        why: ErrorStack,
    },
    /// It does not verify what it has signed. The machine's fault.
    #[error("OpenSSL does not verify its own signature by {what}")]
    NotVerified {
        /// The key.
        what: &'static str,
    },
    /// The thread's CPU clock cannot be read. The machine's fault.
    #[error("the CPU clock of a thread cannot be read: {0}")]
    NoClock(#[from] nix::Error),
    /// The user has had enough.
    #[error("interrupted")]
    Interrupted,
}
