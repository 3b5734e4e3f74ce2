//! `SHOW STATS` and its relatives. What the proxy does not count is 0: `docs/sidecar/console.md` lists it.

use std::time::Duration;

use super::table::{Cell, ConsoleTable};
use crate::console_rules::CONSOLE;
use crate::engine::{PERIOD, Usage, UsageByDatabase, UsageView};

/// The figures of a database, or of all, in PgBouncer's order.
const FIGURES: usize = 12;
type Figures = [u64; FIGURES];

/// The usage of all workers.
pub(super) struct Statistics {
    databases: Vec<DatabaseStatistics>,
}

struct DatabaseStatistics {
    name: String,
    total: Figures,
    average: Figures,
}

impl Statistics {
    /// `commands` is the number of the console's own commands.
    pub(super) fn of(views: Vec<UsageView>, commands: u64) -> Self {
        let (mut now, mut before) = (UsageByDatabase::new(), UsageByDatabase::new());
        let window = views.iter().map(|view| view.window).max().unwrap_or(PERIOD);
        for view in views {
            for (name, usage) in view.now {
                now.entry(name).or_default().add(usage);
            }
            for (name, usage) in view.before {
                before.entry(name).or_default().add(usage);
            }
        }
        let of = |(name, usage): (String, Usage)| {
            let recent = usage.since(before.get(&name).copied().unwrap_or_default());
            DatabaseStatistics { name, total: totals(usage), average: averages(recent, window) }
        };
        let mut databases: Vec<DatabaseStatistics> = now.into_iter().map(of).collect();
        let mut total = Figures::default();
        // Each is a transaction of one query.
        (total[1], total[2]) = (commands, commands);
        databases.push(DatabaseStatistics { name: CONSOLE.to_owned(), total, average: Figures::default() });
        Self { databases }
    }

    pub(super) fn stats(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "sNNNNNNNNNNNNNNNNNNNNNNNN",
            "database total_server_assignment_count total_xact_count total_query_count total_received total_sent \
             total_xact_time total_query_time total_wait_time total_client_parse_count total_server_parse_count \
             total_bind_count total_client_login_count avg_server_assignment_count avg_xact_count avg_query_count \
             avg_recv avg_sent avg_xact_time avg_query_time avg_wait_time avg_client_parse_count \
             avg_server_parse_count avg_bind_count avg_client_login_count",
        );
        self.fill(&mut table, |database| [&database.total[..], &database.average].concat());
        table
    }

    pub(super) fn totals(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "sNNNNNNNNNNNN",
            "database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time query_time \
             wait_time client_parse_count server_parse_count bind_count client_login_count",
        );
        self.fill(&mut table, |database| database.total.to_vec());
        table
    }

    pub(super) fn averages(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "sNNNNNNNNNNNN",
            "database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time query_time \
             wait_time avg_client_parse_count avg_server_parse_count avg_bind_count avg_client_login_count",
        );
        self.fill(&mut table, |database| database.average.to_vec());
        table
    }

    /// Over all databases, one figure in each row.
    pub(super) fn sums(&self) -> ConsoleTable {
        const NAMES: [&str; FIGURES] = [
            "server_assignment_count",
            "xact_count",
            "query_count",
            "client_bytes",
            "server_bytes",
            "xact_time",
            "query_time",
            "wait_time",
            "ps_client_parse_count",
            "ps_server_parse_count",
            "ps_bind_count",
            "client_login_count",
        ];
        let mut table = ConsoleTable::new("sN", "name value");
        for (prefix, figures) in [("total", Self::total as fn(&_) -> _), ("avg", Self::average)] {
            for (at, name) in NAMES.iter().enumerate() {
                let sum: u64 = self.databases.iter().map(|database| figures(database)[at]).sum();
                table.push(vec![Cell::from(format!("{prefix}_{name}")), Cell::from(sum)]);
            }
        }
        table
    }

    fn total(database: &DatabaseStatistics) -> Figures {
        database.total
    }

    fn average(database: &DatabaseStatistics) -> Figures {
        database.average
    }

    fn fill(&self, table: &mut ConsoleTable, figures: impl Fn(&DatabaseStatistics) -> Vec<u64>) {
        for database in &self.databases {
            let name = Cell::from(database.name.as_str());
            table.push(std::iter::once(name).chain(figures(database).into_iter().map(Cell::from)).collect());
        }
    }
}

fn totals(usage: Usage) -> Figures {
    [
        usage.assignments,
        usage.transactions,
        0,
        usage.received_bytes,
        usage.sent_bytes,
        usage.transaction_us,
        0,
        usage.wait_us,
        0,
        0,
        0,
        usage.logins,
    ]
}

/// Per second; of times, per transaction or per assignment.
fn averages(recent: Usage, window: Duration) -> Figures {
    let seconds = window.as_secs_f64();
    let per_second = |count: u64| if seconds > 0.0 { (count as f64 / seconds) as u64 } else { 0 };
    let per = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
    let mut figures = totals(recent).map(per_second);
    figures[5] = per(recent.transaction_us, recent.transactions);
    figures[7] = per(recent.wait_us, recent.assignments);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_per_second_and_those_of_times_per_event() {
        let usage = |transactions| Usage {
            transactions,
            transaction_us: transactions * 250,
            assignments: transactions,
            wait_us: transactions * 10,
            received_bytes: transactions * 100,
            ..Usage::default()
        };
        let by_database = |transactions| UsageByDatabase::from([("shop".to_owned(), usage(transactions))]);
        let view =
            UsageView { now: by_database(150), before: by_database(50), window: Duration::from_secs(10) };
        let table = Statistics::of(vec![view.clone(), view], 3).stats();
        let value = |row: usize, column: &str| {
            let at = table.columns.iter().position(|(name, _)| *name == column).unwrap();
            table.rows[row][at].clone()
        };
        for (column, expected) in [
            ("total_xact_count", 300),
            ("total_xact_time", 75_000),
            ("avg_xact_count", 20),
            ("avg_recv", 2_000),
            ("avg_xact_time", 250),
            ("avg_wait_time", 10),
            ("avg_query_count", 0),
        ] {
            assert_eq!(value(0, column), Cell::Number(expected), "{column}");
        }
        assert_eq!(
            (value(1, "database"), value(1, "total_query_count")),
            ("pgbouncer".into(), Cell::Number(3))
        );
    }

    #[test]
    fn sums_are_over_all_databases() {
        let one = Usage { logins: 2, ..Usage::default() };
        let now = UsageByDatabase::from([("a".to_owned(), one), ("b".to_owned(), one)]);
        let table = Statistics::of(vec![UsageView { now, ..UsageView::default() }], 0).sums();
        assert_eq!(table.rows.len(), 2 * FIGURES);
        assert_eq!(table.rows[11], vec!["total_client_login_count".into(), Cell::Number(4)]);
    }
}
