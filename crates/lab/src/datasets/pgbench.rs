//! pgbench's tables as `pgbench -i` makes them, on every engine, so that pgbench itself runs on ours.

use crate::loading::{Batch, Filling};

pub(crate) const ACCOUNTS: &str = "pgbench_accounts";
pub(crate) const HISTORY: &str = "pgbench_history";
/// Every table.
pub(crate) const TABLES: [&str; 4] = [ACCOUNTS, "pgbench_branches", "pgbench_tellers", HISTORY];
/// Columns and types as in pgbench's own `initCreateTables`.
pub(crate) const CREATE_POSTGRES_TABLES: [&str; 4] = [
    "CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, filler CHAR(22))",
    "CREATE TABLE pgbench_tellers (tid INT NOT NULL, bid INT, tbalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_accounts (aid INT NOT NULL, bid INT, abalance INT, filler CHAR(84))",
    "CREATE TABLE pgbench_branches (bid INT NOT NULL, bbalance INT, filler CHAR(88))",
];
/// Made after the rows, as pgbench does.
pub(crate) const ADD_POSTGRES_KEYS: [&str; 3] = [
    "ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)",
    "ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)",
    "ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)",
];
/// The same. `InnoDB` keeps rows in the order of the key, which they come in: it is there from the start.
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

/// The rows of all tables; the history begins empty.
pub(crate) fn fillings(branches: u32) -> [Filling; 3] {
    [
        Filling {
            table: "pgbench_branches",
            columns: "bid, bbalance",
            rows: branches,
            write_row: Box::new(|index, batch| {
                batch.number(index + 1);
                batch.number(0);
            }),
        },
        Filling {
            table: "pgbench_tellers",
            columns: "tid, bid, tbalance",
            rows: branches * TELLERS_PER_BRANCH,
            write_row: Box::new(|index, batch| write_child(batch, index, TELLERS_PER_BRANCH)),
        },
        Filling {
            table: ACCOUNTS,
            columns: "aid, bid, abalance, filler",
            rows: branches * ACCOUNTS_PER_BRANCH,
            write_row: Box::new(|index, batch| {
                write_child(batch, index, ACCOUNTS_PER_BRANCH);
                // The server fills it up with blanks. The other tables' fillers stay NULL, as pgbench's do.
                batch.text(|_| ());
            }),
        },
    ]
}

/// Its number, its branch, its balance.
fn write_child(batch: &mut Batch, index: u32, per_branch: u32) {
    batch.number(index + 1);
    batch.number(index / per_branch + 1);
    batch.number(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loading::Format;

    #[test]
    fn every_branch_has_its_tellers_and_accounts() {
        let [branches, tellers, accounts] = fillings(2);
        assert_eq!((branches.rows, tellers.rows, accounts.rows), (2, 20, 200_000));
        let text = |filling: Filling| filling.batches(Format::Copy).map(|(text, _)| text).collect::<String>();
        assert_eq!(text(branches), "1\t0\n2\t0\n");
        let tellers = text(tellers);
        assert_eq!((tellers.lines().nth(9), tellers.lines().nth(10)), (Some("10\t1\t0"), Some("11\t2\t0")));
        let accounts = text(accounts);
        assert_eq!(accounts.lines().nth(99_999), Some("100000\t1\t0\t"));
        assert_eq!(accounts.lines().last(), Some("200000\t2\t0\t"));
    }
}
