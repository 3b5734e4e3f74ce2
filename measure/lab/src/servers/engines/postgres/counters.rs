//! PostgreSQL's counters, settings and buffers.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;

use super::super::sql;
use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::servers::control::{self, ControlLogin, RETRY_AFTER};
use crate::servers::counters::{ConnectionCounts, Counters};
use crate::servers::encryption::ConnectionEncryption;
use crate::servers::engine::UnmetSetting;

/// A reload takes milliseconds, or longer on a loaded machine.
const RELOAD_LIMIT: Duration = Duration::from_mins(1);
/// Time that closed connections have to end and to publish their counters.
const ENDING_LIMIT: Duration = Duration::from_secs(1);
/// From version 15, counters are in shared memory.
const SHARED_COUNTERS: u64 = 150_000;
/// Before version 15, the statistics collector writes counters every 500 ms.
const COLLECTOR_INTERVAL: Duration = Duration::from_millis(600);

/// Reloads the configuration, and waits until a new connection reports it. A new one, because then the postmaster has
/// completed the reload: existing connections reload on their own.
pub(crate) fn reload(control: &ControlLogin) -> Result<(), Error> {
    let doing = "reload the server's configuration";
    let load_time = |client: &mut Client| control::query(client, doing, "SELECT pg_conf_load_time()");
    let mut client = control.connect()?;
    let before = load_time(&mut client)?;
    control::execute(&mut client, doing, "SELECT pg_reload_conf()")?;
    let deadline = Instant::now() + RELOAD_LIMIT;
    while load_time(&mut control.connect()?)? == before {
        if Instant::now() >= deadline {
            return Err(Error::NotReloaded { limit: RELOAD_LIMIT });
        }
        thread::sleep(RETRY_AFTER);
    }
    Ok(())
}

/// Statements that read every page of rows through an index, then the pages that have no rows yet.
const READ_SYSBENCH: [&str; 3] = [
    "SELECT sum(length(c)) FROM sbtest1 WHERE id >= 0",
    "SELECT sum(k) FROM sbtest1 WHERE k >= 0",
    "SELECT count(pad) FROM sbtest1",
];
const READ_PGBENCH: [&str; 7] = [
    "SELECT sum(length(filler)) FROM pgbench_accounts WHERE aid >= 0",
    "SELECT sum(bbalance) FROM pgbench_branches WHERE bid >= 0",
    "SELECT sum(tbalance) FROM pgbench_tellers WHERE tid >= 0",
    "SELECT count(filler) FROM pgbench_accounts",
    "SELECT count(filler) FROM pgbench_branches",
    "SELECT count(filler) FROM pgbench_tellers",
    "SELECT count(filler) FROM pgbench_history",
];

/// Reads through the indexes, because a sequential scan of a large table uses a small ring of buffers.
pub(crate) fn prewarm(control: &ControlLogin, tables: &Tables) -> Result<(), Error> {
    let mut client = control.connect()?;
    for setting in ["enable_seqscan", "enable_bitmapscan", "max_parallel_workers_per_gather"] {
        control::execute(&mut client, "read all rows", &format!("SET {setting} = 0"))?;
    }
    sql::prewarm(&mut client, &tables.select(&READ_SYSBENCH, &READ_PGBENCH), buffer_misses)
}

/// Waits for closed connections first, because they publish their counters when they end.
pub(crate) fn counters(control: &ControlLogin) -> Result<Counters, Error> {
    let mut client = control.connect()?;
    await_closed_connections(&mut client)?;
    let version = number(&mut client, "SHOW server_version_num", "server_version_num")?;
    if version < SHARED_COUNTERS {
        thread::sleep(COLLECTOR_INTERVAL);
    }
    let buffer_misses = buffer_misses(&mut client)?;
    let rows = control::query(&mut client, "read the server's counters", &all_counters(version))?;
    let mut values = rows.into_iter().flatten().map(|value| value.parse::<u64>().ok());
    let mut next = || values.next().flatten();
    Ok(Counters {
        buffer_misses: Some(buffer_misses),
        pages_read: next(),
        pages_written: next(),
        wal_bytes: next(),
        full_page_images: next(),
        wal_syncs: next(),
        checkpoints_begun: next(),
        checkpoint_lsn: next(),
        checkpoints_completed: next(),
        checkpoint_age_bytes: None,
    })
}

/// A query for one row of counters, whose places differ between versions. Up to version 15, pages written by backends
/// include file extensions; from version 16 they do not.
fn all_counters(version: u64) -> String {
    let written = match version {
        ..160_000 => "SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter",
        160_000..180_000 => "SELECT sum(writes)::bigint FROM pg_stat_io WHERE object = 'relation'",
        _ => {
            "SELECT (sum(write_bytes) / current_setting('block_size')::int)::bigint FROM pg_stat_io \
             WHERE object = 'relation'"
        }
    };
    let syncs = match version {
        ..180_000 => "SELECT wal_sync FROM pg_stat_wal",
        _ => "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'",
    };
    let begun = match version {
        ..170_000 => "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
        _ => "SELECT num_timed + num_requested FROM pg_stat_checkpointer",
    };
    let done = match version {
        ..180_000 => "SELECT ''",
        _ => "SELECT num_done::text FROM pg_stat_checkpointer",
    };
    let counters = [
        "SELECT sum(blks_read)::bigint FROM pg_stat_database",
        written,
        "SELECT wal_bytes::bigint FROM pg_stat_wal",
        "SELECT wal_fpi FROM pg_stat_wal",
        syncs,
        begun,
        "SELECT (checkpoint_lsn - '0/0')::bigint FROM pg_control_checkpoint()",
        done,
    ];
    format!("SELECT ({})", counters.join("), ("))
}

/// Includes control connections. Waits for closed connections first.
pub(crate) fn connection_counts(control: &ControlLogin) -> Result<ConnectionCounts, Error> {
    let mut client = control.connect()?;
    await_closed_connections(&mut client)?;
    let version = number(&mut client, "SHOW server_version_num", "server_version_num")?;
    if version < SHARED_COUNTERS {
        return Ok(ConnectionCounts::default());
    }
    let of_database =
        |what: &str| format!("SELECT {what} FROM pg_stat_database WHERE datname = current_database()");
    let connections = number(&mut client, &of_database("sessions"), "sessions")?;
    let requests = number(&mut client, &of_database("xact_commit + xact_rollback"), "xact_commit")?;
    Ok(ConnectionCounts {
        connections: Some(connections),
        requests: Some(requests),
        ..ConnectionCounts::default()
    })
}

pub(crate) fn open_connections(
    client: &mut Client,
    role: &str,
) -> Result<Vec<(ConnectionEncryption, u64)>, Error> {
    let sql = format!(
        "SELECT coalesce(s.version, ''), coalesce(s.cipher, ''), count(*) \
         FROM pg_stat_activity a JOIN pg_stat_ssl s ON s.pid = a.pid \
         WHERE a.backend_type = 'client backend' AND a.usename = '{role}' GROUP BY 1, 2"
    );
    let rows = control::query(client, "list the server's connections", &sql)?;
    let row = |row: Vec<String>| {
        let [version, suite, count] = <[String; 3]>::try_from(row).ok()?;
        Some((ConnectionEncryption::from_names(&version, &suite), count.parse().ok()?))
    };
    Ok(rows.into_iter().filter_map(row).collect())
}

fn await_closed_connections(client: &mut Client) -> Result<(), Error> {
    let others = "SELECT count(*) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let deadline = Instant::now() + ENDING_LIMIT;
    while number(client, others, "pg_stat_activity")? > 0 && Instant::now() < deadline {
        thread::sleep(RETRY_AFTER);
    }
    Ok(())
}

/// Waits for closed connections first.
pub(crate) fn settled_buffer_misses(control: &ControlLogin) -> Result<u64, Error> {
    let mut client = control.connect()?;
    await_closed_connections(&mut client)?;
    buffer_misses(&mut client)
}

fn buffer_misses(client: &mut Client) -> Result<u64, Error> {
    let doing = "read the server's counters";
    let version = number(client, "SHOW server_version_num", "server_version_num")?;
    // Otherwise a connection may publish its counters a second or more later.
    if version >= SHARED_COUNTERS {
        control::execute(client, doing, "SELECT pg_stat_force_next_flush()")?;
    }
    let reads = "SELECT coalesce(sum(heap_blks_read + coalesce(idx_blks_read, 0)), 0)::bigint \
         FROM pg_statio_user_tables";
    number(client, reads, "heap_blks_read and idx_blks_read")
}

fn number(client: &mut Client, sql: &str, counter: &'static str) -> Result<u64, Error> {
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter(counter))
}

/// The settings in `requested` that the server does not take from its file. The server compares values: `64MB` equals
/// `65536kB`.
pub(crate) fn unmet_settings(
    control: &ControlLogin,
    requested: &BTreeMap<String, String>,
) -> Result<Vec<UnmetSetting>, Error> {
    // A setting took effect if its value comes from its line in the file. Names are case-insensitive.
    let all = "SELECT lower(s.name), current_setting(s.name), (f.name IS NOT NULL)::text \
         FROM pg_settings s LEFT JOIN pg_file_settings f \
         ON lower(f.name) = lower(s.name) AND f.sourcefile = s.sourcefile AND f.sourceline = s.sourceline \
         AND f.applied";
    let rows = control::query(&mut control.connect()?, "read the server's settings", all)?;
    let known: BTreeMap<String, (String, bool)> = rows
        .into_iter()
        .filter_map(|row| <[String; 3]>::try_from(row).ok())
        .map(|[name, value, from_file]| (name, (value, from_file == "true")))
        .collect();
    let unmet = requested.keys().filter_map(|name| match known.get(name) {
        Some((_, true)) => None,
        Some((value, false)) => Some(UnmetSetting { name: name.clone(), value: Some(value.clone()) }),
        None => Some(UnmetSetting { name: name.clone(), value: None }),
    });
    Ok(unmet.collect())
}
