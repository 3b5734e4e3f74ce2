//! Which party an error is attributed to.

/// The party that must act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The server refused, or is not configured for the request.
    Server,
    /// The peer, or something on the path, violates the protocol.
    Peer,
    /// The caller asked for something impossible.
    Caller,
}
