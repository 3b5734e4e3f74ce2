//! The proxy in front of a real MariaDB, and of MySQL if it is installed.

mod authentication;
mod cases;
mod departures;
mod drivers;
mod errors;
mod fake;
mod faults;
mod leaks;
mod limits;
mod parked;
mod random_clients;
mod raw;
mod reloads;
mod reset_leaks;
mod site;
mod statements;
mod threads;
mod tools;
mod transactions;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ciphertoll_model::{Engine, ServerLevel};

use self::site::Site;
use crate::say;
use crate::site::{Mode, usual_threads};

type Case = (&'static str, fn(&mut Site));
/// The full name of a case, the pooling mode, and the number of threads.
type NamedCase = (String, Mode, usize, fn(&mut Site));

/// Additional servers to test, such as `mariadb=/opt/mariadb,mysql-8.0.33`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";

/// Runs the cases whose names contain `filter`; returns their number and the names of the failed ones.
pub(crate) fn run(filter: &str) -> (usize, Vec<String>) {
    let both = [
        &departures::CASES[..],
        &cases::CASES[..],
        &leaks::CASES[..],
        &statements::CASES[..],
        &reset_leaks::CASES[..],
    ]
    .concat();
    let of_sessions =
        [&cases::OF_SESSIONS[..], &leaks::OF_SESSIONS[..], &authentication::OF_SESSIONS[..]].concat();
    let sessions = [&both[..], &of_sessions[..], &limits::CASES[..], &faults::CASES[..]].concat();
    let of_transactions = [&transactions::CASES[..], &statements::OF_TRANSACTIONS[..]].concat();
    let transactions = [&both[..], &of_transactions[..], &parked::CASES[..], &tools::CASES[..]].concat();
    let on_two_threads = |cases: &[Case]| -> Vec<Case> {
        let on_two = |(name, _): &&Case| !threads::ON_ONE.contains(name);
        cases.iter().filter(on_two).chain(&threads::CASES).copied().collect()
    };
    let doubled =
        [on_two_threads(&sessions), on_two_threads(&[&of_transactions[..], &leaks::CASES[..]].concat())];
    let logins =
        [&drivers::CASES[..], &errors::CASES[..], &authentication::CASES[..], &reloads::CASES[..]].concat();
    let sessions = [&sessions[..], &logins[..]].concat();
    let transactions = [&transactions[..], &logins[..]].concat();
    let one = usual_threads();
    let in_mode = |cases: Vec<Case>, mode: Mode, threads: usize| {
        cases.into_iter().map(move |(name, case)| {
            // The usual number of threads is not mentioned.
            let suffix = if threads == one { "" } else { ", on two threads" };
            (format!("{name}{}{suffix}", mode.suffix()), mode, threads, case)
        })
    };
    let [doubled_sessions, doubled_transactions] = doubled;
    let mut seen = HashSet::new();
    let cases: Vec<NamedCase> = in_mode(sessions, Mode::Session, one)
        .chain(in_mode(transactions, Mode::Transaction, one))
        .chain(in_mode(doubled_sessions, Mode::Session, 2))
        .chain(in_mode(doubled_transactions, Mode::Transaction, 2))
        // If two threads are the default, each case runs once.
        .filter(|(name, ..)| seen.insert(name.clone()))
        .collect();
    let (mut count, mut failed) = (0, Vec::new());
    for level in levels() {
        let named =
            |(name, mode, threads, case): &NamedCase| (format!("{level}: {name}"), *mode, *threads, *case);
        let cases: Vec<_> = cases.iter().map(named).filter(|(name, ..)| name.contains(filter)).collect();
        if cases.is_empty() {
            continue;
        }
        let Some(mut site) = Site::open(&level) else { continue };
        for (name, mode, threads, case) in cases {
            (site.mode, site.threads) = (mode, threads);
            let passed = catch_unwind(AssertUnwindSafe(|| case(&mut site))).is_ok();
            say(&format!("{name} ... {}", if passed { "ok" } else { "FAILED" }));
            count += 1;
            if !passed {
                failed.push(name);
            }
        }
    }
    (count, failed)
}

/// One server per engine, and those of the environment variable.
fn levels() -> Vec<ServerLevel> {
    let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
    let extra = extra.split(',').filter(|text| !text.is_empty());
    let extra = extra.map(|text| text.parse::<ServerLevel>().expect(EXTRA_SERVERS));
    let found = [Engine::MariaDb, Engine::MySql].map(ServerLevel::of);
    found.into_iter().chain(extra.filter(|level| level.engine.is_mysql_family())).collect()
}
