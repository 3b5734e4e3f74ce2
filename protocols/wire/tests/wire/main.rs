//! The MySQL state machines: connected in memory, on recorded bytes, and on arbitrary bytes.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod account;
mod answers;
mod arbitrary;
mod auth;
mod chunks;
mod fake_server;
mod large;
mod login;
mod passive;
mod passive_names;
mod pooled;
mod recorded;
mod refused_commands;
mod relayed;
mod round_trip;
mod tls_client_hello;
mod tls_flight;
mod tls_handshake;
mod tls_memory;
mod tls_recordings;
