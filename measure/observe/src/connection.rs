//! One connection, from its first segment to its last.

use ciphertoll_wire::passive::{
    AuthMethod, ConnectionSide, Content, Conversation, DatabaseProtocol, Event, FailureCode,
};
use ciphertoll_wire::tls::{Capture, HandshakeObserver, Stage, TlsEvent, TlsHandshake};

use crate::times::StepTimes;
use crate::turns::{Turn, Turns, overhead_bytes};

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct ObservedConnection {
    conversation: Conversation,
    /// Present once TLS has begun.
    tls: Option<Box<Tls>>,
    pub(crate) times: StepTimes,
    /// `false` if it was open before the capture began: its login was not seen.
    pub(crate) is_from_beginning: bool,
    pub(crate) login: Option<AuthMethod>,
    pub(crate) opening: Opening,
    /// Queries, or turns of direction inside of TLS.
    pub(crate) queries: u64,
    pub(crate) refused: Option<FailureCode>,
    pub(crate) end: Option<End>,
    /// Payload in each direction, by [`ConnectionSide`].
    pub(crate) bytes: [u64; 2],
    /// Bytes that were not captured, or are of no protocol that is known here: what was counted is a lower bound.
    pub(crate) is_lost: bool,
}

#[derive(Debug)]
struct Tls {
    observer: HandshakeObserver,
    /// Present once the handshake is complete.
    turns: Option<Turns>,
    overhead_bytes: u32,
}

/// How a connection began, where it did not begin with TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// With the login, or with TLS.
    Login,
    /// With a request for TLS that the server refused.
    TlsRefused,
    /// With GSSAPI encryption.
    Gss,
    /// It only asked the server to cancel a query.
    Cancel,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum End {
    /// By a FIN of this side.
    Closed(ConnectionSide),
    /// By a RST of this side.
    Reset(ConnectionSide),
}

/// How queries were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum QueryCount {
    /// Messages of the protocol.
    Messages,
    /// Turns of direction inside of TLS.
    Turns,
    /// Unknown: the connection was open before, or its bytes could not be read.
    Unknown,
}

impl End {
    pub(crate) fn side(self) -> ConnectionSide {
        match self {
            Self::Closed(side) | Self::Reset(side) => side,
        }
    }
}

impl ObservedConnection {
    #[must_use]
    pub(crate) fn new(protocol: Option<DatabaseProtocol>, is_from_beginning: bool) -> Self {
        Self {
            conversation: Conversation::new(protocol),
            tls: None,
            times: StepTimes::default(),
            is_from_beginning,
            login: None,
            opening: Opening::Login,
            queries: 0,
            refused: None,
            end: None,
            bytes: [0; 2],
            is_lost: false,
        }
    }

    #[must_use]
    pub(crate) fn protocol(&self) -> Option<DatabaseProtocol> {
        self.conversation.protocol()
    }

    /// The handshake, if the connection has or had TLS.
    #[must_use]
    pub(crate) fn handshake(&self) -> Option<&TlsHandshake> {
        self.tls.as_ref().map(|tls| tls.observer.handshake())
    }

    /// Whether all that is needed of it was captured and understood.
    #[must_use]
    pub(crate) fn is_whole(&self) -> bool {
        let is_whole = |handshake: &TlsHandshake| {
            let captures = [handshake.client_capture, handshake.server_capture];
            match handshake.stage {
                Stage::Established => !captures.contains(&Capture::Lost),
                _ => captures == [Capture::Whole; 2],
            }
        };
        !self.is_lost && self.handshake().is_none_or(is_whole)
    }

    /// Whether both sides have completed a TLS handshake. Up to TLS 1.2 data need not have followed.
    #[must_use]
    pub(crate) fn has_completed_handshake(&self) -> bool {
        let is_established = self.handshake().is_some_and(|handshake| handshake.stage == Stage::Established);
        is_established || self.times.client_finished.is_some() && self.times.server_finished.is_some()
    }

    #[must_use]
    pub(crate) fn query_count(&self) -> QueryCount {
        match &self.tls {
            _ if !self.is_from_beginning || !self.is_whole() || self.opening == Opening::Gss => {
                QueryCount::Unknown
            }
            Some(_) => QueryCount::Turns,
            None => QueryCount::Messages,
        }
    }

    /// Whether the client got as far as to be able to send queries.
    #[must_use]
    pub(crate) fn is_logged_in(&self) -> bool {
        self.times.logged_in.is_some() || self.queries > 0
    }

    /// The next bytes of one side, in order.
    pub(crate) fn read(&mut self, side: ConnectionSide, content: Content<'_>, time_ns: u64) {
        self.bytes[side as usize] += match content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Missing(missing) => missing,
        };
        if !self.is_from_beginning || self.is_lost {
            return;
        }
        let mut events = Vec::new();
        let tls = self.conversation.read(side, content, |event| events.push(event));
        for event in events {
            self.event(event, time_ns);
        }
        if let Some(content) = tls.filter(|content| !content.is_empty()) {
            self.read_tls(side, content, time_ns);
        }
    }

    fn event(&mut self, event: Event, time_ns: u64) {
        let times = &mut self.times;
        match event {
            Event::Greeting => times.greeting = Some(time_ns),
            Event::TlsRefused => self.opening = Opening::TlsRefused,
            Event::GssEncryption => self.opening = Opening::Gss,
            Event::Cancel => self.opening = Opening::Cancel,
            Event::LoginStarted => times.login_started = times.login_started.or(Some(time_ns)),
            Event::Login(method) => self.login = Some(method),
            Event::LoggedIn => times.logged_in = Some(time_ns),
            Event::Query => {
                self.queries += 1;
                times.first_query = times.first_query.or(Some(time_ns));
            }
            Event::Answer => times.first_answer = times.first_answer.or(Some(time_ns)),
            Event::Refused(code) => self.refused = Some(code),
            Event::Lost => self.is_lost = true,
            Event::Terminate | Event::Compressed => {}
        }
    }

    fn read_tls(&mut self, side: ConnectionSide, content: Content<'_>, time_ns: u64) {
        let protocol = self.conversation.protocol();
        let tls = self.tls.get_or_insert_with(|| {
            Box::new(Tls { observer: HandshakeObserver::new(), turns: None, overhead_bytes: 0 })
        });
        let mut events = Vec::new();
        let mut sink = |event| events.push(event);
        match (side, content) {
            (ConnectionSide::Client, Content::Bytes(bytes)) => tls.observer.client(bytes, &mut sink),
            (ConnectionSide::Server, Content::Bytes(bytes)) => tls.observer.server(bytes, &mut sink),
            (ConnectionSide::Client, Content::Missing(count)) => {
                tls.observer.client_missing(count, &mut sink);
            }
            (ConnectionSide::Server, Content::Missing(count)) => {
                tls.observer.server_missing(count, &mut sink);
            }
        }
        for event in events {
            self.tls_event(event, protocol, time_ns);
        }
    }

    fn tls_event(&mut self, event: TlsEvent, protocol: Option<DatabaseProtocol>, time_ns: u64) {
        let Some(tls) = &mut self.tls else { return };
        match event {
            TlsEvent::ClientHello => {
                self.times.client_hello = self.times.client_hello.or(Some(time_ns));
            }
            TlsEvent::Finished(ConnectionSide::Client) => self.times.client_finished = Some(time_ns),
            TlsEvent::Finished(ConnectionSide::Server) => self.times.server_finished = Some(time_ns),
            TlsEvent::ServerHello | TlsEvent::HelloRetry => {}
            TlsEvent::ApplicationData { from, bytes } => {
                let turns = tls.turns.get_or_insert_with(|| {
                    let selected = tls.observer.handshake().selected;
                    let overhead = selected.and_then(|tls| overhead_bytes(tls.version, tls.cipher_suite));
                    tls.overhead_bytes = overhead.unwrap_or(0);
                    Turns::new(protocol)
                });
                let turn = turns.record(from, u32::from(bytes).saturating_sub(tls.overhead_bytes));
                self.turn(turn, from, time_ns);
            }
        }
    }

    fn turn(&mut self, turn: Turn, side: ConnectionSide, time_ns: u64) {
        let times = &mut self.times;
        if side == ConnectionSide::Client {
            times.login_started = times.login_started.or(Some(time_ns));
        }
        match turn {
            // Until a query begins, each answer may be the login's last.
            Turn::Goes if side == ConnectionSide::Server && times.first_query.is_none() => {
                times.last_login = Some(time_ns);
            }
            Turn::Goes => {}
            Turn::LoggedIn => times.logged_in = Some(time_ns),
            Turn::Query => {
                self.queries += 1;
                times.first_query = times.first_query.or(Some(time_ns));
                times.logged_in = times.logged_in.or(times.last_login);
            }
            Turn::Answer => {
                times.first_answer = times.first_answer.or(Some(time_ns));
            }
        }
    }
}
