//! One reading of a server's counters, and the connection that reads them.

use std::collections::BTreeMap;

use ciphertoll_model::TlsVersion;
use ciphertoll_net::blocking::Client;

use super::LoadAbsence;
use crate::error::Error;
use crate::servers::control;

/// Codes of servers for a missing right: PostgreSQL's SQLSTATE, and numbers of MySQL and MariaDB.
const MISSING_RIGHT: [&str; 5] = ["42501", "1044", "1142", "1143", "1227"];
/// The same for a table, column, function, variable or library that is not there.
const NOT_COUNTED: [&str; 8] = ["42P01", "42703", "42883", "55000", "1049", "1054", "1146", "1193"];

/// A counter by what it is counted for: a database, or the whole server.
pub type CountsByPart = BTreeMap<String, u64>;

/// Counters of a server at one time; absent if the server does not have them.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReading {
    pub start: ServerStart,
    /// Queries of the reader before this reading.
    pub own_statements: u64,
    pub connections: Result<CountsByPart, LoadAbsence>,
    pub statements: Result<CountsByPart, LoadAbsence>,
    /// Changes when the counter of statements is reset or loses entries.
    pub statements_since: String,
    pub transactions: Result<CountsByPart, LoadAbsence>,
    /// Completed TLS handshakes.
    pub handshakes: Result<CountsByPart, LoadAbsence>,
    pub resumed_handshakes: Result<CountsByPart, LoadAbsence>,
    pub aborted_connects: Result<CountsByPart, LoadAbsence>,
    /// Open connections of clients, without the reader's.
    pub open: Result<Vec<OpenConnections>, LoadAbsence>,
    pub connected_clients: Result<u64, LoadAbsence>,
    pub most_connected_clients: Result<u64, LoadAbsence>,
}

/// When the server began to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStart {
    /// In the server's own format, only to be compared.
    At(String),
    /// That long ago.
    SecondsAgo(u64),
}

/// Open connections with the same encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnections {
    pub connections: u64,
    /// `None` without TLS.
    pub tls: Option<OpenTls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTls {
    /// `None` if it is one that this program does not know.
    pub version: Option<TlsVersion>,
    pub suite: String,
}

impl LoadReading {
    /// Whether there is nothing to compute a rate from.
    pub(super) fn is_empty(&self) -> bool {
        [&self.connections, &self.statements, &self.transactions].into_iter().all(Result::is_err)
    }
}

impl ServerStart {
    /// Whether a reading `seconds` later has the same start. The start may have become later while as many seconds passed.
    pub(super) fn is_start_of(&self, later: &Self, seconds: f64) -> bool {
        /// Servers round to seconds.
        const ROUNDING_S: f64 = 2.0;
        match (self, later) {
            (Self::At(first), Self::At(second)) => first == second,
            (Self::SecondsAgo(first), Self::SecondsAgo(second)) => {
                *second as f64 + ROUNDING_S >= *first as f64 + seconds
            }
            (Self::At(_), Self::SecondsAgo(_)) | (Self::SecondsAgo(_), Self::At(_)) => false,
        }
    }
}

impl OpenConnections {
    /// From OpenSSL's names of version and suite; an empty version means no TLS.
    pub(super) fn from_names(version: &str, suite: &str, connections: u64) -> Self {
        let tls = (!version.is_empty()).then(|| {
            // OpenSSL calls TLS 1.0 "TLSv1".
            let number = version.trim_start_matches("TLSv");
            let label = if number == "1" { "tls1.0".to_owned() } else { format!("tls{number}") };
            OpenTls { version: TlsVersion::from_label(&label), suite: suite.to_owned() }
        });
        Self { connections, tls }
    }
}

/// A counter of the whole server.
pub(super) fn of_server(count: u64) -> CountsByPart {
    BTreeMap::from([(String::new(), count)])
}

/// A connection that counts its own queries.
pub(super) struct CounterReader {
    client: Client,
    statements: u64,
}

impl CounterReader {
    pub(super) fn new(client: Client) -> Self {
        Self { client, statements: 0 }
    }

    pub(super) fn statements(&self) -> u64 {
        self.statements
    }

    pub(super) fn into_client(self) -> Client {
        self.client
    }

    /// The rows of a query as text. The inner error: the server refuses this query, but accepts others.
    pub(super) fn query(&mut self, sql: &str) -> Result<Result<Vec<Vec<String>>, LoadAbsence>, Error> {
        self.statements += 1;
        match control::query(&mut self.client, "read the server's load", sql) {
            Ok(rows) => Ok(Ok(rows)),
            Err(Error::Control { doing, source: ciphertoll_net::Error::Protocol(error) }) => {
                let is_one_of = |codes: &[&str]| codes.iter().any(|code| error.is_refusal(code));
                if is_one_of(&MISSING_RIGHT) {
                    Ok(Err(LoadAbsence::MissingRight))
                } else if is_one_of(&NOT_COUNTED) {
                    Ok(Err(LoadAbsence::NotCounted))
                } else {
                    Err(Error::Control { doing, source: error.into() })
                }
            }
            Err(error) => Err(error),
        }
    }
}
