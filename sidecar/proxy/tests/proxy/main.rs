//! The proxy as a process in front of real servers, over TLS: what clients see, what the next client sees, and faults of
//! both sides.
//!
//! Each case is a test. Tests share the servers of a [`ciphertoll_testing::Pool`], and each has its own proxies. Without
//! further options, tests run in parallel, on several servers of a kind.

mod auth_query;
mod bench_failover;
mod bench_shares;
mod cases;
mod client_tls;
mod cluster;
mod console;
mod credentials;
mod cves;
mod departures;
mod drivers;
mod failover;
mod fake;
mod faults;
mod fixture;
mod leaks;
mod ledger;
mod limits;
mod link;
mod meanings;
mod moved_settings;
mod mysql;
mod name_server;
mod names;
mod operations;
mod own_messages;
mod parked;
mod process;
mod recipes;
mod reloads;
mod replication;
mod reset_leaks;
mod server;
mod server_behaviour;
mod servers;
mod shares;
mod silent_link;
mod stalls;
mod stand_in;
mod switchover;
mod threads;
mod times;
mod topics;
mod transactions;
mod upgrades;
mod watched_files;

use std::process::ExitCode;

use ciphertoll_testing::Pool;
use libtest_mimic::{Arguments, Trial};

use crate::fixture::Fixture;
use crate::topics::{BOTH, SESSION, TRANSACTION, Topic};

type Case = topics::Case<Fixture>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = postgres().into_iter().chain(mysql::tests()).collect();
    libtest_mimic::run(&arguments, tests).exit_code()
}

fn postgres() -> Vec<Trial> {
    let mut topics = vec![
        Topic::new("clients", BOTH, &cases::CASES),
        Topic::new("clients", BOTH, &departures::CASES),
        Topic::new("clients", BOTH, &client_tls::CASES),
        Topic::new("drivers", BOTH, &drivers::CASES),
        Topic::new("leaks", BOTH, &leaks::CASES),
        Topic::new("leaks", TRANSACTION, &leaks::OF_TRANSACTIONS),
        Topic::new("leaks", BOTH, &reset_leaks::CASES),
        Topic::new("operation", BOTH, &operations::CASES),
        Topic::new("operation", SESSION, &operations::OF_SESSIONS),
        Topic::new("operation", BOTH, &upgrades::CASES),
        Topic::new("operation", SESSION, &servers::CASES),
        Topic::new("reloads", BOTH, &reloads::CASES),
        Topic::new("reloads", SESSION, &reloads::OF_SESSIONS),
        Topic::new("faults", BOTH, &cves::CASES),
        Topic::new("authentication", BOTH, &auth_query::CASES),
        Topic::new("replication", BOTH, &replication::CASES),
        Topic::new("console", BOTH, &console::CASES),
        Topic::new("console", SESSION, &console::OF_SESSIONS),
        Topic::new("console", TRANSACTION, &switchover::CASES),
        Topic::new("credentials", BOTH, &credentials::CASES),
        Topic::new("credentials", SESSION, &credentials::OF_SESSIONS),
        Topic::new("credentials", SESSION, &recipes::CASES),
        Topic::new("credentials", SESSION, &watched_files::CASES),
        Topic::new("faults", SESSION, &faults::CASES),
        Topic::new("faults", SESSION, &stalls::CASES),
        Topic::new("faults", SESSION, &limits::CASES),
        Topic::new("shares", BOTH, &shares::CASES),
        Topic::new("times", BOTH, &times::CASES),
        Topic::new("failover", BOTH, &failover::CASES),
        Topic::new("failover", SESSION, &failover::OF_SESSIONS),
        Topic::new("failover", BOTH, &silent_link::CASES),
        Topic::new("failover", BOTH, &names::CASES),
        Topic::new("transactions", TRANSACTION, &transactions::CASES),
        Topic::new("transactions", TRANSACTION, &parked::CASES),
        Topic::new("transactions", TRANSACTION, &meanings::CASES),
        Topic::new("transactions", TRANSACTION, &moved_settings::CASES),
        Topic::new("transactions", BOTH, &own_messages::CASES),
        Topic::new("transactions", TRANSACTION, &own_messages::OF_TRANSACTIONS),
        Topic::new("transactions", BOTH, &server_behaviour::CASES),
        Topic::new("transactions", TRANSACTION, &server_behaviour::OF_TRANSACTIONS),
    ];
    topics = topics::with_two_threads(topics, &threads::ALSO_ON_TWO);
    topics.push(Topic::on_two_threads(BOTH, &threads::CASES));
    topics.push(Topic::bench("bench-failover", SESSION, &bench_failover::CASES));
    topics.push(Topic::bench("bench-shares", TRANSACTION, &bench_shares::CASES));
    topics::tests("postgres", topics, &Pool::new(Fixture::open))
}

#[expect(clippy::print_stderr, reason = "tests report on stderr; stdout is the harness's")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
