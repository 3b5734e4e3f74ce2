//! Reads a server's records and handshake messages until the negotiated parameters are known.
//!
//! [`FlightObserver`] splits the bytes into records. `HandshakeMessages` gets the content of handshake
//! records, regardless of record boundaries, keeps the few bytes it needs and skips the rest.

use crate::tls::fields::{array, bytes};
use crate::tls::group::NamedGroup;
use crate::tls::server_hello::ServerHello;
use crate::tls::signature::SignatureScheme;

const RECORD_HEADER_BYTES: usize = 5;
/// The longest record in any version (RFC 5246, 6.2.3).
const MAX_RECORD_BYTES: usize = (1 << 14) + 2048;
/// `ContentType` (RFC 8446, 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;

const MESSAGE_HEADER_BYTES: usize = 4;
/// `HandshakeType` (RFC 8446, 4; RFC 5246, 7.4).
const HELLO_REQUEST: u8 = 0;
const SERVER_HELLO: u8 = 2;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
/// A post-quantum key share has 1.1 KB. A longer `ServerHello` is ignored.
const MAX_SERVER_HELLO_BYTES: usize = 16 << 10;
/// The part of a key exchange that is read (RFC 8422, 5.4): `ECCurveType`, `NamedCurve`, a public key of up to 255
/// bytes with its length, `SignatureAndHashAlgorithm`.
const MAX_KEY_EXCHANGE_BYTES: usize = 1 + 2 + 1 + 255 + 2;
const CURVE_TYPE_NAMED: u8 = 3;
const TLS_1_2: u16 = 0x0303;
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
    record: Record,
    messages: HandshakeMessages,
}

impl FlightObserver {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the server's next bytes, cut anywhere.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.finished() {
            match &mut self.record {
                Record::Header(header) => {
                    if let Some([content_type, _, _, high, low]) = header.take(&mut bytes) {
                        self.begin_record(content_type, usize::from(u16::from_be_bytes([high, low])));
                    }
                }
                Record::Body { content_type, left } => {
                    let (body, rest) = bytes.split_at(bytes.len().min(*left));
                    bytes = rest;
                    *left -= body.len();
                    if *content_type == HANDSHAKE {
                        self.messages.feed(body);
                    }
                    self.end_record_if_empty();
                }
            }
        }
    }

    /// Whether everything visible is known: the rest is encrypted, or this is not TLS.
    pub fn finished(&self) -> bool {
        self.messages.state == FlightState::Finished
    }

    /// What is known so far.
    pub fn flight(&self) -> Flight {
        self.messages.flight
    }

    fn begin_record(&mut self, content_type: u8, length: usize) {
        // TLS 1.3 sends one after a HelloRetryRequest for compatibility with middleboxes (RFC 8446, D.4).
        let for_middleboxes = content_type == CHANGE_CIPHER_SPEC && self.messages.flight.hello_retry;
        if length > MAX_RECORD_BYTES || !(content_type == HANDSHAKE || for_middleboxes) {
            self.messages.state = FlightState::Finished;
            return;
        }
        self.record = Record::Body { content_type, left: length };
        self.end_record_if_empty();
    }

    fn end_record_if_empty(&mut self) {
        if matches!(self.record, Record::Body { left: 0, .. }) {
            self.record = Record::default();
        }
    }
}

#[derive(Debug, Clone)]
enum Record {
    Header(Partial<RECORD_HEADER_BYTES>),
    Body { content_type: u8, left: usize },
}

impl Default for Record {
    fn default() -> Self {
        Self::Header(Partial::default())
    }
}

/// The handshake messages, independent of records.
#[derive(Debug, Clone, Default)]
struct HandshakeMessages {
    message: HandshakeMessage,
    state: FlightState,
    flight: Flight,
}

#[derive(Debug, Clone)]
enum HandshakeMessage {
    Header(Partial<MESSAGE_HEADER_BYTES>),
    ServerHello { body: Vec<u8>, length: usize },
    ServerKeyExchange { start: Vec<u8>, length: usize },
    Skipped { left: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FlightState {
    #[default]
    AwaitHello,
    /// Up to TLS 1.2 the group is in a separate message, after the certificates.
    AwaitKeyExchange,
    Finished,
}

impl HandshakeMessages {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.state != FlightState::Finished {
            match &mut self.message {
                HandshakeMessage::Header(header) => {
                    if let Some([kind, high, middle, low]) = header.take(&mut bytes) {
                        self.begin(kind, u32::from_be_bytes([0, high, middle, low]) as usize);
                    }
                }
                HandshakeMessage::ServerHello { body, length } => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*length - body.len()));
                    bytes = rest;
                    body.extend_from_slice(now);
                    if body.len() == *length {
                        let hello = ServerHello::parse(body);
                        self.message = HandshakeMessage::default();
                        self.hello(hello);
                    }
                }
                HandshakeMessage::ServerKeyExchange { start, length } => {
                    let (now, rest) = bytes.split_at(bytes.len().min(*length - start.len()));
                    bytes = rest;
                    start.extend_from_slice(now);
                    if start.len() == *length {
                        (self.flight.group, self.flight.signature) = key_exchange(start, self.flight.version);
                        self.state = FlightState::Finished;
                    }
                }
                HandshakeMessage::Skipped { left } => {
                    let skipped = bytes.len().min(*left);
                    bytes = &bytes[skipped..];
                    *left -= skipped;
                    if *left == 0 {
                        self.message = HandshakeMessage::default();
                    }
                }
            }
        }
    }

    fn begin(&mut self, kind: u8, length: usize) {
        self.message = match (self.state, kind) {
            (FlightState::AwaitHello, SERVER_HELLO) if (1..=MAX_SERVER_HELLO_BYTES).contains(&length) => {
                HandshakeMessage::ServerHello { body: Vec::new(), length }
            }
            (FlightState::AwaitKeyExchange, SERVER_KEY_EXCHANGE) if length > 0 => {
                HandshakeMessage::ServerKeyExchange {
                    start: Vec::new(),
                    length: length.min(MAX_KEY_EXCHANGE_BYTES),
                }
            }
            // A HelloRequest may come first (RFC 5246, 7.4.1.1).
            (FlightState::AwaitHello, HELLO_REQUEST) if length == 0 => HandshakeMessage::default(),
            (FlightState::AwaitKeyExchange, kind) if kind != SERVER_HELLO_DONE => match length {
                0 => HandshakeMessage::default(),
                left => HandshakeMessage::Skipped { left },
            },
            _ => {
                self.state = FlightState::Finished;
                return;
            }
        };
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
        self.state = match hello.is_retry {
            true if !again => FlightState::AwaitHello,
            false if hello.version < TLS_1_3 && names_curve(hello.cipher_suite) => {
                FlightState::AwaitKeyExchange
            }
            _ => FlightState::Finished,
        };
    }
}

/// The group and, in TLS 1.2, the signature scheme of a key exchange on a named curve.
fn key_exchange(mut start: &[u8], version: Option<u16>) -> (Option<NamedGroup>, Option<SignatureScheme>) {
    let start = &mut start;
    let Some([CURVE_TYPE_NAMED, high, low]) = array(start) else { return (None, None) };
    let scheme = |start: &mut &[u8]| {
        let [key_bytes] = array(start)?;
        bytes(start, usize::from(key_bytes))?;
        Some(SignatureScheme(u16::from_be_bytes(array(start)?)))
    };
    // Older versions sign without naming a scheme.
    let scheme = if version == Some(TLS_1_2) { scheme(start) } else { None };
    (Some(NamedGroup(u16::from_be_bytes([high, low]))), scheme)
}

impl Default for HandshakeMessage {
    fn default() -> Self {
        Self::Header(Partial::default())
    }
}

/// Whether a suite up to TLS 1.2 may have a `ServerKeyExchange` that starts with a curve (IANA "TLS Cipher
/// Suites": those of `ECDH` and `ECDHE` without a pre-shared key). Finite-field parameters could be mistaken
/// for one.
fn names_curve(suite: u16) -> bool {
    matches!(
        suite,
        0xc001..=0xc019       // RC4, 3DES, AES-CBC-SHA
            | 0xc023..=0xc032 // AES with SHA-2, AES-GCM
            | 0xc048..=0xc04f // ARIA-CBC
            | 0xc05c..=0xc063 // ARIA-GCM
            | 0xc072..=0xc079 // Camellia-CBC
            | 0xc086..=0xc08d // Camellia-GCM
            | 0xc0ac..=0xc0af // AES-CCM
            | 0xcc13 | 0xcc14 // ChaCha20-Poly1305, draft
            | 0xcca8 | 0xcca9 // ChaCha20-Poly1305
    )
}

/// Collects `N` bytes from portions.
#[derive(Debug, Clone)]
struct Partial<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Partial<N> {
    /// Takes missing bytes from the front of `input`. Returns the bytes once all are present.
    fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let (now, rest) = input.split_at(input.len().min(N - self.filled));
        *input = rest;
        self.bytes[self.filled..self.filled + now.len()].copy_from_slice(now);
        self.filled += now.len();
        (self.filled == N).then_some(self.bytes)
    }
}

impl<const N: usize> Default for Partial<N> {
    fn default() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }
}
