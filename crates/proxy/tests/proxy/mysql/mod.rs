//! The same in front of a real MariaDB, and of MySQL where it is here.

mod cases;
mod fake;
mod faults;
mod leaks;
mod limits;
mod process;
mod raw;
mod site;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ciphertoll_model::{Engine, ServerLevel};

use self::site::Site;
use crate::say;

type Case = (&'static str, fn(&mut Site));

/// Servers to look at beside those that are found, such as `mariadb=/opt/mariadb,mysql-8.0.33`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";

/// Runs those whose names have `filter` in them: how many there were, and those that failed.
pub(crate) fn run(filter: &str) -> (usize, Vec<String>) {
    let cases = [&cases::CASES[..], &leaks::CASES[..], &limits::CASES[..], &faults::CASES[..]].concat();
    let (mut count, mut failed) = (0, Vec::new());
    for level in levels() {
        let named = |(name, case): &Case| (format!("{level}: {name}"), *case);
        let cases: Vec<_> = cases.iter().map(named).filter(|(name, _)| name.contains(filter)).collect();
        if cases.is_empty() {
            continue;
        }
        let Some(mut site) = Site::open(&level) else { continue };
        for (name, case) in cases {
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

/// Those that are asked for by the engine alone, and those that are asked for beside them.
fn levels() -> Vec<ServerLevel> {
    let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
    let extra = extra.split(',').filter(|text| !text.is_empty());
    let extra = extra.map(|text| text.parse::<ServerLevel>().expect(EXTRA_SERVERS));
    let found = [Engine::MariaDb, Engine::MySql].map(ServerLevel::of);
    found.into_iter().chain(extra.filter(|level| level.engine.is_mysql_family())).collect()
}
