//! The table of sysbench's OLTP workloads, so that sysbench and mysqlslap can run on it.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::datasets::rows::TableRows;

/// The database that sysbench uses.
pub(crate) const SCHEMA: &str = "sbtest";
pub(crate) const TABLE: &str = "sbtest1";
/// As in `oltp_common.lua` of sysbench 1.0.
pub(crate) const CREATE_MYSQL_FAMILY_TABLE: &str = "CREATE TABLE sbtest1 (id INTEGER NOT NULL AUTO_INCREMENT, \
     k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, \
     PRIMARY KEY (id)) ENGINE = innodb";
pub(crate) const CREATE_POSTGRES_TABLE: &str = "CREATE TABLE sbtest1 (id SERIAL, \
     k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, \
     PRIMARY KEY (id))";
/// Created after the rows: one sorted pass instead of a random write per row.
pub(crate) const CREATE_INDEX: &str = "CREATE INDEX k_1 ON sbtest1 (k)";

/// Fixed, so that every template has the same rows.
const SEED: u64 = 0x7011;
/// Number of groups of digits in the column `c`, as in sysbench.
const C_GROUPS: usize = 10;
const PAD_GROUPS: usize = 5;
const GROUP_DIGITS: usize = 11;

/// Generates `rows` rows; the server assigns their ids.
pub(crate) fn table_rows(rows: u32) -> TableRows {
    let mut random = StdRng::seed_from_u64(SEED);
    TableRows {
        table: TABLE,
        columns: "k, c, pad",
        rows,
        write_row: Box::new(move |_, batch| {
            batch.number(random.random_range(1..=rows));
            batch.text(|text| write_groups(text, &mut random, C_GROUPS));
            batch.text(|text| write_groups(text, &mut random, PAD_GROUPS));
        }),
    }
}

/// Writes `68487932199-96439406143-…`.
fn write_groups(text: &mut String, random: &mut StdRng, count: usize) {
    for group in 0..count {
        if group > 0 {
            text.push('-');
        }
        text.extend((0..GROUP_DIGITS).map(|_| char::from(b'0' + random.random_range(0..10))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::rows::RowFormat;

    #[test]
    fn rows_fit_their_columns() {
        let statements: Vec<(String, u32)> = table_rows(3).batches(RowFormat::Insert).collect();
        let [(statement, 3)] = &statements[..] else { panic!("one statement: {statements:?}") };
        assert!(statement.starts_with("INSERT INTO sbtest1 (k, c, pad) VALUES ("), "{statement}");
        let columns: Vec<&str> = statement.split('\'').collect();
        assert_eq!((columns[1].len(), columns[3].len()), (119, 59));
    }

    #[test]
    fn rows_are_the_same_every_time() {
        let rows = || table_rows(10).batches(RowFormat::Copy);
        assert!(rows().eq(rows()));
        assert_eq!(rows().map(|(text, _)| text.lines().count()).sum::<usize>(), 10);
    }
}
