//! The blocking client, for control connections, readiness checks and `doctor`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ciphertoll_vocabulary::AddressFamily;
use ciphertoll_wire::postgres;
use ciphertoll_wire::session::{Login, Response, Row, ServerInfo};

use crate::channel::Channel;
use crate::connecting::{ConnectProgress, Connected, Connecting, ContextSource, Dialer};
use crate::resolve::resolve;
use crate::socket::{Address, BLOCKING_LIMIT, Transport, limit_waits};
use crate::{Error, Readiness, opening, tls};

/// A result larger than this is refused: control connections read settings and counters.
pub(crate) const RESULT_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// A connection whose calls block.
pub struct Client {
    pub(crate) channel: Channel,
    pub(crate) server: ServerInfo,
    family: Option<AddressFamily>,
    /// Of each call.
    limit: Duration,
}

/// A connection that the server's machine has accepted, before the login.
pub struct OpenedConnection {
    connecting: Connecting,
    family: Option<AddressFamily>,
}

impl OpenedConnection {
    /// The login takes at most so long.
    pub fn log_in(self, limit: Duration) -> Result<Client, Error> {
        Client::log_in(ConnectProgress::Pending(self.connecting), self.family, &Deadline::after(limit))
    }
}

impl Client {
    /// Connects, and sends nothing yet. The dialer's transport must be [`Transport::Blocking`].
    pub fn open(dialer: &Dialer) -> Result<OpenedConnection, Error> {
        let (connecting, peer) = dial(dialer, &Deadline::of(dialer))?;
        Ok(OpenedConnection { connecting, family: peer.map(Into::into) })
    }

    /// Connects and logs in. If the address is a name without a family, tries its addresses in order and returns
    /// the first one's error if none accepts. Otherwise only the first address is tried, as by [`Dialer::dial`].
    pub fn connect(address: &Address, login: Login, tls: Option<&tls::Context>) -> Result<Self, Error> {
        Self::dial(&Dialer {
            address: address.clone(),
            login,
            tls: tls.cloned().map(ContextSource::Shared),
            transport: Transport::BLOCKING,
        })
    }

    /// Connects to a server that may be none of the login's protocol: fails after `limit`, or as soon as the first
    /// bytes are of another protocol.
    pub fn connect_within(
        address: &Address,
        login: Login,
        tls: Option<&tls::Context>,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut dialer = Dialer {
            address: address.clone(),
            login,
            tls: tls.cloned().map(ContextSource::Shared),
            transport: Transport::Blocking(limit),
        };
        let deadline = Deadline::after(limit);
        let (connecting, peer) = dial(&dialer, &deadline)?;
        if let Some(peer) = peer {
            dialer.address = Address::Tcp(peer);
        }
        let progress = opening::await_answer(connecting, &dialer, limit)?;
        Self::log_in(progress, peer.map(Into::into), &deadline)
    }

    /// Connects like a load's clients. The dialer's transport must be [`Transport::Blocking`].
    pub fn dial(dialer: &Dialer) -> Result<Self, Error> {
        let deadline = Deadline::of(dialer);
        let (connecting, peer) = dial(dialer, &deadline)?;
        Self::log_in(ConnectProgress::Pending(connecting), peer.map(Into::into), &deadline)
    }

    fn log_in(
        mut progress: ConnectProgress,
        family: Option<AddressFamily>,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        loop {
            match progress {
                ConnectProgress::Pending(mut connecting) => {
                    limit_waits(&connecting.channel().socket, deadline.left()?)?;
                    progress = connecting.advance(Readiness::Readable)?;
                }
                ConnectProgress::Done(Connected { channel, server, .. }) => {
                    limit_waits(&channel.socket, BLOCKING_LIMIT)?;
                    return Ok(Self { channel, server, family, limit: BLOCKING_LIMIT });
                }
            }
        }
    }

    /// Each call from now on takes at most so long.
    pub fn limit_calls(&mut self, limit: Duration) -> Result<(), Error> {
        limit_waits(&self.channel.socket, limit)?;
        self.limit = limit;
        Ok(())
    }

    /// The family of the address that accepted; `None` for a unix socket.
    pub fn peer_family(&self) -> Option<AddressFamily> {
        self.family
    }

    /// What the server reported during the login.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// The negotiated TLS parameters; `None` without TLS.
    pub fn negotiated(&self) -> Option<tls::Negotiated> {
        self.channel.negotiated()
    }

    pub fn handshake_size(&self) -> Option<tls::HandshakeSize> {
        self.channel.handshake_size()
    }

    /// Runs a statement and returns the rows of all result sets, or the documents of all batches.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        self.server.encode_query(self.channel.output(), sql)?;
        if let ServerInfo::MongoDb(server) = &self.server {
            let server = server.clone();
            return self.await_documents(&server);
        }
        self.channel.send()?;
        let mut reader = self.server.rows_reader(RESULT_LIMIT_BYTES);
        self.await_response(|input| reader.step(input))
    }

    /// Runs one statement of PostgreSQL with these parameters, whose types the server infers, and returns its rows.
    pub fn query_with(&mut self, sql: &str, parameters: &[&str]) -> Result<Vec<Row>, Error> {
        use postgres::command::{Param, encode_bind, encode_execute, encode_parse, encode_sync};
        if !matches!(self.server, ServerInfo::Postgres(_)) {
            let (message, reason) = ("statement", "only PostgreSQL has these parameters");
            return Err(postgres::Error::Protocol { message, reason }.into());
        }
        let parameters: Vec<_> = parameters.iter().map(|text| Param::Text(text.as_bytes())).collect();
        let out = self.channel.output();
        encode_parse(out, "", sql, &[])?;
        encode_bind(out, "", "", &parameters, postgres::ValueFormat::Text)?;
        encode_execute(out, "", 0)?;
        encode_sync(out);
        self.channel.send()?;
        let mut reader = self.server.rows_reader(RESULT_LIMIT_BYTES);
        self.await_response(|input| reader.step(input))
    }

    /// Runs a PostgreSQL `COPY … FROM STDIN` and returns the number of rows. The data may be split anywhere. After a
    /// server error, the connection is ready for the next statement.
    pub fn copy_in(&mut self, sql: &str, data: impl IntoIterator<Item = Vec<u8>>) -> Result<u64, Error> {
        if let ServerInfo::MySql(_) | ServerInfo::MongoDb(_) = self.server {
            return Err(postgres::Error::NotACopy.into());
        }
        postgres::command::encode_query(self.channel.output(), sql)?;
        self.channel.send()?;
        let mut begin = postgres::CopyInReader::new();
        self.await_response(|input| begin.step(input))?;
        // After an error, the server discards the remaining data. Its error is read at the end.
        for chunk in data {
            postgres::command::encode_copy_data(self.channel.output(), &chunk)?;
            self.channel.send()?;
        }
        postgres::command::encode_copy_done(self.channel.output());
        self.channel.send()?;
        let mut reader = postgres::PostgresResponseReader::new();
        Ok(self.await_response(|input| reader.step(input))?.affected_rows)
    }

    /// Runs a statement and drops what it returns.
    pub fn execute(&mut self, sql: &str) -> Result<(), Error> {
        self.query(sql).map(|_| ())
    }

    pub fn close(mut self) -> Result<(), Error> {
        self.server.encode_goodbye(self.channel.output());
        self.channel.close()
    }

    pub(crate) fn await_response<T, E: Into<Error>>(
        &mut self,
        mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, E>,
    ) -> Result<T, Error> {
        // An error that arrived with an earlier reply causes no further event: a COPY may fail as soon as it has begun.
        if !self.channel.input().is_empty()
            && let Response::Done(value) = self.channel.digest(&mut step)?
        {
            return Ok(value);
        }
        let deadline = Deadline::after(self.limit);
        loop {
            deadline.check()?;
            if let Some(value) = self.channel.read_response(Readiness::Readable, &mut step)? {
                return Ok(value);
            }
        }
    }
}

/// Begins a connect; also returns the address that accepted.
fn dial(dialer: &Dialer, deadline: &Deadline) -> Result<(Connecting, Option<SocketAddr>), Error> {
    let (first, others) = match &dialer.address {
        Address::Unix(_) => return Ok((dialer.dial(None)?, None)),
        Address::Tcp(address) => (*address, Vec::new()),
        Address::Host { name, port, family } => {
            let resolved = resolve(name, *port, *family)?;
            (resolved.first, if family.is_none() { resolved.rest } else { Vec::new() })
        }
    };
    let (connecting, address) = dial_in_order(dialer, first, &others, deadline)?;
    Ok((connecting, Some(address)))
}

fn dial_in_order(
    dialer: &Dialer,
    first: SocketAddr,
    others: &[SocketAddr],
    deadline: &Deadline,
) -> Result<(Connecting, SocketAddr), Error> {
    let error = match dialer.dial_to(first) {
        Ok(connecting) => return Ok((connecting, first)),
        Err(error) => error,
    };
    for address in others {
        deadline.check()?;
        if let Ok(connecting) = dialer.dial_to(*address) {
            return Ok((connecting, *address));
        }
    }
    // The resolver puts the address first that this machine reaches best: its error is the most useful.
    Err(error)
}

/// The time limit of a call. Each read waits at most this long, so that the limit is noticed.
pub(crate) struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, limit }
    }

    fn of(dialer: &Dialer) -> Self {
        Self::after(match dialer.transport {
            Transport::Blocking(limit) => limit,
            Transport::NonBlocking => BLOCKING_LIMIT,
        })
    }

    pub(crate) fn from_now() -> Self {
        Self::after(BLOCKING_LIMIT)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.left().map(drop)
    }

    /// Not zero.
    fn left(&self) -> Result<Duration, Error> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Error::TimedOut { seconds: self.limit.as_secs() }) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
    use std::sync::Arc;

    use ciphertoll_wire::{Secret, mysql};

    use super::*;

    /// The first address that accepts is used, whatever its family; if none does, the first error is returned.
    #[test]
    fn addresses_are_tried_in_order() {
        let login = Login::MySql(Arc::new(mysql::MySqlLogin::new("toll", Secret::new(Vec::new()))));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = listener.local_addr().unwrap();
        // A bound port without a listener: nothing else can take it.
        let taken = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        taken.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let nobody = taken.local_addr().unwrap().as_socket().unwrap();
        let nobody_in_v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, nobody.port()));
        let dialer =
            Dialer { address: Address::Tcp(nobody), login, tls: None, transport: Transport::BLOCKING };
        let dial = |first, others: &[SocketAddr]| {
            dial_in_order(&dialer, first, others, &Deadline::from_now()).map(|(_, address)| address)
        };
        assert_eq!(dial(there, &[nobody]).unwrap(), there);
        assert_eq!(dial(nobody_in_v6, &[nobody, there]).unwrap(), there);
        let error = dial(nobody, &[nobody_in_v6]).unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let passed = Deadline::after(Duration::ZERO);
        let outcome = dial_in_order(&dialer, nobody, &[there], &passed).map(|(_, address)| address);
        assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
    }
}
