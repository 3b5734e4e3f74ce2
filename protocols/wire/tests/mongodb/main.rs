//! The MongoDB state machines: connected in memory, on constructed bytes, and on arbitrary bytes.

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
