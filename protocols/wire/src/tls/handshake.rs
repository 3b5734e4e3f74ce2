//! What an observer of both directions of a connection knows.

use std::sync::Arc;

use crate::side::ConnectionSide;
use crate::tls::alert::Alert;
use crate::tls::client_offer::ClientOffer;
use crate::tls::key_exchange::KeyExchangeGroup;
use crate::tls::signature::SignatureScheme;

/// What is known so far. A value that was not captured is as one that is not known yet. Large values may be shared by
/// connections that have the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsHandshake {
    pub stage: Stage,
    /// The first ClientHello, not the one that answers a HelloRetryRequest.
    pub offer: Option<Arc<ClientOffer>>,
    pub selected: Option<Selected>,
    /// In TLS 1.3 the server accepted a pre-shared key, with or without a key exchange; up to TLS 1.2 it changed the
    /// cipher without a full handshake.
    pub resumed: Option<bool>,
    pub client_certificate: ClientAuthentication,
    /// The DER of the server's chain, up to TLS 1.2: at most ten certificates and 64 KiB.
    pub certificates: Arc<[Vec<u8>]>,
    /// The first fatal alert that is not encrypted.
    pub alert: Option<Alert>,
    /// The client ended a TLS 1.3 handshake by an encrypted alert, recognized by its length. Its description is hidden.
    /// rustls sends such alerts; OpenSSL does not encrypt an alert before the client's Finished.
    pub has_hidden_alert: bool,
    /// The client sent data before the ServerHello (0-RTT). What remains of it after the ServerHello looks like the
    /// end of the handshake: [`Stage::Established`] may be too early.
    pub has_early_data: bool,
    pub client_capture: Capture,
    pub server_capture: Capture,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Stage {
    #[default]
    AwaitClientHello,
    AwaitServerHello,
    Handshake,
    /// Application data flows. Up to TLS 1.2 since its first record. In TLS 1.3 since the client's first encrypted
    /// record, which is the earliest moment: that record has the client's Finished, or its certificate, with Finished
    /// in a later record.
    Established,
    /// The bytes are not those of a TLS connection from its beginning. They are ignored from here on.
    NotTls,
}

/// What the server selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// Such as `0x0304` for TLS 1.3.
    pub version: u16,
    pub cipher_suite: u16,
    /// `None` without (EC)DHE, for a resumed session up to TLS 1.2, and for DHE or ECDHE with a pre-shared key up to
    /// 1.2.
    pub group: Option<KeyExchangeGroup>,
    /// The server's signature; visible only in TLS 1.2.
    pub signature: Option<SignatureScheme>,
    /// The server sent a HelloRetryRequest, which costs a round trip.
    pub hello_retry: bool,
}

/// Whether the client authenticates itself by a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ClientAuthentication {
    #[default]
    Unknown,
    /// Not in this handshake: the certificate of a resumed session is the one of its first handshake.
    NotRequested,
    /// The server requested a certificate. The client has not answered yet.
    Requested,
    /// The client answered without a certificate.
    Withheld,
    Sent,
    /// Encrypted: TLS 1.3.
    Hidden,
}

/// How much of a direction was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Capture {
    /// All that is needed.
    #[default]
    Whole,
    /// A part of a handshake message is missing. Its values are not known; records are counted.
    Incomplete,
    /// The header of a record, or the ServerHello, is missing: nothing that follows in this direction is known.
    Lost,
}

/// Records of application data since [`Stage::Established`], which includes, in TLS 1.3, all that is encrypted: session
/// tickets, key updates, alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordTally {
    pub records: u64,
    /// Of the encrypted content, without the records' headers.
    pub bytes: u64,
}

/// What happens in the order of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsEvent {
    /// The end of a ClientHello; there is a second one after a HelloRetryRequest.
    ClientHello,
    /// The end of a HelloRetryRequest.
    HelloRetry,
    /// The end of a ServerHello that is not a HelloRetryRequest.
    ServerHello,
    /// The header of a peer's Finished. In TLS 1.3 only the client's is visible: [`Stage::Established`] says how well.
    Finished(ConnectionSide),
    /// The header of a record of application data, as [`RecordTally`] counts them.
    ApplicationData { from: ConnectionSide, bytes: u16 },
}
