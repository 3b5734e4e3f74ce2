use serde::{Deserialize, Serialize};

use crate::{Engine, QueryLanguage};

/// A phase of a connect. Each begins where the one before it ended, so that the phases add up to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Name lookup; takes no time if the host is an address.
    Dns,
    /// `socket()` to connected.
    TcpConnect,
    /// Connected to the server's first message, in protocols where the server speaks first. In `MongoDB`'s protocol: end of
    /// the TLS handshake (if any) to the reply to `hello`.
    ServerGreeting,
    /// Building the client's TLS context; takes no time if the context is shared.
    TlsContext,
    /// Requesting TLS in the database protocol.
    TlsRequest,
    /// The TLS handshake, including certificate verification.
    TlsHandshake,
    /// Login, up to the server's OK.
    Auth,
    /// The server's OK to its message that it is ready for commands, in protocols that send both.
    Ready,
    /// The first query.
    FirstQuery,
    /// The orderly close.
    Close,
}

impl Phase {
    /// Every phase, in the order of the SQL protocols. Tables for machines always use this order.
    pub const ALL: [Self; 10] = [
        Self::Dns,
        Self::TcpConnect,
        Self::ServerGreeting,
        Self::TlsContext,
        Self::TlsRequest,
        Self::TlsHandshake,
        Self::Auth,
        Self::Ready,
        Self::FirstQuery,
        Self::Close,
    ];

    /// Every phase, in the order in which they happen with `engine`: document databases greet after the TLS handshake.
    pub fn in_order_of(engine: Engine) -> [Self; 10] {
        let mut phases = Self::ALL;
        if engine.query_language() == QueryLanguage::Documents {
            // The three TLS phases move before the greeting.
            phases[2..6].rotate_left(1);
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_databases_greet_after_the_tls_handshake() {
        let order = Phase::in_order_of(Engine::FerretDb);
        assert_eq!(order[..3], [Phase::Dns, Phase::TcpConnect, Phase::TlsContext]);
        assert_eq!(order[4..7], [Phase::TlsHandshake, Phase::ServerGreeting, Phase::Auth]);
        assert_eq!(Phase::in_order_of(Engine::MySql), Phase::ALL);
    }
}
