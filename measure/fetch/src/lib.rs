//! Programs that the machine's distribution does not package: fetched with the user's own client, verified against a known
//! checksum or the archive's signature, and unpacked or built into the cache.
//!
//! Incomplete downloads and directories have temporary names, so that an interrupted fetch leaves no incomplete server.

//!
//! # Where to change what
//!
//! - a server, proxy or library that can be fetched: [`table`]; from Debian's archive, [`debian`]

mod archive;
mod client;
pub mod debian;
mod error;
pub mod fetchable;
mod golang;
mod job;
mod maven;
pub mod table;
mod unpack;

pub use error::FetchError;
pub use fetchable::{Fetchable, Product};
pub use table::FETCHABLE;
