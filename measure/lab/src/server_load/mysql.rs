//! The counters of MariaDB and MySQL. `SHOW GLOBAL STATUS` needs no right.

use std::collections::BTreeMap;

use super::LoadAbsence;
use super::reading::{CounterReader, LoadReading, OpenConnections, ServerStart, of_server};
use crate::error::Error;

const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Uptime_since_flush_status', 'Connections', \
     'Questions', 'Ssl_finished_accepts', 'Ssl_session_cache_hits', 'Aborted_connects', 'Threads_connected', \
     'Aborted_clients', \
     'Max_used_connections')";

/// Version and suite of each open connection. The performance schema is off by default on MariaDB, and then this is empty.
const OPEN: &str = "SELECT MAX(IF(s.VARIABLE_NAME = 'Ssl_version', s.VARIABLE_VALUE, '')), \
     MAX(IF(s.VARIABLE_NAME = 'Ssl_cipher', s.VARIABLE_VALUE, '')) \
     FROM performance_schema.status_by_thread s JOIN performance_schema.threads t ON t.THREAD_ID = s.THREAD_ID \
     WHERE t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND s.VARIABLE_NAME IN ('Ssl_version', 'Ssl_cipher') GROUP BY s.THREAD_ID";

pub(super) fn read(reader: &mut CounterReader) -> Result<LoadReading, Error> {
    let own_statements = reader.statements();
    let rows = reader.query(STATUS)?.unwrap_or_default();
    let status: BTreeMap<String, String> = rows
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[name, value]| (name.to_ascii_lowercase(), value))
        .collect();
    let number = |name: &str| {
        let value = status.get(name).and_then(|value| value.parse::<u64>().ok());
        value.ok_or(LoadAbsence::NotCounted)
    };
    // The server also counts COM_QUIT, which every connection sends at its end unless it was aborted.
    let counters = ["questions", "connections", "threads_connected", "aborted_connects", "aborted_clients"];
    let [questions, connections, open, refused, aborted] = counters.map(number);
    let closed = connections.map(|all| {
        let others = [open, refused, aborted].into_iter().flatten().sum::<u64>();
        all.saturating_sub(others)
    });
    let statements = questions.map(|questions| questions.saturating_sub(closed.unwrap_or_default()));
    let ages = [number("uptime"), number("uptime_since_flush_status")];
    // With OpenSSL 3, this stays 0 although handshakes are resumed, so 0 says nothing.
    let resumed = number("ssl_session_cache_hits").and_then(|hits| match hits {
        0 => Err(LoadAbsence::NotCounted),
        hits => Ok(of_server(hits)),
    });
    Ok(LoadReading {
        start: ServerStart::SecondsAgo(ages.into_iter().flatten().min().unwrap_or_default()),
        own_statements,
        connections: connections.map(of_server),
        statements: statements.map(of_server),
        statements_since: String::new(),
        // Statements outside of transactions are not counted as such.
        transactions: Err(LoadAbsence::NotCounted),
        handshakes: number("ssl_finished_accepts").map(of_server),
        resumed_handshakes: resumed,
        aborted_connects: refused.map(of_server),
        connected_clients: open.map(|all| all.saturating_sub(1)),
        most_connected_clients: number("max_used_connections"),
        open: open_connections(reader)?,
    })
}

fn open_connections(reader: &mut CounterReader) -> Result<Result<Vec<OpenConnections>, LoadAbsence>, Error> {
    // Without the own connection there would be no rows on an idle server either.
    let enabled = match reader.query("SELECT @@performance_schema")? {
        Ok(rows) => rows.into_iter().flatten().next().is_some_and(|value| value == "1"),
        Err(_) => false,
    };
    if !enabled {
        return Ok(Err(LoadAbsence::NotCounted));
    }
    let rows = reader.query(OPEN)?;
    let connection = |row: Vec<String>| {
        let [version, suite] = <[String; 2]>::try_from(row).ok()?;
        Some(OpenConnections::from_names(&version, &suite, 1))
    };
    Ok(rows.map(|rows| rows.into_iter().filter_map(connection).collect()))
}
