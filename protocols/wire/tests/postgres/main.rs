//! The PostgreSQL and SCRAM state machines: connected in memory, on recorded bytes, and on arbitrary bytes.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod answers;
mod arbitrary;
#[path = "../wire/chunks.rs"]
mod chunks;
mod copy;
mod dedicated;
mod fake_server;
mod followed;
mod login;
mod lost_statements;
mod messages;
mod own_batches;
mod pipelined;
mod pooled;
mod prepared_again;
mod recorded;
mod relayed;
mod round_trip;
mod scram;
mod session;
