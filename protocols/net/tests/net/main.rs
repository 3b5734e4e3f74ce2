//! Both drivers, blocking and readiness loop, against a scripted server on loopback.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod certificates;
mod drivers;
mod eager;
mod edges;
mod endings;
mod hosts;
mod login;
mod mongodb;
mod negotiated;
mod other_protocol;
mod phases;
mod postgres;
mod postgres_server;
mod probe;
mod refused;
mod results;
mod resumption;
mod server;
mod sources;
mod verification;
