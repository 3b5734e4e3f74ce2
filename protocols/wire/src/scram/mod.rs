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
mod error;
mod keys;
mod mechanism;
mod message;
mod server;
mod verifier;

pub use cache::KeyCache;
pub(crate) use client::Challenge;
pub use client::{ClientFinal, ClientFirst};
pub(crate) use derivation::DerivedKeys;
pub use derivation::KeyDerivation;
pub use digest::Digest;
pub use error::Error;
pub use keys::MAX_ITERATIONS;
pub use mechanism::{Binding, Mechanism};
pub use server::ServerFirst;
pub use verifier::Verifier;
