//! Reads a server's records and handshake messages until the negotiated parameters are known.
//!
//! [`FlightObserver`] keeps the few bytes that it needs and skips the rest.

use crate::tls::group::NamedGroup;
use crate::tls::key_exchange::{KeyExchangeGroup, KeyExchangeParameters, MAX_CURVE_EXCHANGE_BYTES};
use crate::tls::messages::{
    HELLO_REQUEST, Message, MessageReader, SERVER_HELLO, SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE,
};
use crate::tls::records::{
    CHANGE_CIPHER_SPEC, HANDSHAKE, MAX_RECORD_BYTES, Portion, RecordHeader, RecordReader,
};
use crate::tls::server_hello::{MAX_SERVER_HELLO_BYTES, ServerHello};
use crate::tls::signature::SignatureScheme;

const TLS_1_3: u16 = 0x0304;

/// The negotiated parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flight {
    /// The server sent a HelloRetryRequest, which costs a round trip.
    pub hello_retry: bool,
    /// The key exchange group; `None` without (EC)DHE, or for a resumed TLS 1.2 session.
    pub group: Option<NamedGroup>,
    /// Such as `0x0304` for TLS 1.3.
    pub version: Option<u16>,
    pub cipher_suite: Option<u16>,
    /// The server's signature; visible only in TLS 1.2, which does not encrypt it.
    pub signature: Option<SignatureScheme>,
}

/// Observes a TLS server's first bytes without changing, delaying or refusing them.
#[derive(Debug, Clone, Default)]
pub struct FlightObserver {
    records: RecordReader,
    messages: MessageReader,
    state: FlightState,
    flight: Flight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FlightState {
    #[default]
    AwaitHello,
    /// Up to TLS 1.2 the group is in a separate message, after the certificates.
    AwaitKeyExchange,
    Finished,
}

impl FlightState {
    /// The part of a message that is read.
    fn wanted(self, kind: u8, length: usize) -> usize {
        match (self, kind) {
            (Self::AwaitHello, SERVER_HELLO) if length <= MAX_SERVER_HELLO_BYTES => length,
            (Self::AwaitKeyExchange, SERVER_KEY_EXCHANGE) => MAX_CURVE_EXCHANGE_BYTES,
            _ => 0,
        }
    }
}

impl FlightObserver {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the server's next bytes, cut anywhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !self.finished()
            && let Some(portion) = self.records.next(&mut bytes)
        {
            match portion {
                Portion::Header(header) => self.begin_record(header),
                Portion::Body(HANDSHAKE, body) => self.read_messages(body),
                Portion::Body(..) => {}
            }
        }
    }

    /// Whether everything visible is known: the rest is encrypted, or this is not TLS.
    pub fn finished(&self) -> bool {
        self.state == FlightState::Finished
    }

    /// What is known so far.
    pub fn flight(&self) -> Flight {
        self.flight
    }

    fn begin_record(&mut self, header: RecordHeader) {
        // TLS 1.3 sends one after a HelloRetryRequest for compatibility with middleboxes (RFC 8446, D.4).
        let for_middleboxes = header.content_type == CHANGE_CIPHER_SPEC && self.flight.hello_retry;
        if header.bytes > MAX_RECORD_BYTES || !(header.content_type == HANDSHAKE || for_middleboxes) {
            self.state = FlightState::Finished;
        }
    }

    fn read_messages(&mut self, mut body: &[u8]) {
        while !self.finished()
            && let Some(message) =
                self.messages.next(&mut body, |kind, length| self.state.wanted(kind, length))
        {
            self.message(&message);
        }
    }

    fn message(&mut self, message: &Message) {
        let start = message.start.as_deref().unwrap_or_default();
        match (self.state, message.kind) {
            (FlightState::AwaitHello, SERVER_HELLO) => self.hello(ServerHello::parse(start)),
            (FlightState::AwaitKeyExchange, SERVER_KEY_EXCHANGE) if message.length > 0 => {
                self.key_exchange(start);
            }
            // A HelloRequest may come first (RFC 5246, 7.4.1.1).
            (FlightState::AwaitHello, HELLO_REQUEST) if message.length == 0 => {}
            (FlightState::AwaitKeyExchange, kind) if kind != SERVER_HELLO_DONE => {}
            _ => self.state = FlightState::Finished,
        }
    }

    fn hello(&mut self, hello: Option<ServerHello>) {
        let Some(hello) = hello else {
            self.state = FlightState::Finished;
            return;
        };
        // A second retry is not allowed (RFC 8446, 4.1.4).
        let again = self.flight.hello_retry;
        self.flight = Flight {
            hello_retry: again || hello.is_retry,
            group: hello.group,
            version: Some(hello.version),
            cipher_suite: Some(hello.cipher_suite),
            signature: None,
        };
        let on_curve = || KeyExchangeParameters::of(hello.cipher_suite) == Some(KeyExchangeParameters::Curve);
        self.state = match hello.is_retry {
            true if !again => FlightState::AwaitHello,
            false if hello.version < TLS_1_3 && on_curve() => FlightState::AwaitKeyExchange,
            _ => FlightState::Finished,
        };
    }

    fn key_exchange(&mut self, start: &[u8]) {
        let version = self.flight.version.unwrap_or_default();
        let (group, signature) = KeyExchangeParameters::Curve.read(start, version);
        self.flight.group = group.and_then(KeyExchangeGroup::named);
        self.flight.signature = signature;
        self.state = FlightState::Finished;
    }
}
