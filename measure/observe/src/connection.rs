//! One connection, from its first segment to its last.

use ciphertoll_wire::passive::{
    AccountNames, AuthMethod, ConnectionSide, Content, Conversation, DatabaseProtocol, Event, FailureCode,
};
use ciphertoll_wire::tls::{Capture, HandshakeObserver, Stage, TlsEvent, TlsHandshake};

use crate::accounts::ConnectionAccounts;
use crate::memory::{SharedValues, allocated, own_bytes};
use crate::times::{SeenAt, StepTimes};
use crate::turns::{Turn, Turns, overhead_bytes};

/// A PostgreSQL server's answer to a request for TLS; its first answer to anything else begins with another byte.
const POSTGRES_TLS_ANSWER: u8 = b'S';

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct ObservedConnection {
    conversation: Conversation,
    /// Present once TLS has begun.
    tls: Option<Box<Tls>>,
    pub(crate) times: StepTimes,
    /// `false` if it was open before the capture began: its login was not seen.
    pub(crate) is_from_beginning: bool,
    /// Present once a login without encryption has shown something.
    login: Option<Box<PlainLogin>>,
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

/// What a login without encryption shows.
#[derive(Debug, Default)]
struct PlainLogin {
    method: Option<AuthMethod>,
    /// Present if names are read, and there are some.
    accounts: Option<Box<ConnectionAccounts>>,
}

/// How the bytes of a new connection are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Without one, the first bytes tell.
    pub(crate) protocol: Option<DatabaseProtocol>,
    pub(crate) names: AccountNames,
}

#[derive(Debug, Default)]
struct Tls {
    observer: HandshakeObserver,
    /// Present once the handshake is complete.
    turns: Option<Turns>,
    overhead_bytes: u32,
    /// Who sent the first encrypted alert, of those behind which nothing useful can have come.
    hidden_alert: Option<ConnectionSide>,
    has_server_sent: bool,
    /// Whether the offer and the certificates have been compared with those of other connections.
    is_shared: [bool; 2],
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
    pub(crate) fn new(reading: Reading, is_from_beginning: bool) -> Self {
        Self {
            conversation: Conversation::new(reading.protocol, reading.names),
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

    /// The method of a login without encryption.
    #[must_use]
    pub(crate) fn login(&self) -> Option<&AuthMethod> {
        self.login.as_ref()?.method.as_ref()
    }

    /// Who logged in without encryption, if names are read.
    #[must_use]
    pub(crate) fn accounts(&self) -> Option<&ConnectionAccounts> {
        self.login.as_ref()?.accounts.as_deref()
    }

    /// The handshake, if the connection has or had TLS.
    #[must_use]
    pub(crate) fn handshake(&self) -> Option<&TlsHandshake> {
        self.tls.as_ref().map(|tls| tls.observer.handshake())
    }

    /// Whether the server ended a TLS 1.3 handshake by an encrypted alert: its first record behind the client's Finished, before
    /// any of the client's, has an alert's length.
    #[must_use]
    pub(crate) fn has_hidden_server_alert(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.hidden_alert == Some(ConnectionSide::Server))
    }

    /// Whether the client has not got as far as to its login.
    #[must_use]
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_from_beginning && !self.times.login_started.is_known() && self.opening != Opening::Gss
    }

    /// Allocated memory, without what other connections share.
    #[must_use]
    pub(crate) fn heap_bytes(&self) -> usize {
        let tls = self.tls.as_ref().map_or(0, |tls| {
            allocated(size_of::<Tls>()) + tls.observer.heap_bytes() + own_bytes(tls.observer.handshake())
        });
        let conversation = self.conversation.heap_bytes();
        tls + allocated(conversation)
            + self.login.as_ref().map_or(0, |login| allocated(size_of::<PlainLogin>()) + login.heap_bytes())
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
        is_established || self.times.client_finished.is_known() && self.times.server_finished.is_known()
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
        self.times.logged_in.is_known() || self.queries > 0
    }

    /// The next bytes of one side, in order.
    pub(crate) fn read(
        &mut self,
        side: ConnectionSide,
        content: Content<'_>,
        time_ns: u64,
        shared: &mut SharedValues,
    ) {
        let is_first_of_server = side == ConnectionSide::Server && self.bytes[side as usize] == 0;
        if is_first_of_server
            && self.protocol() == Some(DatabaseProtocol::Postgres)
            && matches!(content, Content::Bytes([POSTGRES_TLS_ANSWER, ..]))
        {
            self.times.server_first = SeenAt::new(time_ns);
        }
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
            self.share(shared);
        }
    }

    /// The end: only it tells what the last messages were of MongoDB, and of others inside of TLS if no query followed.
    pub(crate) fn finish(&mut self) {
        let turns = self.tls.as_ref().and_then(|tls| tls.turns.as_ref());
        // A client waits for the server's end, which tells that the request was handled; one that gives up a login does not.
        let is_by_server = self.end.is_some_and(|end| end.side() == ConnectionSide::Server);
        if is_by_server && turns.is_some_and(Turns::is_cancel_request) {
            self.opening = Opening::Cancel;
        }
        if self.is_logged_in() || self.refused.is_some() {
            return;
        }
        let is_mongodb = self.protocol() == Some(DatabaseProtocol::MongoDb);
        match &self.tls {
            // Without authentication nothing follows the driver's first command, such as on connections that monitor a server.
            None if is_mongodb && self.login().is_none() => self.times.logged_in = self.times.last_login,
            None => {}
            Some(tls) => match tls.turns.as_ref().map(Turns::last) {
                Some(Turn::LoggedIn) => self.times.logged_in = self.times.last_login,
                Some(Turn::Query) => self.queries += 1,
                _ => {}
            },
        }
    }

    fn event(&mut self, event: Event, time_ns: u64) {
        let times = &mut self.times;
        match event {
            Event::Greeting => times.server_first = SeenAt::new(time_ns),
            Event::TlsRefused => self.opening = Opening::TlsRefused,
            Event::GssEncryption => self.opening = Opening::Gss,
            Event::Cancel => self.opening = Opening::Cancel,
            Event::LoginStarted => times.login_started.set_first(time_ns),
            Event::Account(account) => {
                self.login.get_or_insert_default().accounts.get_or_insert_default().add(account);
            }
            Event::Login(method) => self.login.get_or_insert_default().method = Some(method),
            Event::LoginAnswer => times.last_login = SeenAt::new(time_ns),
            // If the client's first query shows it, it has been so since the server's last answer.
            Event::LoggedIn => times.logged_in = times.last_login.or(SeenAt::new(time_ns)),
            Event::Query => {
                self.queries += 1;
                times.first_query.set_first(time_ns);
            }
            Event::Answer => times.first_answer.set_first(time_ns),
            Event::Refused(code) => self.refused = Some(code),
            Event::Lost => self.is_lost = true,
            Event::Terminate | Event::Compressed => {}
        }
    }

    fn read_tls(&mut self, side: ConnectionSide, content: Content<'_>, time_ns: u64) {
        let protocol = self.conversation.protocol();
        let tls = self.tls.get_or_insert_with(Box::default);
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

    fn share(&mut self, shared: &mut SharedValues) {
        let Some(tls) = &mut self.tls else { return };
        let handshake = tls.observer.handshake_mut();
        if !tls.is_shared[0] && handshake.offer.is_some() {
            tls.is_shared[0] = true;
            shared.share_offer(handshake);
        }
        if !tls.is_shared[1] && !handshake.certificates.is_empty() {
            tls.is_shared[1] = true;
            shared.share_certificates(handshake);
        }
    }

    fn tls_event(&mut self, event: TlsEvent, protocol: Option<DatabaseProtocol>, time_ns: u64) {
        let Some(tls) = &mut self.tls else { return };
        match event {
            TlsEvent::ClientHello => self.times.client_hello.set_first(time_ns),
            TlsEvent::Finished(ConnectionSide::Client) => {
                self.times.client_finished = SeenAt::new(time_ns);
            }
            TlsEvent::Finished(ConnectionSide::Server) => {
                self.times.server_finished = SeenAt::new(time_ns);
            }
            TlsEvent::ServerHello | TlsEvent::HelloRetry => {}
            TlsEvent::ApplicationData { from, bytes } => {
                let turn = tls.application_data(from, u32::from(bytes), protocol);
                self.turn(turn, from, time_ns);
            }
        }
    }

    fn turn(&mut self, turn: Turn, side: ConnectionSide, time_ns: u64) {
        let times = &mut self.times;
        if side == ConnectionSide::Client && turn != Turn::Alert {
            times.login_started.set_first(time_ns);
        }
        match turn {
            // Until a query begins, each answer may be the login's last.
            Turn::Goes if side == ConnectionSide::Server && !times.first_query.is_known() => {
                times.last_login = SeenAt::new(time_ns);
            }
            Turn::Goes | Turn::Alert => {}
            Turn::LoggedIn => times.logged_in = SeenAt::new(time_ns),
            Turn::Query => {
                self.queries += 1;
                times.first_query.set_first(time_ns);
                times.logged_in = times.logged_in.or(times.last_login);
            }
            Turn::SecondQuery => {
                self.queries += 2;
                times.first_query.set_first(time_ns);
            }
            Turn::Answer => times.first_answer.set_first(time_ns),
        }
    }
}

impl PlainLogin {
    /// Allocated memory, without its own.
    fn heap_bytes(&self) -> usize {
        let method = self.method.as_ref().map_or(0, |method| allocated(method.label().len()));
        let accounts = self
            .accounts
            .as_ref()
            .map_or(0, |accounts| allocated(size_of::<ConnectionAccounts>()) + accounts.heap_bytes());
        method + accounts
    }
}

impl Tls {
    fn application_data(
        &mut self,
        from: ConnectionSide,
        bytes: u32,
        protocol: Option<DatabaseProtocol>,
    ) -> Turn {
        let selected = self.observer.handshake().selected;
        let turns = self.turns.get_or_insert_with(|| {
            let overhead = selected.and_then(|tls| overhead_bytes(tls.version, tls.cipher_suite));
            self.overhead_bytes = overhead.unwrap_or(0);
            Turns::new(protocol)
        });
        let turn = turns.record(from, bytes.saturating_sub(self.overhead_bytes));
        // Up to TLS 1.2, alerts are no application data.
        let may_end_handshake = from == ConnectionSide::Client || !self.has_server_sent;
        if turn == Turn::Alert && may_end_handshake {
            self.hidden_alert = self.hidden_alert.or(Some(from));
        }
        self.has_server_sent |= from == ConnectionSide::Server;
        turn
    }
}
