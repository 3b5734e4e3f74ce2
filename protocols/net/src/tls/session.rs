//! The TLS session of one connection, by either library.

use std::borrow::Cow;
use std::io;

use ciphertoll_vocabulary::TlsLibrary;
use ciphertoll_wire::tls::KeyShare;
use socket2::Socket;

use super::handshake_size::HandshakeSize;
use crate::Error;
use crate::buffer::Buffer;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Negotiated {
    pub library: TlsLibrary,
    /// `tls1.3`.
    pub version: &'static str,
    pub suite: &'static str,
    /// The key exchange group; `None` if the handshake had no key exchange.
    pub group: Option<Cow<'static, str>>,
    /// The key type of the server's certificate: `p256`, `rsa2048`.
    pub key: Cow<'static, str>,
    pub resumed: bool,
    /// How many certificates the server sent; `None` if the session was resumed.
    pub chain: Option<u8>,
    /// Whether the server sent a HelloRetryRequest, which costs a round trip.
    pub hello_retry: bool,
    /// The server's signature scheme in the handshake. TLS 1.2: as the server named it; its names of ECDSA mean any
    /// curve. TLS 1.3 encrypts it; there it follows from the key, and is absent for RSA. Absent in other versions, and
    /// if the session was resumed.
    pub signature: Option<Cow<'static, str>>,
    /// The key shares of the client's first hello that the server did not select.
    pub unused_shares: Vec<KeyShare>,
}

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
