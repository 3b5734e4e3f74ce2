//! The tables of `pgbench -i`, on every SQL engine, so that pgbench itself can run on them.

use crate::datasets::rows::{RowBatch, TableRows};

pub(crate) const ACCOUNTS: &str = "pgbench_accounts";
pub(crate) const HISTORY: &str = "pgbench_history";
pub(crate) const TABLES: [&str; 4] = [ACCOUNTS, "pgbench_branches", "pgbench_tellers", HISTORY];
/// Columns and types as in pgbench's own `initCreateTables`.
pub(crate) const CREATE_POSTGRES_TABLES: [&str; 4] = [
    "CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, filler CHAR(22))",
    "CREATE TABLE pgbench_tellers (tid INT NOT NULL, bid INT, tbalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_accounts (aid INT NOT NULL, bid INT, abalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_branches (bid INT NOT NULL, bbalance INT, filler CHAR(88))",
];
/// Added after the rows, as pgbench does.
pub(crate) const ADD_POSTGRES_KEYS: [&str; 3] = [
    "ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)",
    "ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)",
    "ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)",
];
/// With primary keys from the start: InnoDB stores rows in the order of the key, and the rows are inserted in that order.
pub(crate) const CREATE_MYSQL_FAMILY_TABLES: [&str; 4] = [
    "CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP NULL, \
     filler CHAR(22)) ENGINE = innodb",
    "CREATE TABLE pgbench_tellers (tid INT NOT NULL, bid INT, tbalance INT, filler CHAR(84), \
     PRIMARY KEY (tid)) ENGINE = innodb",
    "CREATE TABLE pgbench_accounts (aid INT NOT NULL, bid INT, abalance INT, filler CHAR(84), \
     PRIMARY KEY (aid)) ENGINE = innodb",
    "CREATE TABLE pgbench_branches (bid INT NOT NULL, bbalance INT, filler CHAR(88), \
     PRIMARY KEY (bid)) ENGINE = innodb",
];

const TELLERS_PER_BRANCH: u32 = 10;
const ACCOUNTS_PER_BRANCH: u32 = ciphertoll_model::Scale::ROWS_PER_BRANCH;

/// The rows of all tables except the history, which is empty at first.
pub(crate) fn table_rows(branches: u32) -> [TableRows; 3] {
    [
        TableRows {
            table: "pgbench_branches",
            columns: "bid, bbalance",
            rows: branches,
            write_row: Box::new(|index, batch| {
                batch.number(index + 1);
                batch.number(0);
            }),
        },
        TableRows {
            table: "pgbench_tellers",
            columns: "tid, bid, tbalance",
            rows: branches * TELLERS_PER_BRANCH,
            write_row: Box::new(|index, batch| write_child(batch, index, TELLERS_PER_BRANCH)),
        },
        TableRows {
            table: ACCOUNTS,
            columns: "aid, bid, abalance, filler",
            rows: branches * ACCOUNTS_PER_BRANCH,
            write_row: Box::new(|index, batch| {
                write_child(batch, index, ACCOUNTS_PER_BRANCH);
                // The server pads it with blanks. In the other tables it is NULL, as in pgbench.
                batch.text(|_| ());
            }),
        },
    ]
}

/// Writes the row's number, its branch and its balance.
fn write_child(batch: &mut RowBatch, index: u32, per_branch: u32) {
    batch.number(index + 1);
    batch.number(index / per_branch + 1);
    batch.number(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::rows::RowFormat;

    #[test]
    fn every_branch_has_its_tellers_and_accounts() {
        let [branches, tellers, accounts] = table_rows(2);
        assert_eq!((branches.rows, tellers.rows, accounts.rows), (2, 20, 200_000));
        let text = |rows: TableRows| rows.batches(RowFormat::Copy).map(|(text, _)| text).collect::<String>();
        assert_eq!(text(branches), "1\t0\n2\t0\n");
        let tellers = text(tellers);
        assert_eq!((tellers.lines().nth(9), tellers.lines().nth(10)), (Some("10\t1\t0"), Some("11\t2\t0")));
        let accounts = text(accounts);
        assert_eq!(accounts.lines().nth(99_999), Some("100000\t1\t0\t"));
        assert_eq!(accounts.lines().last(), Some("200000\t2\t0\t"));
    }
}
