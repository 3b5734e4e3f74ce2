//! What a protocol machine asks of the one who drives it.

/// What a machine wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send what is in `out`, then call again with more input.
    NeedInput,
    /// Send what is in `out` and the client's first TLS message behind it, in one send, then call again: what comes next
    /// is plaintext still, until there is a [`Step::StartTls`]. What is left of the input then is TLS already.
    OfferTls,
    /// Send what is in `out`, run the TLS handshake, then call again with decrypted bytes only.
    StartTls,
    /// This phase just ended; call again at once. `out` may have bytes to send.
    Phase(Phase),
    /// The machine has ended; bytes left in the input belong to whoever uses the connection next.
    Done,
}

/// The phases of a connect whose end a protocol machine can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The server's first message has been read, in a protocol where the server speaks first or says what it is before
    /// the client authenticates; in MongoDB that is after TLS has started.
    ServerGreeting,
    /// The request for TLS has been written, or its answer read where the protocol has one.
    TlsRequest,
    /// The server has accepted the client's proof of who it is.
    Auth,
    /// The server has said that it awaits commands, where the protocol says so apart from [`Phase::Auth`].
    Ready,
}

impl Phase {
    /// All phases in the order in which they end.
    pub const ALL: [Self; 4] = [Self::ServerGreeting, Self::TlsRequest, Self::Auth, Self::Ready];

    /// The stable name that metrics are made of.
    pub fn label(self) -> &'static str {
        match self {
            Self::ServerGreeting => "server_greeting",
            Self::TlsRequest => "tls_request",
            Self::Auth => "auth",
            Self::Ready => "ready",
        }
    }
}
