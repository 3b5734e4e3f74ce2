//! Passive observation of TLS: what the server's first flight reveals before it is encrypted.

mod group;
mod observer;
mod server_hello;

pub use group::NamedGroup;
pub use observer::{Flight, FlightObserver};
