//! The counters of PostgreSQL: the statistics views.

use std::time::Duration;

use super::LoadAbsence;
use super::reading::{CounterReader, CountsByPart, LoadReading, OpenConnections, ServerStart, of_server};
use crate::error::Error;

/// A session publishes its counters once per second while it works, and at its end. An error of one second then is at most a
/// tenth.
pub const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// From this version, sessions are counted.
const SESSIONS: u64 = 140_000;
/// From this version, a session can be told to publish its counters.
const FLUSH: u64 = 150_000;

/// Resets of single databases are found by their falling counters.
const START: &str = "SELECT current_setting('server_version_num'), pg_postmaster_start_time()::text, \
     pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::text";
const OPEN: &str = "SELECT coalesce(s.version, ''), coalesce(s.cipher, ''), count(*) \
     FROM pg_stat_activity a LEFT JOIN pg_stat_ssl s ON s.pid = a.pid \
     WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() GROUP BY 1, 2";
const SCHEMA_OF_STATEMENTS: &str = "SELECT quote_ident(n.nspname) FROM pg_extension e \
     JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'";

pub(super) fn read(reader: &mut CounterReader) -> Result<LoadReading, Error> {
    let own_statements = reader.statements();
    let row = reader.query(START)?.ok().and_then(|rows| rows.into_iter().next());
    let [version, started, right] = row.and_then(|row| row.try_into().ok()).unwrap_or_default();
    let version: u64 = version.parse().unwrap_or_default();
    if version >= FLUSH {
        // Otherwise the reader's own transactions would be counted in another reading than they are subtracted from.
        _ = reader.query("SELECT pg_stat_force_next_flush()")?;
    }
    let [connections, transactions, backends] = databases(reader, version)?;
    let (statements_since, statements) = statements(reader, version)?;
    let open = if right == "true" { open_connections(reader)? } else { Err(LoadAbsence::MissingRight) };
    let listed = open.as_ref().map(|open| open.iter().map(|open| open.connections).sum());
    // Without the right, processes of parallel queries count, too.
    let connected_clients =
        listed.or_else(|_| backends.map(|all| all.values().sum::<u64>().saturating_sub(1)));
    Ok(LoadReading {
        start: ServerStart::At(started),
        own_statements,
        connections,
        statements,
        statements_since,
        transactions,
        handshakes: Err(LoadAbsence::NotCounted),
        resumed_handshakes: Err(LoadAbsence::NotCounted),
        aborted_connects: Err(LoadAbsence::NotCounted),
        open,
        connected_clients,
        most_connected_clients: Err(LoadAbsence::NotCounted),
    })
}

/// Sessions, transactions and backends by database.
fn databases(
    reader: &mut CounterReader,
    version: u64,
) -> Result<[Result<CountsByPart, LoadAbsence>; 3], Error> {
    let sessions = if version < SESSIONS { "NULL" } else { "sessions" };
    // Each session begins with an internal transaction, before the first transaction of its client.
    let sql = format!(
        "SELECT datid, {sessions}, xact_commit + xact_rollback - coalesce({sessions}, 0), numbackends \
         FROM pg_stat_database WHERE datname IS NOT NULL"
    );
    let rows = match reader.query(&sql)? {
        Ok(rows) => rows,
        Err(absence) => return Ok([Err(absence), Err(absence), Err(absence)]),
    };
    let column = |column: usize| {
        let part = |row: &Vec<String>| Some((row.first()?.clone(), row.get(column)?.parse().ok()?));
        let counts: CountsByPart = rows.iter().filter_map(part).collect();
        if counts.is_empty() { Err(LoadAbsence::NotCounted) } else { Ok(counts) }
    };
    Ok([column(1), column(2), column(3)])
}

/// What changes when entries are evicted or reset, and the calls that `pg_stat_statements` has counted, if it is there. It
/// evicts rare statements for new ones, and then their calls are lost.
fn statements(
    reader: &mut CounterReader,
    version: u64,
) -> Result<(String, Result<CountsByPart, LoadAbsence>), Error> {
    let absent = |absence| Ok((String::new(), Err(absence)));
    let schema = match reader.query(SCHEMA_OF_STATEMENTS)? {
        Ok(rows) => rows.into_iter().flatten().next(),
        Err(absence) => return absent(absence),
    };
    let Some(schema) = schema else { return absent(LoadAbsence::NotCounted) };
    // Both are there from version 14 of the server; an extension that was not updated since lacks them.
    let evictions = format!("(SELECT dealloc || ' ' || stats_reset FROM {schema}.pg_stat_statements_info)");
    let calls = format!("coalesce(sum(calls), 0)::bigint FROM {schema}.pg_stat_statements");
    let (newer, older) =
        (format!("SELECT {evictions}, {calls} WHERE toplevel"), format!("SELECT '', {calls}"));
    let counted = match version {
        // The same number of queries in each reading, as the reader subtracts them.
        SESSIONS.. => reader.query(&newer)?.or(reader.query(&older)?),
        _ => reader.query(&older)?,
    };
    let rows = match counted {
        Ok(rows) => rows,
        Err(absence) => return absent(absence),
    };
    let counts = rows.into_iter().next().and_then(|row| {
        let [since, calls] = <[String; 2]>::try_from(row).ok()?;
        Some((since, Ok(of_server(calls.parse().ok()?))))
    });
    Ok(counts.unwrap_or_else(|| (String::new(), Err(LoadAbsence::NotCounted))))
}

fn open_connections(reader: &mut CounterReader) -> Result<Result<Vec<OpenConnections>, LoadAbsence>, Error> {
    let connections = |row: Vec<String>| {
        let [version, suite, count] = <[String; 3]>::try_from(row).ok()?;
        Some(OpenConnections::from_names(&version, &suite, count.parse().ok()?))
    };
    Ok(reader.query(OPEN)?.map(|rows| rows.into_iter().filter_map(connections).collect()))
}
