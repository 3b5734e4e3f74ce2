//! PostgreSQL's frontend/backend protocol, from outside.

use crate::passive::event::{AuthMethod, Content, Event, FailureCode};
use crate::passive::messages::{MessageLayout, Messages, Next};
use crate::side::ConnectionSide;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
/// The major version of every server since 7.4.
const MAJOR_VERSION: u32 = 3;
/// `ContentType` of a TLS handshake. A message that begins with it would be longer than 350 MB.
const TLS_HANDSHAKE: u8 = 22;

/// Requests for a proof (`AuthenticationOk`, `AuthenticationMD5Password` and so on), by their number.
const AUTH_OK: u32 = 0;
const AUTH_CLEARTEXT: u32 = 3;
const AUTH_MD5: u32 = 5;
const AUTH_GSS: u32 = 7;
const AUTH_SSPI: u32 = 9;
const AUTH_SASL: u32 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct PostgresMachine {
    client: Messages,
    server: Messages,
    phase: PostgresPhase,
    /// Whether the server asked for a proof of any kind.
    asked: bool,
    awaits_answer: bool,
    /// Whose next byte is TLS.
    tls: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PostgresPhase {
    /// The client's first message, or the next one after a refusal.
    #[default]
    Opening,
    /// The client asked for encryption.
    Asked,
    Login,
    Ready,
    /// Nothing more can be read.
    Opaque,
}

impl PostgresMachine {
    /// Reads one side's next bytes. Returns what is TLS.
    pub(super) fn read<'a>(
        &mut self,
        side: ConnectionSide,
        mut content: Content<'a>,
        events: &mut impl FnMut(Event),
    ) -> Option<Content<'a>> {
        loop {
            if self.tls[side as usize] {
                return Some(content);
            }
            let goes_on = match side {
                ConnectionSide::Client => self.client_message(&mut content, events),
                ConnectionSide::Server => self.server_message(&mut content, events),
            };
            if !goes_on {
                return None;
            }
        }
    }

    /// Whether there may be another message.
    fn client_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        self.client.skip(content);
        let layout = match self.phase {
            PostgresPhase::Opening | PostgresPhase::Asked => {
                if self.client.is_between() && matches!(content, Content::Bytes([TLS_HANDSHAKE, ..])) {
                    // TLS from the first byte; or right behind the request, before the server has answered.
                    self.tls[ConnectionSide::Client as usize] = true;
                    self.tls[ConnectionSide::Server as usize] |= self.phase == PostgresPhase::Opening;
                    return true;
                }
                MessageLayout::PostgresStartup
            }
            PostgresPhase::Login | PostgresPhase::Ready => MessageLayout::Postgres,
            PostgresPhase::Opaque => return false,
        };
        let (kind, code) = match self.client.next(content, layout) {
            Next::Message { header, body, .. } => (header[0], number(body)),
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        };
        match (layout, kind) {
            (MessageLayout::PostgresStartup, _) => self.startup(code, events),
            // Query, Execute and FunctionCall.
            (_, b'Q' | b'E' | b'F') => {
                self.awaits_answer = true;
                events(Event::Query);
            }
            (_, b'X') => events(Event::Terminate),
            _ => {}
        }
        true
    }

    fn startup(&mut self, code: Option<u32>, events: &mut impl FnMut(Event)) {
        self.phase = match code {
            Some(SSL_REQUEST | GSSENC_REQUEST) => PostgresPhase::Asked,
            Some(CANCEL_REQUEST) => {
                events(Event::Cancel);
                PostgresPhase::Opaque
            }
            Some(version) if version >> 16 == MAJOR_VERSION => {
                events(Event::LoginStarted);
                PostgresPhase::Login
            }
            _ => {
                events(Event::Lost);
                PostgresPhase::Opaque
            }
        };
    }

    fn server_message(&mut self, content: &mut Content<'_>, events: &mut impl FnMut(Event)) -> bool {
        self.server.skip(content);
        // An error in its place comes from servers before 7.0, or from too many clients.
        let is_error = !self.server.is_between() || matches!(content, Content::Bytes([b'E', ..]));
        let layout = match self.phase {
            PostgresPhase::Asked if !is_error => MessageLayout::PostgresAnswer,
            PostgresPhase::Opaque => return false,
            PostgresPhase::Opening | PostgresPhase::Asked | PostgresPhase::Login | PostgresPhase::Ready => {
                MessageLayout::Postgres
            }
        };
        let Self { server, asked, phase, .. } = self;
        let (kind, method, failure) = match server.next(content, layout) {
            Next::Message { header, body, .. } => {
                let kind = header[0];
                let is_login = *phase != PostgresPhase::Ready && layout == MessageLayout::Postgres;
                let method = if is_login && kind == b'R' { method(body, asked) } else { None };
                (kind, method, if is_login && kind == b'E' { sql_state(body) } else { None })
            }
            Next::Starved => return false,
            Next::Lost => return self.lost(events),
        };
        if layout == MessageLayout::PostgresAnswer {
            return self.answer(kind, events);
        }
        if let Some(method) = method {
            events(Event::Login(method));
        }
        if let Some(code) = failure {
            events(Event::Refused(code));
        }
        match kind {
            b'Z' if self.phase == PostgresPhase::Login => {
                self.phase = PostgresPhase::Ready;
                events(Event::LoggedIn);
            }
            // Notices, settings and notifications come at any time.
            b'N' | b'S' | b'A' => {}
            _ if std::mem::take(&mut self.awaits_answer) => events(Event::Answer),
            _ => {}
        }
        true
    }

    /// The server's answer to a request for encryption.
    fn answer(&mut self, kind: u8, events: &mut impl FnMut(Event)) -> bool {
        match kind {
            b'S' => self.tls = [true; 2],
            b'N' if !self.tls[ConnectionSide::Client as usize] => {
                self.phase = PostgresPhase::Opening;
                events(Event::TlsRefused);
            }
            b'G' => {
                self.phase = PostgresPhase::Opaque;
                events(Event::GssEncryption);
            }
            _ => return self.lost(events),
        }
        true
    }

    fn lost(&mut self, events: &mut impl FnMut(Event)) -> bool {
        if self.phase != PostgresPhase::Opaque {
            events(Event::Lost);
        }
        self.phase = PostgresPhase::Opaque;
        false
    }
}

fn number(body: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*body.first_chunk()?))
}

/// The method that an `Authentication` message names; that of a server that asked for nothing is "trust".
fn method(body: &[u8], asked: &mut bool) -> Option<AuthMethod> {
    let name: &[u8] = match number(body)? {
        AUTH_OK if !*asked => b"trust",
        AUTH_CLEARTEXT => b"password",
        AUTH_MD5 => b"md5",
        AUTH_GSS => b"gss",
        AUTH_SSPI => b"sspi",
        // The first mechanism is the one that the server prefers.
        AUTH_SASL => body.get(4..)?.split(|byte| *byte == 0).next()?,
        _ => return None,
    };
    *asked = true;
    Some(AuthMethod::named(name))
}

/// The field `C` of an error.
fn sql_state(body: &[u8]) -> Option<FailureCode> {
    let field = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C'))?;
    Some(FailureCode::SqlState(field.get(1..)?.try_into().ok()?))
}
