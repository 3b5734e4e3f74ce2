//! What a protocol machine asks of its caller.

use ciphertoll_vocabulary::Phase;

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
    /// This phase just ended; call again at once. `out` may have bytes to send. A machine reports
    /// [`Phase::ServerGreeting`], [`Phase::TlsRequest`], [`Phase::Auth`] and [`Phase::Ready`]; its caller times the others.
    Phase(Phase),
    /// The machine has ended; bytes left in the input belong to whoever uses the connection next.
    Done,
}
