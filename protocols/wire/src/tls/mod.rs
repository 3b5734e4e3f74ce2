//! Passive observation of TLS: what the client's hello and the server's first flight reveal before it is encrypted.

mod client_hello;
mod fields;
mod group;
mod observer;
mod server_hello;
mod signature;

pub use client_hello::{KeyShare, key_shares};
pub use group::NamedGroup;
pub use observer::{Flight, FlightObserver};
pub use signature::SignatureScheme;
