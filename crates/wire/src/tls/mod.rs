//! A passive look at TLS: what a server's first flight tells before it is encrypted.

mod group;
mod observer;
mod server_hello;

pub use group::NamedGroup;
pub use observer::{Flight, FlightObserver};
