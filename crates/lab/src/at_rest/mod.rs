//! Encryption at rest: what a server is told so that it encrypts its own files, what lies under those of one that does
//! not, and the proof that what was written cannot be read there.

mod gocryptfs;
mod native;
mod proof;

pub(crate) use gocryptfs::{Layer, Sites};
pub(crate) use native::{Native, find_plugins, make_keys, options, unencrypted, wait_until_encrypted};
pub use proof::Proof;
pub(crate) use proof::prove;
