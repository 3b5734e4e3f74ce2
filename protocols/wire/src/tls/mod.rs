//! Passive observation of TLS: what the client's hello and the server's first flight reveal before it is encrypted, and
//! what both directions reveal of a whole connection.

mod alert;
mod certificates;
mod client_hello;
mod client_offer;
mod extensions;
mod fields;
mod group;
mod handshake;
mod handshake_observer;
mod key_exchange;
mod messages;
mod observer;
mod partial;
mod probe_hello;
mod records;
mod server_hello;
mod signature;

pub use crate::side::ConnectionSide;
pub use alert::Alert;
pub use client_hello::{KeyShare, key_shares};
pub use client_offer::ClientOffer;
pub use group::NamedGroup;
pub use handshake::{Capture, ClientAuthentication, RecordTally, Selected, Stage, TlsEvent, TlsHandshake};
pub use handshake_observer::HandshakeObserver;
pub use key_exchange::KeyExchangeGroup;
pub use observer::{Flight, FlightObserver};
pub use probe_hello::{ProbeAnswer, ProbeHello, ProbedSelection};
pub use signature::SignatureScheme;
