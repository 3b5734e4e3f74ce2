//! Creates, fills and analyzes SQL tables in a new data directory.

use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;

use crate::datasets::progress::LoadProgress;
use crate::datasets::rows::{RowFormat, TableRows};
use crate::datasets::tables::Tables;
use crate::datasets::{pgbench, sysbench};
use crate::error::Error;
use crate::servers::control;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Creates and fills the tables of MariaDB or MySQL in the connection's schema.
pub(crate) fn load_mysql_family(
    client: &mut Client,
    name: &str,
    tables: &Tables,
    progress: &mut LoadProgress<'_>,
) -> Result<(), Error> {
    execute_all(client, "create a table", tables.sysbench.map(|_| sysbench::CREATE_MYSQL_FAMILY_TABLE))?;
    execute_all(
        client,
        "create a table",
        tables.branches().into_iter().flat_map(|_| pgbench::CREATE_MYSQL_FAMILY_TABLES),
    )?;
    TableLoad::new(name, tables, progress).fill(client, tables, RowFormat::Insert)?;
    execute_all(client, "create an index", tables.sysbench.map(|_| sysbench::CREATE_INDEX))?;
    // Otherwise the server would do it in the background during a measurement.
    for table in tables.names() {
        control::execute(client, "analyze a table", &format!("ANALYZE TABLE {table}"))?;
    }
    Ok(())
}

pub(crate) fn load_postgres(
    client: &mut Client,
    name: &str,
    tables: &Tables,
    progress: &mut LoadProgress<'_>,
) -> Result<(), Error> {
    execute_all(client, "create a table", tables.sysbench.map(|_| sysbench::CREATE_POSTGRES_TABLE))?;
    execute_all(
        client,
        "create a table",
        tables.branches().into_iter().flat_map(|_| pgbench::CREATE_POSTGRES_TABLES),
    )?;
    TableLoad::new(name, tables, progress).fill(client, tables, RowFormat::Copy)?;
    execute_all(client, "create an index", tables.sysbench.map(|_| sysbench::CREATE_INDEX))?;
    execute_all(
        client,
        "create an index",
        tables.branches().into_iter().flat_map(|_| pgbench::ADD_POSTGRES_KEYS),
    )?;
    for table in tables.names() {
        control::execute(client, "analyze a table", &format!("VACUUM ANALYZE {table}"))?;
    }
    Ok(())
}

fn execute_all(
    client: &mut Client,
    doing: &'static str,
    statements: impl IntoIterator<Item = &'static str>,
) -> Result<(), Error> {
    statements.into_iter().try_for_each(|sql| control::execute(client, doing, sql))
}

struct TableLoad<'a, 'w> {
    name: &'a str,
    progress: &'a mut LoadProgress<'w>,
    total: u64,
    /// Rows of the completed tables.
    done: u64,
    reported: Instant,
}

impl<'a, 'w> TableLoad<'a, 'w> {
    fn new(name: &'a str, tables: &Tables, progress: &'a mut LoadProgress<'w>) -> Self {
        let total = table_rows(tables).map(|table_rows| u64::from(table_rows.rows)).sum();
        Self { name, progress, total, done: 0, reported: Instant::now() }
    }

    fn fill(&mut self, client: &mut Client, tables: &Tables, format: RowFormat) -> Result<(), Error> {
        for table_rows in table_rows(tables) {
            let rows = table_rows.rows;
            match format {
                RowFormat::Insert => self.insert(client, table_rows)?,
                RowFormat::Copy => self.copy(client, table_rows)?,
            }
            self.done += u64::from(rows);
        }
        Ok(())
    }

    fn insert(&mut self, client: &mut Client, table_rows: TableRows) -> Result<(), Error> {
        for (statement, rows) in table_rows.batches(RowFormat::Insert) {
            self.progress.check_interrupt()?;
            control::execute(client, "load rows", &statement)?;
            self.report(rows);
        }
        Ok(())
    }

    fn copy(&mut self, client: &mut Client, table_rows: TableRows) -> Result<(), Error> {
        let sql = format!("COPY {} ({}) FROM STDIN", table_rows.table, table_rows.columns);
        let pieces = table_rows.batches(RowFormat::Copy).map_while(|(lines, rows)| {
            self.progress.check_interrupt().ok()?;
            self.report(rows);
            Some(lines.into_bytes())
        });
        client.copy_in(&sql, pieces).map_err(|source| Error::Control { doing: "load rows", source })?;
        // An interrupted `COPY` is incomplete.
        self.progress.check_interrupt()
    }

    fn report(&mut self, rows: u32) {
        if self.reported.elapsed() >= PROGRESS_INTERVAL {
            self.reported = Instant::now();
            let done = self.done + u64::from(rows);
            self.progress.report(&format!("{}: {done} of {} rows", self.name, self.total));
        }
    }
}

fn table_rows(tables: &Tables) -> impl Iterator<Item = TableRows> {
    let sysbench = tables.sysbench.map(|scale| sysbench::table_rows(scale.rows()));
    sysbench.into_iter().chain(tables.branches().into_iter().flat_map(pgbench::table_rows))
}
