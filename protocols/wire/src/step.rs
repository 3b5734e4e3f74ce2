//! What a connecting state machine needs from its driver.

use ciphertoll_vocabulary::Phase;

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
    /// This phase has just ended. Call again at once; `out` may have bytes to send. A machine reports
    /// [`Phase::ServerGreeting`], [`Phase::TlsRequest`], [`Phase::Auth`] and [`Phase::Ready`]; its driver times the others.
    Phase(Phase),
    /// The machine has ended. Bytes left in the input belong to the next user of the connection.
    Done,
}
