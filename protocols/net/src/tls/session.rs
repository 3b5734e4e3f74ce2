//! The TLS session of one connection, by either library.

use std::io;

use socket2::Socket;

use super::{HandshakeSize, Negotiated};
use crate::Error;
use crate::buffer::Buffer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    NeedInput,
}

/// The result of a read: bytes received and buffer space.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decrypted {
    All,
    Closed,
}

/// What the sessions of one library are made from.
pub(super) trait TlsContext: Send + Sync {
    /// A session for one connection that offers `alpn` as its only protocol.
    fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error>;
}

/// The TLS session of one connection.
pub(crate) trait TlsSession: Send {
    fn fill(&mut self, socket: &Socket) -> io::Result<Filled>;

    /// Takes bytes that were read from the socket elsewhere.
    fn feed(&mut self, bytes: &[u8]);

    fn outgoing(&mut self) -> &mut Vec<u8>;

    fn handshake(&mut self) -> Result<Handshake, Error>;

    /// Decrypts everything received.
    fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error>;

    fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error>;

    /// Sends a `close_notify` without waiting for the peer's.
    fn close_notify(&mut self);

    /// The negotiated parameters; `None` before the handshake is complete.
    fn negotiated(&self) -> Option<Negotiated>;

    /// The size of the handshake; `None` before it is complete.
    fn handshake_size(&self) -> Option<HandshakeSize>;

    fn alpn(&self) -> Option<&[u8]>;

    /// The certificate hash for channel binding (`tls-server-end-point`, RFC 5929, 4.1).
    fn server_end_point(&self) -> Result<Vec<u8>, Error>;

    /// The common name of the peer's certificate; on the server side only.
    fn peer_common_name(&self) -> Option<String> {
        None
    }
}
