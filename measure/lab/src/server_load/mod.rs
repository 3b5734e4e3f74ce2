//! The load that a server at a URL counts: its counters are read twice, some seconds apart.
//!
//! Nothing is measured and nothing is changed. The reader has one connection and sends a few queries; both are subtracted.

mod between;
mod describe;
mod mysql;
mod postgres;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Engine, ServerUrl, TlsVersion};
use serde::{Deserialize, Serialize};

pub use self::between::{ServerRestarted, load_between};
pub use self::describe::describe;
pub use self::postgres::MIN_INTERVAL as POSTGRES_MIN_INTERVAL;
pub use self::reading::{CountsByPart, LoadReading, OpenConnections, OpenTls, ServerStart};
use crate::error::Error;
use crate::remote::login::{Passwords, log_in};
use crate::server_load::reading::CounterReader;
use crate::servers::control;

/// The load of a server between two readings. Rates include all databases and accounts of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerLoad {
    /// Time between the readings.
    pub seconds: f64,
    /// New connections; MySQL and MariaDB also count failed ones.
    pub connects_per_s: Option<f64>,
    pub statements_per_s: Option<f64>,
    /// Statements per new connection. Statements of connections that stay open count, too.
    pub statements_per_connection: Option<f64>,
    pub transactions_per_s: Option<f64>,
    /// The share of connects that used TLS; PostgreSQL does not count these, so there it is the share of open connections.
    pub encrypted_connect_share: Option<f64>,
    /// Shares of the open connections; what is missing to 1 has no TLS. Empty if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<TlsVersionShare>,
    /// Like `versions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suites: Vec<SuiteShare>,
    /// The share of TLS handshakes that resumed an earlier session.
    pub resumed_share: Option<f64>,
    pub aborted_connects_per_s: Option<f64>,
    /// Open client connections at the second reading.
    pub connected_clients: Option<u64>,
    /// The most since the start of the server.
    pub most_connected_clients: Option<u64>,
    /// Why a value is absent.
    pub absent: BTreeMap<LoadValue, LoadAbsence>,
}

/// The share of open connections that use this TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsVersionShare {
    pub version: TlsVersion,
    pub share: f64,
}

/// The share of open connections that use this cipher suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteShare {
    /// OpenSSL's name.
    pub suite: String,
    pub share: f64,
}

/// A value of [`ServerLoad`] that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadValue {
    ConnectsPerS,
    StatementsPerS,
    StatementsPerConnection,
    TransactionsPerS,
    EncryptedConnectShare,
    Versions,
    Suites,
    ResumedShare,
    AbortedConnectsPerS,
    ConnectedClients,
    MostConnectedClients,
}

/// Why a value of [`ServerLoad`] is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadAbsence {
    /// The account lacks the right to read it.
    MissingRight,
    /// The server does not count it, or its counter is switched off.
    NotCounted,
    /// This counter was reset between the readings, or lost entries.
    Reset,
    /// A share of nothing: there were no connects, no handshakes, or no open connections.
    Idle,
}

type ReadCounters = fn(&mut CounterReader) -> Result<LoadReading, Error>;

/// Reads the counters of the server twice. For PostgreSQL, `interval` is at least [`POSTGRES_MIN_INTERVAL`]. Fails if the
/// server counts nothing that this needs, or if its counters were reset in between.
pub fn read(
    name: &str,
    url: &ServerUrl,
    passwords: &Passwords,
    interval: Duration,
) -> Result<ServerLoad, Error> {
    let no_counters =
        |reason: &str| Error::NoLoadCounters { name: name.to_owned(), reason: reason.to_owned() };
    let (read_counters, interval) = match url.engine() {
        Engine::MariaDb | Engine::MySql => (mysql::read as ReadCounters, interval),
        Engine::Postgres => (postgres::read as ReadCounters, interval.max(POSTGRES_MIN_INTERVAL)),
        Engine::MongoDb | Engine::FerretDb => {
            return Err(no_counters("the load of document databases cannot be read"));
        }
    };
    let mut reader = CounterReader::new(log_in(name, url, passwords)?);
    let first = read_counters(&mut reader)?;
    if first.is_empty() {
        return Err(no_counters("it counts neither connections nor statements nor transactions"));
    }
    let began = Instant::now();
    thread::sleep(interval);
    let second = read_counters(&mut reader)?;
    // The last query of a reading takes as long both times.
    let seconds = began.elapsed().as_secs_f64();
    control::close(reader.into_client())?;
    load_between(&first, &second, seconds)
        .map_err(|ServerRestarted| Error::CountersReset { name: name.to_owned() })
}
