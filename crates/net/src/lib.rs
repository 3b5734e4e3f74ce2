//! Bytes to and from a server: sockets, TLS, the phase-timed connect, and the two drivers of the
//! machines in `wire` — one that blocks ([`blocking`]) and one readiness loop ([`Reactor`]).
//!
//! [`Channel`] is a socket with or without TLS in it and whole buffers around it; [`Connecting`]
//! takes a channel from `socket()` to authenticated and times each [`Phase`] on the way.

mod accepting;
pub mod blocking;
mod buffer;
mod channel;
mod connecting;
mod documents;
mod error;
mod listener;
mod phase;
mod reactor;
mod resolve;
mod socket;
pub mod tls;

pub use accepting::Accepted;
pub use ciphertoll_vocabulary::Phase;
pub use channel::{Channel, Received, Sent, Spare};
pub use connecting::{Connected, Connecting, ContextSource, Dialer, Progress};
pub use error::{Error, Fault};
pub use listener::{Listener, Peer};
pub use phase::{PhaseTimes, Stopwatch};
pub use reactor::{Bell, Reactor, Readiness, Ready, Watch};
pub use resolve::Family;
pub use socket::{Address, Socket, SourceAddresses, Transport};
