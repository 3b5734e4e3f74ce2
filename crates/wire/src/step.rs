//! What a connecting state machine needs from its driver.

/// What the driver must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send what is in `out`, then call again with more input.
    NeedInput,
    /// Send what is in `out`, followed by the TLS ClientHello, in one send. Then call again with plaintext
    /// input until [`Step::StartTls`]; input left over at that point is TLS already.
    OfferTls,
    /// Send what is in `out`, run the TLS handshake, then call again with decrypted bytes only.
    StartTls,
    /// This phase has just ended. Call again at once; `out` may have bytes to send.
    Phase(Phase),
    /// The machine has ended. Bytes left in the input belong to the next user of the connection.
    Done,
}

/// The phases of a connect whose end is visible in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The server's first message has been read. Only in protocols where the server speaks first or describes
    /// itself before the client authenticates; in MongoDB this is after TLS has started.
    ServerGreeting,
    /// The TLS request has been written, or its answer read if the protocol has one.
    TlsRequest,
    /// The server has accepted the client's credentials.
    Auth,
    /// The server awaits commands, in protocols that say so separately from [`Phase::Auth`].
    Ready,
}

impl Phase {
    /// All phases in the order in which they end.
    pub const ALL: [Self; 4] = [Self::ServerGreeting, Self::TlsRequest, Self::Auth, Self::Ready];

    /// The stable name from which metric names are made.
    pub fn label(self) -> &'static str {
        match self {
            Self::ServerGreeting => "server_greeting",
            Self::TlsRequest => "tls_request",
            Self::Auth => "auth",
            Self::Ready => "ready",
        }
    }
}
