//! The rows of sysbench's OLTP tables, so that sysbench and mysqlslap can run on ours.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The schema, or database, that sysbench looks for.
pub(crate) const SCHEMA: &str = "sbtest";
/// As `oltp_common.lua` of sysbench 1.0 makes it.
pub(crate) const CREATE_MARIADB_TABLE: &str = "CREATE TABLE sbtest1 (id INTEGER NOT NULL AUTO_INCREMENT, \
     k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, \
     PRIMARY KEY (id)) ENGINE = innodb";
/// The same for `PostgreSQL`.
pub(crate) const CREATE_POSTGRES_TABLE: &str = "CREATE TABLE sbtest1 (id SERIAL, \
     k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, \
     PRIMARY KEY (id))";
/// Made after the rows: one sorted pass instead of a random write for each.
pub(crate) const CREATE_INDEX: &str = "CREATE INDEX k_1 ON sbtest1 (k)";

/// Rows of one statement: about 200 kB, well below the server's limit for a packet.
const BATCH: u32 = 1_000;
/// The same rows in every template.
const SEED: u64 = 0x7011;
/// Groups of eleven digits in each of the two text columns, as in sysbench.
const C_GROUPS: usize = 10;
const PAD_GROUPS: usize = 5;
const GROUP_DIGITS: usize = 11;

/// `INSERT` statements for `rows` rows, each with the number of rows after it.
pub(crate) fn inserts(rows: u32) -> impl Iterator<Item = (String, u32)> {
    let mut random = StdRng::seed_from_u64(SEED);
    (0..rows).step_by(BATCH as usize).map(move |start| {
        let end = start.saturating_add(BATCH).min(rows);
        let mut statement = String::from("INSERT INTO sbtest1 (k, c, pad) VALUES");
        for row in start..end {
            let separator = if row == start { ' ' } else { ',' };
            let k = random.random_range(1..=rows);
            let (c, pad) = (groups(&mut random, C_GROUPS), groups(&mut random, PAD_GROUPS));
            // Writing to a string cannot fail.
            let _ = write!(statement, "{separator}({k},'{c}','{pad}')");
        }
        (statement, end)
    })
}

/// `68487932199-96439406143-…`
fn groups(random: &mut StdRng, count: usize) -> String {
    let mut text = String::with_capacity(count * (GROUP_DIGITS + 1));
    for group in 0..count {
        if group > 0 {
            text.push('-');
        }
        text.extend((0..GROUP_DIGITS).map(|_| char::from(b'0' + random.random_range(0..10))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_batches_and_fit_their_columns() {
        let statements: Vec<(String, u32)> = inserts(2_500).collect();
        assert_eq!(statements.iter().map(|(_, done)| *done).collect::<Vec<_>>(), [1_000, 2_000, 2_500]);
        assert_eq!(statements[2].0.matches("),(").count(), 499);
        let (row, _) =
            statements[0].0.split_once(')').map(|_| statements[0].0.split_once("),").unwrap()).unwrap();
        let columns: Vec<&str> = row.split('\'').collect();
        assert_eq!((columns[1].len(), columns[3].len()), (119, 59));
    }

    #[test]
    fn rows_are_the_same_every_time() {
        assert!(inserts(10).eq(inserts(10)));
    }
}
