//! The MongoDB machines joined in memory, on bytes made for them, and on bytes nobody would send.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod answers;
mod arbitrary;
#[path = "../wire/chunks.rs"]
mod chunks;
mod compression;
mod documents;
mod fake_server;
mod login;
mod messages;
mod session;
mod templates;
mod topology;
