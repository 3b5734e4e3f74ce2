//! The proxy as a process in front of a real PostgreSQL, over TLS: what clients see, what the next client
//! sees, and faults of both sides.
//!
//! The servers of both protocols are started once, each on a thread of its own that runs all of its cases, and end
//! with that thread. Each case has its own proxy.

mod cases;
mod client_tls;
mod departures;
mod drivers;
mod fake;
mod faults;
mod leaks;
mod limits;
mod mysql;
mod operations;
mod parked;
mod process;
mod reloads;
mod reset_leaks;
mod server_behaviour;
mod site;
mod stalls;
mod threads;
mod transactions;
mod upgrades;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::thread;

use crate::site::{Mode, Site};

/// A name and a function that panics on failure.
type Case = (&'static str, fn(&mut Site));

fn main() -> ExitCode {
    let Some(filter) = filter(std::env::args().skip(1)) else { return ExitCode::SUCCESS };
    let mut failed = Vec::new();
    let mut count = 0;
    thread::scope(|scope| {
        let protocols = [scope.spawn(|| postgres(&filter)), scope.spawn(|| mysql::run(&filter))];
        for outcome in protocols.map(thread::ScopedJoinHandle::join) {
            let (cases, failures) = outcome.unwrap_or_else(|panic| resume_unwind(panic));
            count += cases;
            failed.extend(failures);
        }
    });
    say(&format!("{count} cases, {} failed: {}", failed.len(), failed.join("; ")));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the cases whose names contain `filter`; returns their number and the names of the failed ones.
fn postgres(filter: &str) -> (usize, Vec<String>) {
    let both = [
        &cases::CASES[..],
        &leaks::CASES[..],
        &reset_leaks::CASES[..],
        &departures::CASES[..],
        &drivers::CASES[..],
        &operations::CASES[..],
        &reloads::CASES[..],
        &client_tls::CASES[..],
        &server_behaviour::CASES[..],
        &upgrades::CASES[..],
    ]
    .concat();
    let of_sessions = [&operations::OF_SESSIONS[..], &reloads::OF_SESSIONS[..]].concat();
    let sessions =
        [&both[..], &of_sessions[..], &limits::CASES[..], &faults::CASES[..], &stalls::CASES[..]].concat();
    let transactions = [
        &both[..],
        &transactions::CASES[..],
        &parked::CASES[..],
        &server_behaviour::OF_TRANSACTIONS[..],
        &leaks::OF_TRANSACTIONS[..],
    ]
    .concat();
    let of_both = |(name, _): &Case| threads::OF_BOTH.contains(name);
    let chosen: Vec<Case> = both.iter().copied().filter(of_both).chain(threads::CASES).collect();
    let on_two_sessions = [&chosen[..], &limits::CASES[..], &faults::CASES[..], &stalls::CASES[..]].concat();
    let on_two_transactions = [&chosen[..], &transactions::CASES[..], &parked::CASES[..]].concat();
    let one = site::usual_threads();
    let in_mode = |cases: Vec<Case>, mode: Mode, threads: usize| {
        cases.into_iter().map(move |(name, case)| {
            // The usual number of threads is not mentioned.
            let suffix = if threads == one { "" } else { ", on two threads" };
            (format!("{name}{}{suffix}", mode.suffix()), mode, threads, case)
        })
    };
    let cases = in_mode(sessions, Mode::Session, one)
        .chain(in_mode(transactions, Mode::Transaction, one))
        .chain(in_mode(on_two_sessions, Mode::Session, 2))
        .chain(in_mode(on_two_transactions, Mode::Transaction, 2));
    let mut names = HashSet::new();
    // If two threads are the default, each case runs once.
    let is_selected = |name: &str| name.contains(filter) && names.insert(name.to_owned());
    let cases = only(cases, is_selected);
    let mut failed = Vec::new();
    if cases.is_empty() {
        return (0, failed);
    }
    let Some(mut site) = Site::open() else { return (0, failed) };
    for (name, mode, threads, case) in &cases {
        (site.mode, site.threads) = (*mode, *threads);
        let passed = catch_unwind(AssertUnwindSafe(|| case(&mut site))).is_ok();
        say(&format!("{name} ... {}", if passed { "ok" } else { "FAILED" }));
        if !passed {
            failed.push(name.clone());
        }
    }
    (cases.len(), failed)
}

/// The full name of a case, the pooling mode, and the number of threads.
type NamedCase = (String, Mode, usize, fn(&mut Site));

fn only(cases: impl Iterator<Item = NamedCase>, mut is_selected: impl FnMut(&str) -> bool) -> Vec<NamedCase> {
    cases.filter(|(name, ..)| is_selected(name)).collect()
}

/// The part of a case's name to run; `None` if no case must run. Cargo passes the same arguments to every
/// test binary.
fn filter(arguments: impl Iterator<Item = String>) -> Option<String> {
    let mut filter = String::new();
    for argument in arguments {
        match argument.as_str() {
            "--ignored" | "--list" => return None,
            option if option.starts_with('-') => {}
            _ => filter = argument,
        }
    }
    Some(filter)
}

#[expect(clippy::print_stderr, reason = "a test harness reports on stderr; stdout stays empty")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
