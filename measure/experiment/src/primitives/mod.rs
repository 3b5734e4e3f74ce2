//! The CPU time of one signature and of one key agreement on this machine, with the OpenSSL that the client
//! uses.
//!
//! These are the big-number computations of a TLS handshake; the rest of a handshake is messages, wake-ups
//! and ciphers. Each operation is timed alone, by the thread's CPU clock, in several short rounds. The result
//! is the median of the rounds' times per operation, and is valid for this machine only.

mod agreement;
mod error;
pub(crate) mod events;
mod rounds;
mod signature;
