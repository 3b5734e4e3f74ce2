//! What clients have done by database, for the console. Counted without locks: in each server connection, and by worker for
//! connections that have ended or moved.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Databases that are counted separately. Clients name databases, but only those that exist on the server are counted.
const MAX_DATABASES: usize = 256;
/// The name for all further databases.
const OTHERS: &str = "(others)";
/// PgBouncer's default `stats_period`.
pub(crate) const PERIOD: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// How often a connection was given to a client.
    pub(crate) assignments: u64,
    /// How often a client was detached from a connection at the end of a transaction. Never in session mode.
    pub(crate) transactions: u64,
    /// From clients.
    pub(crate) received_bytes: u64,
    /// To clients.
    pub(crate) sent_bytes: u64,
    /// From the assignment to the end of a transaction.
    pub(crate) transaction_us: u64,
    /// Time that clients have waited for the connections that they were given.
    pub(crate) wait_us: u64,
    /// Of clients that were given a connection.
    pub(crate) logins: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.combine(other, u64::wrapping_add);
    }

    /// What has been added since `older`.
    pub(crate) fn since(mut self, older: Self) -> Self {
        self.combine(older, u64::saturating_sub);
        self
    }

    fn combine(&mut self, other: Self, by: fn(u64, u64) -> u64) {
        self.assignments = by(self.assignments, other.assignments);
        self.transactions = by(self.transactions, other.transactions);
        self.received_bytes = by(self.received_bytes, other.received_bytes);
        self.sent_bytes = by(self.sent_bytes, other.sent_bytes);
        self.transaction_us = by(self.transaction_us, other.transaction_us);
        self.wait_us = by(self.wait_us, other.wait_us);
        self.logins = by(self.logins, other.logins);
    }
}

pub(crate) type UsageByDatabase = BTreeMap<String, Usage>;

pub(crate) fn add_usage(to: &mut UsageByDatabase, database: &str, usage: Usage) {
    let is_known = to.contains_key(database);
    let name = if is_known || to.len() < MAX_DATABASES { database } else { OTHERS };
    match to.get_mut(name) {
        Some(known) => known.add(usage),
        None => drop(to.insert(name.to_owned(), usage)),
    }
}

/// The usage of a worker's clients.
pub(super) struct UsageTotals {
    /// Of connections that the worker no longer has.
    pub(super) ended: UsageByDatabase,
    /// When the last two periods began, and all usage until then.
    newer: (Instant, UsageByDatabase),
    older: (Instant, UsageByDatabase),
}

/// A worker's usage until now, and until the beginning of the last complete period.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageView {
    pub(crate) now: UsageByDatabase,
    pub(crate) before: UsageByDatabase,
    pub(crate) window: Duration,
}

impl UsageTotals {
    pub(super) fn new(now: Instant) -> Self {
        let nothing = || (now, UsageByDatabase::new());
        Self { ended: UsageByDatabase::new(), newer: nothing(), older: nothing() }
    }

    pub(super) fn is_period_over(&self, now: Instant) -> bool {
        now.duration_since(self.newer.0) >= PERIOD
    }

    /// A new period begins.
    pub(super) fn begin_period(&mut self, now: Instant, usage: UsageByDatabase) {
        self.older = std::mem::replace(&mut self.newer, (now, usage));
    }

    pub(super) fn view(&self, now: Instant, usage: UsageByDatabase) -> UsageView {
        let (began, before) = &self.older;
        UsageView { now: usage, before: before.clone(), window: now.duration_since(*began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_beyond_the_limit_are_counted_together() {
        let mut usage = UsageByDatabase::new();
        let one = Usage { logins: 1, ..Usage::default() };
        for number in 0..MAX_DATABASES + 5 {
            add_usage(&mut usage, &number.to_string(), one);
        }
        add_usage(&mut usage, "0", one);
        assert_eq!((usage.len(), usage[OTHERS].logins, usage["0"].logins), (MAX_DATABASES + 1, 5, 2));
    }

    #[test]
    fn averages_are_of_the_last_complete_period_and_what_followed() {
        let start = Instant::now();
        let usage =
            |logins| UsageByDatabase::from([("shop".to_owned(), Usage { logins, ..Usage::default() })]);
        let mut totals = UsageTotals::new(start);
        assert!(!totals.is_period_over(start));
        assert!(totals.is_period_over(start + PERIOD));
        totals.begin_period(start + PERIOD, usage(10));
        totals.begin_period(start + 2 * PERIOD, usage(30));
        let view = totals.view(start + 2 * PERIOD + PERIOD / 2, usage(45));
        assert_eq!(view.window, PERIOD + PERIOD / 2);
        assert_eq!(view.now["shop"].since(view.before["shop"]).logins, 35);
    }
}
