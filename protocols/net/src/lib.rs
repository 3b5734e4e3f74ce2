//! Connections to a server: sockets, TLS, the phase-timed connect, and two drivers of the protocol machines in `wire`:
//! a blocking client ([`blocking`]) and a readiness loop ([`Reactor`]).
//!
//! [`Channel`] is a socket with or without TLS and its buffers; [`Connecting`] takes a channel from `socket()` to the
//! completed login and times each [`Phase`].
//!
//! `wire` knows messages, `net` knows sockets. A state machine of `wire` is stepped with the available bytes, and returns
//! what it needs next: input, TLS, or that a phase has ended. `net::Channel` is a socket, optionally a TLS session, and
//! buffers; TLS works on memory, so that one `recv` takes a whole record. Two drivers run the same machines: a blocking
//! one (`net::blocking`, control connections) and an edge-triggered readiness loop (`net::Reactor`). Each moment of a
//! connect belongs to exactly one phase, so phases add up.

mod accepting;
pub mod blocking;
mod buffer;
mod channel;
mod connecting;
mod documents;
mod error;
mod listener;
mod opening;
mod phase;
mod probe;
mod reactor;
mod readiness;
mod resolve;
mod silence;
mod socket;
pub mod tls;

pub use accepting::Accepted;
pub use channel::{Channel, Received, Sent, SpareBuffers};
pub use ciphertoll_vocabulary::{AddressFamily, Phase};
pub use connecting::{ConnectProgress, Connected, Connecting, ContextSource, Dialer};
pub use error::{Error, Fault, Instead};
pub use listener::{Listener, Peer};
pub use phase::{PhaseTimes, Stopwatch};
pub use probe::{AcceptedTls, MAX_PROBE_CONNECTIONS, ProbePart, ProbeTarget, Probed, probe};
pub use reactor::{Reactor, Ready, Trigger, WakeHandle, WatchedEvents};
pub use readiness::Readiness;
pub use socket::{Address, SourceAddresses, Transport};
