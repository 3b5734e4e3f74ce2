//! The blocking driver: control connections, readiness checks, `doctor`.

use std::sync::Arc;
use std::time::Instant;

use ciphertoll_wire::mysql::{Login, Row, RowsReader, ServerInfo, command};

use crate::channel::Channel;
use crate::connecting::{Connected, ContextSource, Dialer, Progress};
use crate::socket::{Address, BLOCKING_LIMIT, Transport};
use crate::{Error, Readiness, tls};

/// A result larger than this is refused: control connections read settings and counters.
const RESULT_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// A connection that waits for its answers.
pub struct Client {
    channel: Channel,
    server: ServerInfo,
}

impl Client {
    /// Connects and logs in.
    pub fn connect(address: &Address, login: Arc<Login>, tls: Option<&tls::Context>) -> Result<Self, Error> {
        let dialer = Dialer {
            address: address.clone(),
            login,
            tls: tls.cloned().map(ContextSource::Shared),
            transport: Transport::Blocking,
        };
        let deadline = Deadline::from_now();
        let mut connecting = dialer.dial(None)?;
        loop {
            deadline.check()?;
            match connecting.advance(Readiness::Readable)? {
                Progress::Pending(pending) => connecting = pending,
                Progress::Done(Connected { channel, server, .. }) => return Ok(Self { channel, server }),
            }
        }
    }

    /// What the server said of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// What TLS agreed on, where there is TLS.
    pub fn negotiated(&self) -> Option<tls::Negotiated> {
        self.channel.negotiated()
    }

    /// Runs a statement and returns its rows, of all result sets.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        command::encode_query(self.channel.output(), sql)?;
        self.channel.send()?;
        let mut reader = RowsReader::new(self.server.capabilities, RESULT_LIMIT_BYTES);
        let deadline = Deadline::from_now();
        loop {
            deadline.check()?;
            let rows = self.channel.read_response(Readiness::Readable, |input| reader.step(input))?;
            if let Some(rows) = rows {
                return Ok(rows);
            }
        }
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
        command::encode_quit(self.channel.output());
        self.channel.close()
    }
}

/// The end of the caller's patience. Each read waits for so long at most, so that it is noticed.
struct Deadline(Instant);

impl Deadline {
    fn from_now() -> Self {
        Self(Instant::now() + BLOCKING_LIMIT)
    }

    fn check(&self) -> Result<(), Error> {
        if Instant::now() < self.0 {
            return Ok(());
        }
        Err(Error::TimedOut { seconds: BLOCKING_LIMIT.as_secs() })
    }
}
