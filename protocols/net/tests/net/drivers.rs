//! The two drivers behind one face, so that each test runs on both.

use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{Context, Negotiated, Settings};
use ciphertoll_net::{
    Address, Channel, ConnectProgress, Connected, ContextSource, Dialer, Error, PhaseTimes, Reactor,
    Readiness, SourceAddresses, Transport, WatchedEvents,
};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{self, MySqlTlsMode, Row};
use ciphertoll_wire::session::{Login, ServerInfo};

/// No wait of any test is longer; what is still not there then has been lost.
pub(crate) const TIME_LIMIT: Duration = Duration::from_mins(1);

pub(crate) const USER: &str = "toll";
pub(crate) const PASSWORD: &[u8] = b"hunter2";
pub(crate) const DATABASE: &str = "bench";

const RESULT_LIMIT_BYTES: usize = 64 << 20;
const KEY: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Blocking,
    Loop,
}

/// A connection of either driver.
pub(crate) enum Connection {
    Blocking(Box<Client>),
    Loop(Box<LoopClient>),
}

/// A connection on a readiness loop of its own.
pub(crate) struct LoopClient {
    pub(crate) reactor: Reactor,
    pub(crate) channel: Channel,
    pub(crate) server: ServerInfo,
    pub(crate) phases: PhaseTimes,
}

impl Driver {
    pub(crate) const ALL: [Self; 2] = [Self::Blocking, Self::Loop];

    /// Connects and logs in, without TLS.
    pub(crate) fn connect_plain(self, address: &Address) -> Result<Connection, Error> {
        match self {
            Self::Blocking => {
                let (address, login) = (address.clone(), login(MySqlTlsMode::Plain));
                within(move || Client::connect(&address, login, None)).map(Connection::blocking)
            }
            Self::Loop => LoopClient::connect(&dialer(address, None), None).map(Connection::on_loop),
        }
    }

    /// Connects and logs in over TLS.
    pub(crate) fn connect_tls(self, address: &Address, settings: &Settings) -> Result<Connection, Error> {
        let context = Context::build(settings)?;
        match self {
            Self::Blocking => {
                let (address, login) = (address.clone(), login(MySqlTlsMode::Tls));
                within(move || Client::connect(&address, login, Some(&context))).map(Connection::blocking)
            }
            Self::Loop => {
                let dialer = dialer(address, Some(ContextSource::Shared(context)));
                LoopClient::connect(&dialer, None).map(Connection::on_loop)
            }
        }
    }

    /// How a connect fails that should not succeed.
    #[track_caller]
    pub(crate) fn refusal(self, address: &Address, settings: Option<&Settings>) -> Error {
        let outcome = match settings {
            Some(settings) => self.connect_tls(address, settings),
            None => self.connect_plain(address),
        };
        match outcome {
            Ok(_) => panic!("{self:?}: connected to a server that it should not take"),
            Err(error) => error,
        }
    }
}

impl Connection {
    fn blocking(client: Client) -> Self {
        Self::Blocking(Box::new(client))
    }

    fn on_loop(client: LoopClient) -> Self {
        Self::Loop(Box::new(client))
    }

    pub(crate) fn server(&self) -> &ServerInfo {
        match self {
            Self::Blocking(client) => client.server(),
            Self::Loop(client) => &client.server,
        }
    }

    pub(crate) fn negotiated(&self) -> Option<Negotiated> {
        match self {
            Self::Blocking(client) => client.negotiated(),
            Self::Loop(client) => client.channel.negotiated(),
        }
    }

    /// Runs a statement; gives the connection back, so that another can follow.
    pub(crate) fn query(self, sql: impl Into<String>) -> (Self, Result<Vec<Row>, Error>) {
        let sql = sql.into();
        match self {
            Self::Blocking(mut client) => within(move || {
                let rows = client.query(&sql);
                (Self::Blocking(client), rows)
            }),
            Self::Loop(mut client) => {
                let rows = client.send_query(&sql).and_then(|()| client.read_rows());
                (Self::Loop(client), rows)
            }
        }
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        match self {
            Self::Blocking(client) => client.close(),
            Self::Loop(mut client) => {
                client.server.encode_goodbye(client.channel.output());
                client.channel.close()
            }
        }
    }
}

impl LoopClient {
    pub(crate) fn connect(dialer: &Dialer, sources: Option<&mut SourceAddresses>) -> Result<Self, Error> {
        let mut reactor = Reactor::new()?;
        let mut connecting = dialer.dial(sources)?;
        reactor.register(connecting.channel(), KEY, WatchedEvents::Both)?;
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            for readiness in readiness(&mut reactor, deadline)? {
                match connecting.advance(readiness)? {
                    ConnectProgress::Pending(pending) => connecting = pending,
                    ConnectProgress::Done(Connected { channel, server, stopwatch }) => {
                        return Ok(Self { reactor, channel, server, phases: *stopwatch.times() });
                    }
                }
            }
        }
    }

    pub(crate) fn send_query(&mut self, sql: &str) -> Result<(), Error> {
        self.server.encode_query(self.channel.output(), sql)?;
        self.channel.send().map(|_| ())
    }

    pub(crate) fn read_rows(&mut self) -> Result<Vec<Row>, Error> {
        let mut reader = self.server.rows_reader(RESULT_LIMIT_BYTES);
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            for readiness in readiness(&mut self.reactor, deadline)? {
                let rows = self.channel.read_response(readiness, |input| reader.step(input))?;
                if let Some(rows) = rows {
                    return Ok(rows);
                }
            }
        }
    }
}

/// The loop's next events; a loop that has none left to give has hung.
fn readiness(reactor: &mut Reactor, deadline: Instant) -> Result<Vec<Readiness>, Error> {
    let events: Vec<_> = reactor.wait(deadline.saturating_duration_since(Instant::now()))?.collect();
    assert!(!events.is_empty() || Instant::now() < deadline, "the readiness loop waits for nothing");
    assert!(events.iter().all(|event| event.key == KEY));
    Ok(events.into_iter().map(|event| event.readiness).collect())
}

pub(crate) fn dialer(address: &Address, tls: Option<ContextSource>) -> Dialer {
    let encryption = if tls.is_some() { MySqlTlsMode::Tls } else { MySqlTlsMode::Plain };
    Dialer { address: address.clone(), login: login(encryption), tls, transport: Transport::NonBlocking }
}

pub(crate) fn login(encryption: MySqlTlsMode) -> Login {
    Login::MySql(Arc::new(mysql::MySqlLogin {
        database: Some(DATABASE.to_owned()),
        encryption,
        ..mysql::MySqlLogin::new(USER, Secret::new(PASSWORD.to_vec()))
    }))
}

/// What `work` returns, if it returns in time.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    let worker = thread::spawn(move || done.send(work()).is_ok());
    match outcome.recv_timeout(TIME_LIMIT) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => panic!("the blocking driver hangs"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panicked) => panic::resume_unwind(panicked),
            Ok(_) => unreachable!("it sends before it ends"),
        },
    }
}
