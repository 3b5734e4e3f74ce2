//! The blocking driver: control connections, readiness checks, `doctor`.

use std::net::SocketAddr;
use std::time::Instant;

use ciphertoll_wire::postgres;
use ciphertoll_wire::session::{Login, Response, Row, ServerInfo};

use crate::channel::Channel;
use crate::connecting::{Connected, Connecting, ContextSource, Dialer, Progress};
use crate::resolve::{Family, resolve};
use crate::socket::{Address, BLOCKING_LIMIT, Transport};
use crate::{Error, Readiness, tls};

/// A result larger than this is refused: control connections read settings and counters.
pub(crate) const RESULT_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// A connection that waits for its answers.
pub struct Client {
    pub(crate) channel: Channel,
    pub(crate) server: ServerInfo,
    family: Option<Family>,
}

impl Client {
    /// Connects and logs in. Of a name whose family is [`Family::Any`], all addresses are tried in order until one
    /// accepts; where none does, the first one's error is returned. Otherwise the first address must do, as it must
    /// for [`Dialer::dial`].
    pub fn connect(address: &Address, login: Login, tls: Option<&tls::Context>) -> Result<Self, Error> {
        Self::dial(&Dialer {
            address: address.clone(),
            login,
            tls: tls.cloned().map(ContextSource::Shared),
            transport: Transport::Blocking,
        })
    }

    /// The same as a load's clients do it, whose dialer this is; its transport must be [`Transport::Blocking`].
    pub fn dial(dialer: &Dialer) -> Result<Self, Error> {
        let deadline = Deadline::from_now();
        let (mut connecting, family) = dial(dialer, &deadline)?;
        loop {
            deadline.check()?;
            match connecting.advance(Readiness::Readable)? {
                Progress::Pending(pending) => connecting = pending,
                Progress::Done(Connected { channel, server, .. }) => {
                    return Ok(Self { channel, server, family });
                }
            }
        }
    }

    /// The family of the address that accepted; `None` for a unix socket.
    pub fn peer_family(&self) -> Option<Family> {
        self.family
    }

    /// What the server said of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// What TLS agreed on, where there is TLS.
    pub fn negotiated(&self) -> Option<tls::Negotiated> {
        self.channel.negotiated()
    }

    /// Runs a statement and returns its rows, of all result sets; of MongoDB the documents of all batches.
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

    /// Runs a PostgreSQL `COPY … FROM STDIN` with data that may be cut anywhere, and returns how many rows they made.
    /// To MySQL and MongoDB no statement is such a COPY. After an error of the server's the connection awaits the next statement.
    pub fn copy_in(&mut self, sql: &str, data: impl IntoIterator<Item = Vec<u8>>) -> Result<u64, Error> {
        if let ServerInfo::MySql(_) | ServerInfo::MongoDb(_) = self.server {
            return Err(postgres::Error::NotACopy.into());
        }
        postgres::command::encode_query(self.channel.output(), sql)?;
        self.channel.send()?;
        let mut begin = postgres::CopyInReader::new();
        self.await_response(|input| begin.step(input))?;
        // A server that has refused reads on and drops what comes, so that its error can wait for the end.
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

    /// The first column of the first row as text; `None` where there is no row or it is NULL.
    pub fn query_text(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let rows = self.query(sql)?;
        let first = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
        Ok(first.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Says goodbye and closes.
    pub fn close(mut self) -> Result<(), Error> {
        self.server.encode_goodbye(self.channel.output());
        self.channel.close()
    }

    pub(crate) fn await_response<T, E: Into<Error>>(
        &mut self,
        mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, E>,
    ) -> Result<T, Error> {
        // What has come with the answer before is not told of again: a COPY may fail as soon as it has begun.
        if !self.channel.input().is_empty()
            && let Response::Done(value) = self.channel.digest(&mut step)?
        {
            return Ok(value);
        }
        let deadline = Deadline::from_now();
        loop {
            deadline.check()?;
            if let Some(value) = self.channel.read_response(Readiness::Readable, &mut step)? {
                return Ok(value);
            }
        }
    }
}

/// Begins a connect, and tells the family of the address that accepted.
fn dial(dialer: &Dialer, deadline: &Deadline) -> Result<(Connecting, Option<Family>), Error> {
    let (first, others) = match &dialer.address {
        Address::Unix(_) => return Ok((dialer.dial(None)?, None)),
        Address::Tcp(address) => (*address, Vec::new()),
        Address::Host { name, port, family } => {
            let resolved = resolve(name, *port, *family)?;
            (resolved.first, if *family == Family::Any { resolved.rest } else { Vec::new() })
        }
    };
    let (connecting, address) = dial_in_order(dialer, first, &others, deadline)?;
    Ok((connecting, Some(Family::of(address))))
}

/// Begins a connect to the first of these that accepts.
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
    // The resolver puts first what this machine can reach best: that error says most.
    Err(error)
}

/// The end of the caller's patience. Each read waits for so long at most, so that it is noticed.
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn from_now() -> Self {
        Self(Instant::now() + BLOCKING_LIMIT)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if Instant::now() < self.0 {
            return Ok(());
        }
        Err(Error::TimedOut { seconds: BLOCKING_LIMIT.as_secs() })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
    use std::sync::Arc;

    use ciphertoll_wire::{Secret, mysql};

    use super::*;

    /// The first address that accepts is taken, whatever the family of those before it; else the first error.
    #[test]
    fn addresses_are_tried_in_order() {
        let login = Login::MySql(Arc::new(mysql::MySqlLogin::new("toll", Secret::new(Vec::new()))));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = listener.local_addr().unwrap();
        // A port that is taken, and nobody listens at: else somebody might meanwhile.
        let taken = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        taken.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let nobody = taken.local_addr().unwrap().as_socket().unwrap();
        let nobody_in_v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, nobody.port()));
        let dialer =
            Dialer { address: Address::Tcp(nobody), login, tls: None, transport: Transport::Blocking };
        let dial = |first, others: &[SocketAddr]| {
            dial_in_order(&dialer, first, others, &Deadline::from_now()).map(|(_, address)| address)
        };
        assert_eq!(dial(there, &[nobody]).unwrap(), there);
        assert_eq!(dial(nobody_in_v6, &[nobody, there]).unwrap(), there);
        let error = dial(nobody, &[nobody_in_v6]).unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let passed = Deadline(Instant::now());
        let outcome = dial_in_order(&dialer, nobody, &[there], &passed).map(|(_, address)| address);
        assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
    }
}
