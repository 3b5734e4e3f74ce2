//! Programs that the machine's distribution does not package: fetched with the user's own client, verified against a known
//! checksum or the archive's signature, and unpacked or built into the cache.
//!
//! Incomplete downloads and directories have temporary names, so that an interrupted fetch leaves no incomplete server.

mod archive;
mod client;
pub(crate) mod debian;
pub(crate) mod fetchable;
mod golang;
mod job;
mod maven;
pub(crate) mod table;
mod unpack;
