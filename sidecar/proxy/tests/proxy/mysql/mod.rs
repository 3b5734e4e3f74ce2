//! The proxy in front of a real MariaDB, and of MySQL if it is installed.

mod authentication;
mod cases;
mod console;
mod credentials;
mod departures;
mod drivers;
mod errors;
mod failover;
mod fake;
mod faults;
mod fixture;
mod leaks;
mod limits;
mod moves;
mod pair;
mod parked;
mod pass_through;
mod random_clients;
mod raw;
mod reloads;
mod replication_group;
mod reset_leaks;
mod shares;
mod statements;
mod threads;
mod times;
mod tools;
mod transactions;

use ciphertoll_lab::find;
use ciphertoll_model::{Engine, ServerLevel};
use ciphertoll_testing::{Pool, no_server};
use libtest_mimic::Trial;

use self::fixture::Fixture;
use crate::topics::{self, BOTH, SESSION, TRANSACTION, Topic};

type Case = topics::Case<Fixture>;

/// Additional servers to test, such as `mariadb=/opt/mariadb,mysql-8.0.33`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";

/// All cases on each server; for one that is not installed, a test that reports it.
pub(crate) fn tests() -> Vec<Trial> {
    levels().into_iter().flat_map(|level| of_server(&level)).collect()
}

fn of_server(level: &ServerLevel) -> Vec<Trial> {
    let server = level.to_string();
    if let Err(error) = find(level) {
        let engine = level.engine;
        let test = Trial::test("is installed", move || {
            no_server(engine, &error);
            Ok(())
        });
        return vec![test.with_kind(server)];
    }
    let mut topics = vec![
        Topic::new("clients", BOTH, &cases::CASES),
        Topic::new("clients", SESSION, &cases::OF_SESSIONS),
        Topic::new("clients", BOTH, &departures::CASES),
        Topic::new("clients", BOTH, &statements::CASES),
        Topic::new("drivers", BOTH, &drivers::CASES),
        Topic::new("drivers", BOTH, &errors::CASES),
        Topic::new("drivers", TRANSACTION, &tools::CASES),
        Topic::new("leaks", BOTH, &leaks::CASES),
        Topic::new("leaks", SESSION, &leaks::OF_SESSIONS),
        Topic::new("leaks", BOTH, &reset_leaks::CASES),
        Topic::new("failover", BOTH, &failover::CASES),
        Topic::new("authentication", BOTH, &authentication::CASES),
        Topic::new("authentication", SESSION, &authentication::OF_SESSIONS),
        Topic::new("authentication", BOTH, &reloads::CASES),
        Topic::new("credentials", BOTH, &credentials::CASES),
        Topic::new("credentials", BOTH, &pass_through::CASES),
        Topic::new("authentication", SESSION, &limits::CASES),
        Topic::new("authentication", SESSION, &faults::CASES),
        Topic::new("shares", BOTH, &shares::CASES),
        Topic::new("times", BOTH, &times::CASES),
        Topic::new("console", BOTH, &console::CASES),
        Topic::new("console", TRANSACTION, &console::OF_TRANSACTIONS),
        Topic::new("transactions", TRANSACTION, &transactions::CASES),
        Topic::new("transactions", TRANSACTION, &statements::OF_TRANSACTIONS),
        Topic::new("transactions", TRANSACTION, &parked::CASES),
        Topic::new("transactions", TRANSACTION, &moves::CASES),
    ];
    if level.engine == Engine::MySql {
        topics.push(Topic::new("failover", BOTH, &replication_group::CASES));
    }
    topics = topics::with_two_threads(topics, &threads::ALSO_ON_TWO);
    topics.push(Topic::on_two_threads(BOTH, &threads::CASES));
    let level = level.clone();
    topics::tests(&server, topics, &Pool::new(move || Fixture::open(&level)))
}

/// One server per engine, and those of the environment variable.
fn levels() -> Vec<ServerLevel> {
    let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
    let extra = extra.split(',').filter(|text| !text.is_empty());
    let extra = extra.map(|text| text.parse::<ServerLevel>().expect(EXTRA_SERVERS));
    let found = [Engine::MariaDb, Engine::MySql].map(ServerLevel::of);
    found.into_iter().chain(extra.filter(|level| level.engine.is_mysql_family())).collect()
}
