//! How tables come into a new data directory: made, filled, counted.

use std::fmt::Write;
use std::iter;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;

use crate::control;
use crate::error::Error;
use crate::tables::Tables;
use crate::{pgbench, rows};

/// Far below what a server takes in one packet, and enough that a statement's own cost does not count.
const BATCH_BYTES: usize = 200_000;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The rows of one table.
pub(crate) struct Filling {
    pub(crate) table: &'static str,
    pub(crate) columns: &'static str,
    pub(crate) rows: u32,
    /// Writes the values of the row with this index, in the order of the columns.
    pub(crate) write_row: WriteRow,
}

type WriteRow = Box<dyn FnMut(u32, &mut Batch)>;

/// How rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// As a statement.
    Insert,
    /// As lines of `PostgreSQL`'s `COPY`.
    Copy,
}

/// Rows as text. Nothing in them needs to be escaped.
pub(crate) struct Batch {
    format: Format,
    text: String,
    first_value: bool,
}

/// Whom loading tells how far it is, and who may end it.
pub(crate) struct Watcher<'a> {
    pub(crate) progress: &'a mut dyn FnMut(&str),
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl Watcher<'_> {
    pub(crate) fn say(&mut self, what: &str) {
        (self.progress)(what);
    }

    /// Fails where somebody wants an end.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        if (self.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Filling {
    /// Its rows in pieces, each with the number of rows so far.
    pub(crate) fn batches(mut self, format: Format) -> impl Iterator<Item = (String, u32)> {
        let mut done = 0;
        iter::from_fn(move || {
            if done == self.rows {
                return None;
            }
            let mut batch = Batch { format, text: self.opening(format), first_value: true };
            while done < self.rows && batch.text.len() < BATCH_BYTES {
                batch.begin_row();
                (self.write_row)(done, &mut batch);
                batch.end_row();
                done += 1;
            }
            Some((batch.finish(), done))
        })
    }

    fn opening(&self, format: Format) -> String {
        match format {
            Format::Insert => format!("INSERT INTO {} ({}) VALUES ", self.table, self.columns),
            Format::Copy => String::new(),
        }
    }
}

impl Batch {
    /// The next value.
    pub(crate) fn number(&mut self, number: u32) {
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
    }

    /// The next value: what `write` writes. Digits, letters and dashes only.
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut String)) {
        self.separate();
        match self.format {
            Format::Insert => {
                self.text.push('\'');
                write(&mut self.text);
                self.text.push('\'');
            }
            Format::Copy => write(&mut self.text),
        }
    }

    fn separate(&mut self) {
        if !self.first_value {
            self.text.push(match self.format {
                Format::Insert => ',',
                Format::Copy => '\t',
            });
        }
        self.first_value = false;
    }

    fn begin_row(&mut self) {
        self.first_value = true;
        if self.format == Format::Insert {
            self.text.push('(');
        }
    }

    fn end_row(&mut self) {
        self.text.push_str(match self.format {
            Format::Insert => "),",
            Format::Copy => "\n",
        });
    }

    fn finish(mut self) -> String {
        if self.format == Format::Insert {
            self.text.pop();
        }
        self.text
    }
}

/// Makes and fills the tables of a MariaDB or a MySQL in the schema that the connection is in.
pub(crate) fn load_mysql_family(
    client: &mut Client,
    name: &str,
    tables: &Tables,
    watcher: &mut Watcher<'_>,
) -> Result<(), Error> {
    make(client, tables.sysbench.map(|_| rows::CREATE_MYSQL_FAMILY_TABLE))?;
    make(client, tables.branches().into_iter().flat_map(|_| pgbench::CREATE_MYSQL_FAMILY_TABLES))?;
    Loading::of(name, tables, watcher).fill(client, tables, Format::Insert)?;
    make_indexes(client, tables.sysbench.map(|_| rows::CREATE_INDEX))?;
    // Else it would count them itself in the background, while something is measured.
    for table in tables.names() {
        control::execute(client, "count the rows", &format!("ANALYZE TABLE {table}"))?;
    }
    Ok(())
}

/// The same for `PostgreSQL`.
pub(crate) fn load_postgres(
    client: &mut Client,
    name: &str,
    tables: &Tables,
    watcher: &mut Watcher<'_>,
) -> Result<(), Error> {
    make(client, tables.sysbench.map(|_| rows::CREATE_POSTGRES_TABLE))?;
    make(client, tables.branches().into_iter().flat_map(|_| pgbench::CREATE_POSTGRES_TABLES))?;
    Loading::of(name, tables, watcher).fill(client, tables, Format::Copy)?;
    make_indexes(client, tables.sysbench.map(|_| rows::CREATE_INDEX))?;
    make_indexes(client, tables.branches().into_iter().flat_map(|_| pgbench::ADD_POSTGRES_KEYS))?;
    for table in tables.names() {
        control::execute(client, "count the rows", &format!("VACUUM ANALYZE {table}"))?;
    }
    Ok(())
}

fn make(client: &mut Client, statements: impl IntoIterator<Item = &'static str>) -> Result<(), Error> {
    statements.into_iter().try_for_each(|sql| control::execute(client, "make a table", sql))
}

fn make_indexes(
    client: &mut Client,
    statements: impl IntoIterator<Item = &'static str>,
) -> Result<(), Error> {
    statements.into_iter().try_for_each(|sql| control::execute(client, "make an index", sql))
}

/// How far all tables together are.
struct Loading<'a, 'w> {
    name: &'a str,
    watcher: &'a mut Watcher<'w>,
    total: u64,
    /// Rows of the tables that are filled.
    done: u64,
    told: Instant,
}

impl<'a, 'w> Loading<'a, 'w> {
    fn of(name: &'a str, tables: &Tables, watcher: &'a mut Watcher<'w>) -> Self {
        let total = fillings(tables).map(|filling| u64::from(filling.rows)).sum();
        Self { name, watcher, total, done: 0, told: Instant::now() }
    }

    fn fill(&mut self, client: &mut Client, tables: &Tables, format: Format) -> Result<(), Error> {
        for filling in fillings(tables) {
            let rows = filling.rows;
            match format {
                Format::Insert => self.insert(client, filling)?,
                Format::Copy => self.copy(client, filling)?,
            }
            self.done += u64::from(rows);
        }
        Ok(())
    }

    fn insert(&mut self, client: &mut Client, filling: Filling) -> Result<(), Error> {
        for (statement, rows) in filling.batches(Format::Insert) {
            self.watcher.go_on()?;
            control::execute(client, "load rows", &statement)?;
            self.tell(rows);
        }
        Ok(())
    }

    fn copy(&mut self, client: &mut Client, filling: Filling) -> Result<(), Error> {
        let sql = format!("COPY {} ({}) FROM STDIN", filling.table, filling.columns);
        let pieces = filling.batches(Format::Copy).map_while(|(lines, rows)| {
            self.watcher.go_on().ok()?;
            self.tell(rows);
            Some(lines.into_bytes())
        });
        client.copy_in(&sql, pieces).map_err(|source| Error::Control { doing: "load rows", source })?;
        // Where it was ended in the middle, nobody uses what there is.
        self.watcher.go_on()
    }

    fn tell(&mut self, rows: u32) {
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            let done = self.done + u64::from(rows);
            self.watcher.say(&format!("{}: {done} of {} rows", self.name, self.total));
        }
    }
}

fn fillings(tables: &Tables) -> impl Iterator<Item = Filling> {
    let sysbench = tables.sysbench.map(|scale| rows::filling(scale.rows()));
    sysbench.into_iter().chain(tables.branches().into_iter().flat_map(pgbench::fillings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rows: u32) -> Filling {
        let write_row = Box::new(|index, batch: &mut Batch| {
            batch.number(index);
            batch.text(|text| text.push_str("a-b"));
        });
        Filling { table: "t", columns: "n, word", rows, write_row }
    }

    #[test]
    fn rows_are_written_as_statement_and_as_lines() {
        let one = |format| counted(2).batches(format).next();
        let statement = "INSERT INTO t (n, word) VALUES (0,'a-b'),(1,'a-b')".to_owned();
        assert_eq!(one(Format::Insert), Some((statement, 2)));
        assert_eq!(one(Format::Copy), Some(("0\ta-b\n1\ta-b\n".to_owned(), 2)));
        assert_eq!(counted(0).batches(Format::Insert).next(), None);
    }

    #[test]
    fn pieces_are_bounded_and_make_up_the_whole() {
        let pieces: Vec<(String, u32)> = counted(60_000).batches(Format::Copy).collect();
        assert!(pieces.len() > 2 && pieces.iter().all(|(text, _)| text.len() < BATCH_BYTES + 100));
        assert_eq!(pieces.iter().map(|(text, _)| text.lines().count()).sum::<usize>(), 60_000);
        assert_eq!(pieces.last().map(|(_, done)| *done), Some(60_000));
    }
}
