//! Reads both directions of a TLS connection without taking part in it.

use std::sync::Arc;

use crate::side::ConnectionSide;
use crate::tls::alert::{ALERT_BYTES, Alert};
use crate::tls::certificates::{EMPTY_LIST_BYTES, MAX_CERTIFICATE_BYTES, certificates};
use crate::tls::client_offer::ClientOffer;
use crate::tls::handshake::{
    Capture, ClientAuthentication, RecordTally, Selected, Stage, TlsEvent, TlsHandshake,
};
use crate::tls::key_exchange::{KeyExchangeGroup, KeyExchangeParameters};
use crate::tls::messages::{
    CERTIFICATE, CERTIFICATE_REQUEST, CLIENT_HELLO, CLIENT_KEY_EXCHANGE, HELLO_REQUEST, Message,
    MessageReader, SERVER_HELLO, SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE,
};
use crate::tls::partial::Partial;
use crate::tls::records::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Portion, RecordHeader, RecordReader,
};
use crate::tls::server_hello::{MAX_SERVER_HELLO_BYTES, ServerHello};

const TLS_1_3: u16 = 0x0304;
/// A longer `ClientHello` is not TLS.
const MAX_CLIENT_HELLO_BYTES: usize = 64 << 10;
/// DHE with 8192 bits and a signature has 4 KB. A longer message shows no signature.
const MAX_KEY_EXCHANGE_BYTES: usize = 16 << 10;
/// Level, description, content type, and an authentication tag of 16 bytes. `Finished` is longer, with any tag.
const MAX_HIDDEN_ALERT_BYTES: u16 = 2 + 1 + 16;

/// Observes both directions of a connection from its first byte, TLS 1.0 to 1.3. Events are reported as they are found.
///
/// The order of the calls is the order of the bytes as observed. How each direction is cut makes no difference.
#[derive(Debug, Clone, Default)]
pub struct HandshakeObserver {
    client: Direction,
    server: Direction,
    has_client_hello: bool,
    has_retried: bool,
    handshake: TlsHandshake,
}

#[derive(Debug, Clone, Default)]
struct Direction {
    records: RecordReader,
    messages: MessageReader,
    /// The alert that is being read.
    alert: Option<Partial<ALERT_BYTES>>,
    is_encrypted: bool,
    has_finished: bool,
    application: RecordTally,
}

impl HandshakeObserver {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the client's next bytes, cut anywhere.
    pub fn client(&mut self, bytes: &[u8], on_event: &mut impl FnMut(TlsEvent)) {
        self.read(ConnectionSide::Client, bytes, on_event);
    }

    /// Reads the server's next bytes, cut anywhere.
    pub fn server(&mut self, bytes: &[u8], on_event: &mut impl FnMut(TlsEvent)) {
        self.read(ConnectionSide::Server, bytes, on_event);
    }

    /// The client's next `count` bytes were not captured.
    pub fn client_missing(&mut self, count: u64, on_event: &mut impl FnMut(TlsEvent)) {
        self.skip(ConnectionSide::Client, count, on_event);
    }

    /// The server's next `count` bytes were not captured.
    pub fn server_missing(&mut self, count: u64, on_event: &mut impl FnMut(TlsEvent)) {
        self.skip(ConnectionSide::Server, count, on_event);
    }

    pub fn handshake(&self) -> &TlsHandshake {
        &self.handshake
    }

    /// Lets a caller that follows many connections share values that are equal.
    pub fn handshake_mut(&mut self) -> &mut TlsHandshake {
        &mut self.handshake
    }

    /// Memory that is allocated for messages which are not complete. What may be shared is not counted.
    pub fn heap_bytes(&self) -> usize {
        self.client.messages.heap_bytes() + self.server.messages.heap_bytes()
    }

    /// Those of the client and of the server.
    pub fn application_records(&self) -> (RecordTally, RecordTally) {
        (self.client.application, self.server.application)
    }

    fn read(&mut self, from: ConnectionSide, mut bytes: &[u8], on_event: &mut dyn FnMut(TlsEvent)) {
        while let Some(portion) = self.direction(from).records.next(&mut bytes) {
            match portion {
                Portion::Header(header) => self.begin_record(from, header, on_event),
                Portion::Body(HANDSHAKE, body) => self.read_messages(from, body, on_event),
                Portion::Body(ALERT, body) => self.read_alert(from, body),
                Portion::Body(..) => {}
            }
        }
    }

    fn skip(&mut self, from: ConnectionSide, count: u64, on_event: &mut dyn FnMut(TlsEvent)) {
        if count == 0 || self.handshake.stage == Stage::NotTls {
            return;
        }
        let content_type = self.direction(from).records.skip(count);
        let direction = self.direction(from);
        direction.alert = None;
        if !direction.is_encrypted && content_type.is_none_or(|content_type| content_type == HANDSHAKE) {
            let cut = direction.messages.skip(count);
            if cut.is_some() || direction.messages.is_lost() {
                self.lower_capture(from, Capture::Incomplete);
            }
            if let Some(message) = cut {
                self.message(from, &message, on_event);
            }
            if from == ConnectionSide::Server
                && self.handshake.selected.is_none()
                && self.server.messages.is_lost()
            {
                self.lose(from);
            }
        }
        if content_type.is_none() {
            self.lose(from);
        }
    }

    fn begin_record(
        &mut self,
        from: ConnectionSide,
        header: RecordHeader,
        on_event: &mut dyn FnMut(TlsEvent),
    ) {
        if !header.is_valid() || !self.may_begin(from, header.content_type) {
            self.reject(from);
            return;
        }
        match header.content_type {
            CHANGE_CIPHER_SPEC => self.change_cipher(from),
            ALERT => {
                let is_plain = usize::from(header.bytes) == ALERT_BYTES;
                self.direction(from).alert = is_plain.then(Partial::default);
            }
            HANDSHAKE => {
                let is_up_to_1_2 = self.version().is_some_and(|version| version < TLS_1_3);
                let direction = self.direction(from);
                if is_up_to_1_2 && direction.is_encrypted && !direction.has_finished {
                    direction.has_finished = true;
                    on_event(TlsEvent::Finished(from));
                }
            }
            APPLICATION_DATA => self.application_data(from, header.bytes, on_event),
            _ => {}
        }
    }

    /// Whether a peer may send such a record now: before the hellos, not all are allowed.
    fn may_begin(&self, from: ConnectionSide, content_type: u8) -> bool {
        let is_handshake = matches!(content_type, CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE);
        match from {
            ConnectionSide::Client => {
                self.has_client_hello
                    || content_type == HANDSHAKE
                    || self.handshake.client_capture != Capture::Whole
            }
            ConnectionSide::Server => self.handshake.selected.is_some() || is_handshake,
        }
    }

    fn change_cipher(&mut self, from: ConnectionSide) {
        // Before the ServerHello and in TLS 1.3 it is for middleboxes (RFC 8446, D.4).
        if self.version().is_none_or(|version| version >= TLS_1_3) {
            return;
        }
        self.direction(from).is_encrypted = true;
        let is_known = self.handshake.resumed.is_some() || self.server.messages.is_lost();
        if from == ConnectionSide::Server && !is_known {
            self.handshake.resumed = Some(true);
            self.handshake.client_certificate = ClientAuthentication::NotRequested;
        }
    }

    fn application_data(&mut self, from: ConnectionSide, bytes: u16, on_event: &mut dyn FnMut(TlsEvent)) {
        let Some(version) = self.version() else {
            self.handshake.has_early_data |= from == ConnectionSide::Client && self.is_whole();
            return;
        };
        if self.handshake.stage == Stage::Handshake {
            if version < TLS_1_3 {
                if !self.direction(from).is_encrypted {
                    return;
                }
                self.handshake.stage = Stage::Established;
            } else {
                if from == ConnectionSide::Client {
                    self.first_encrypted_record(bytes, on_event);
                }
                return;
            }
        }
        let application = &mut self.direction(from).application;
        application.records += 1;
        application.bytes += u64::from(bytes);
        on_event(TlsEvent::ApplicationData { from, bytes });
    }

    /// The client's first record of TLS 1.3 that is encrypted.
    fn first_encrypted_record(&mut self, bytes: u16, on_event: &mut dyn FnMut(TlsEvent)) {
        if bytes <= MAX_HIDDEN_ALERT_BYTES && !self.handshake.has_early_data {
            self.handshake.has_hidden_alert = true;
            return;
        }
        self.handshake.stage = Stage::Established;
        self.handshake.has_hidden_alert = false;
        on_event(TlsEvent::Finished(ConnectionSide::Client));
    }

    fn read_alert(&mut self, from: ConnectionSide, mut body: &[u8]) {
        let alert = &mut self.direction(from).alert;
        if let Some(fields) = alert.as_mut().and_then(|partial| partial.take(&mut body)) {
            *alert = None;
            self.handshake.alert = self.handshake.alert.or_else(|| Alert::parse(fields, from));
        }
    }

    fn read_messages(&mut self, from: ConnectionSide, mut body: &[u8], on_event: &mut dyn FnMut(TlsEvent)) {
        while !self.direction(from).is_encrypted
            && let Some(message) =
                self.direction(from).messages.next(&mut body, |kind, length| wanted(from, kind, length))
        {
            self.message(from, &message, on_event);
        }
    }

    /// Reads a message that is not encrypted.
    fn message(&mut self, from: ConnectionSide, message: &Message, on_event: &mut dyn FnMut(TlsEvent)) {
        match from {
            ConnectionSide::Client => self.client_message(message, on_event),
            ConnectionSide::Server if self.handshake.selected.is_some() => self.server_message(message),
            ConnectionSide::Server => match message.kind {
                SERVER_HELLO => self.server_hello(message.start.as_deref(), on_event),
                // It may come first (RFC 5246, 7.4.1.1).
                HELLO_REQUEST => {}
                _ => self.reject(from),
            },
        }
    }

    fn client_message(&mut self, message: &Message, on_event: &mut dyn FnMut(TlsEvent)) {
        let start = message.start.as_deref();
        match message.kind {
            CLIENT_HELLO => {
                if !self.has_client_hello {
                    self.handshake.offer = start.and_then(ClientOffer::parse).map(Arc::new);
                    if start.is_some() && self.handshake.offer.is_none() {
                        self.reject(ConnectionSide::Client);
                        return;
                    }
                    self.has_client_hello = true;
                    self.handshake.stage = self.handshake.stage.max(Stage::AwaitServerHello);
                }
                on_event(TlsEvent::ClientHello);
            }
            _ if !self.has_client_hello => self.reject(ConnectionSide::Client),
            _ if self.handshake.selected.is_none() => {}
            CERTIFICATE => {
                self.handshake.client_certificate = match message.length {
                    ..=EMPTY_LIST_BYTES => ClientAuthentication::Withheld,
                    _ => ClientAuthentication::Sent,
                };
            }
            CLIENT_KEY_EXCHANGE => {
                self.handshake.resumed = Some(false);
                self.no_certificate_request();
            }
            _ => {}
        }
    }

    fn server_hello(&mut self, start: Option<&[u8]>, on_event: &mut dyn FnMut(TlsEvent)) {
        let Some(start) = start else {
            self.lose(ConnectionSide::Server);
            return;
        };
        let hello = match ServerHello::parse(start) {
            // A second retry is not allowed (RFC 8446, 4.1.4).
            Some(hello) if !(hello.is_retry && self.has_retried) => hello,
            _ => {
                self.reject(ConnectionSide::Server);
                return;
            }
        };
        if hello.is_retry {
            self.has_retried = true;
            on_event(TlsEvent::HelloRetry);
            return;
        }
        let is_1_3 = hello.version >= TLS_1_3;
        self.handshake.selected = Some(Selected {
            version: hello.version,
            cipher_suite: hello.cipher_suite,
            group: hello.group.filter(|_| is_1_3).map(KeyExchangeGroup::Named),
            signature: None,
            hello_retry: self.has_retried,
        });
        self.handshake.stage = Stage::Handshake;
        if is_1_3 {
            self.handshake.resumed = Some(hello.accepts_psk);
            self.handshake.client_certificate = ClientAuthentication::Hidden;
            self.client.is_encrypted = true;
            self.server.is_encrypted = true;
        }
        on_event(TlsEvent::ServerHello);
    }

    /// A message after the ServerHello, up to TLS 1.2.
    fn server_message(&mut self, message: &Message) {
        let handshake = &mut self.handshake;
        let start = message.start.as_deref().unwrap_or_default();
        match message.kind {
            CERTIFICATE => handshake.certificates = certificates(start).into(),
            SERVER_KEY_EXCHANGE => {
                if let Some(selected) = &mut handshake.selected
                    && let Some(parameters) = KeyExchangeParameters::of(selected.cipher_suite)
                {
                    (selected.group, selected.signature) = parameters.read(start, selected.version);
                }
            }
            CERTIFICATE_REQUEST => handshake.client_certificate = ClientAuthentication::Requested,
            SERVER_HELLO_DONE => self.no_certificate_request(),
            // Such as a session ticket.
            _ => return,
        }
        self.handshake.resumed = Some(false);
    }

    fn no_certificate_request(&mut self) {
        if self.handshake.client_certificate == ClientAuthentication::Unknown {
            self.handshake.client_certificate = ClientAuthentication::NotRequested;
        }
    }

    /// Bytes that are not allowed here.
    fn reject(&mut self, from: ConnectionSide) {
        if self.handshake.selected.is_none() && self.is_whole() {
            self.handshake.stage = Stage::NotTls;
            self.client.ignore_rest();
            self.server.ignore_rest();
        } else {
            self.lose(from);
        }
    }

    fn lose(&mut self, from: ConnectionSide) {
        self.lower_capture(from, Capture::Lost);
        self.direction(from).ignore_rest();
    }

    fn lower_capture(&mut self, from: ConnectionSide, to: Capture) {
        let capture = match from {
            ConnectionSide::Client => &mut self.handshake.client_capture,
            ConnectionSide::Server => &mut self.handshake.server_capture,
        };
        *capture = to.max(*capture);
    }

    fn is_whole(&self) -> bool {
        self.handshake.client_capture == Capture::Whole && self.handshake.server_capture == Capture::Whole
    }

    fn version(&self) -> Option<u16> {
        self.handshake.selected.map(|selected| selected.version)
    }

    fn direction(&mut self, of: ConnectionSide) -> &mut Direction {
        match of {
            ConnectionSide::Client => &mut self.client,
            ConnectionSide::Server => &mut self.server,
        }
    }
}

impl Direction {
    fn ignore_rest(&mut self) {
        self.records = RecordReader::Lost;
        self.messages = MessageReader::Lost;
    }
}

/// The part of a message that is read.
fn wanted(from: ConnectionSide, kind: u8, length: usize) -> usize {
    match (from, kind) {
        (ConnectionSide::Client, CLIENT_HELLO) if length <= MAX_CLIENT_HELLO_BYTES => length,
        (ConnectionSide::Server, SERVER_HELLO) if length <= MAX_SERVER_HELLO_BYTES => length,
        (ConnectionSide::Server, CERTIFICATE) => MAX_CERTIFICATE_BYTES,
        (ConnectionSide::Server, SERVER_KEY_EXCHANGE) => MAX_KEY_EXCHANGE_BYTES,
        _ => 0,
    }
}
