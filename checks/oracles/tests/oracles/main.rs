//! Our clients compared with independent drivers on every installed server: the same rows, the same refusals and the
//! same logins.
//!
//! Each server is started once, and every case runs on it, all on the main thread: a server ends with the thread that
//! started it.

mod answer;
mod documents;
mod fleet;
mod logins;
mod mysql;
mod oracle;
mod ours;
mod postgres;
mod samples;
mod site;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use ciphertoll_lab::Build;
use ciphertoll_model::{Engine, QueryLanguage};

use crate::fleet::Fleet;
use crate::site::Site;

/// A comparison with an oracle, which panics on a difference.
type Case = (&'static str, fn(&mut Site));

/// On servers of every SQL engine.
const COMMON: [Case; 3] = [
    ("logins: every authentication over every path", logins::every_auth_over_every_path),
    ("samples: rows written by one are read by the other", samples::written_by_one_and_read_by_the_other),
    ("samples: rows of many parameters", samples::many_parameters),
];

fn main() -> ExitCode {
    let Some(filter) = filter(std::env::args().skip(1)) else { return ExitCode::SUCCESS };
    let fleet = Fleet::new();
    let (mut run, mut failed) = (0, Vec::new());
    for build in fleet.builds() {
        let cases = cases_of(build, &filter);
        if cases.is_empty() {
            continue;
        }
        let mut site = fleet.start(build);
        for (name, case) in cases {
            let passed = catch_unwind(AssertUnwindSafe(|| case(&mut site))).is_ok();
            say(&format!("{} {}: {name} ... {}", build.engine, build.version, word(passed)));
            run += 1;
            if !passed {
                failed.push(format!("{} {}: {name}", build.engine, build.version));
            }
        }
        site.server.check_alive().expect("the server is there at the end");
    }
    say(&format!("{run} cases, {} failed", failed.len()));
    for name in &failed {
        say(&format!("failed: {name}"));
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The filter for case names; `None` if nothing shall run. Cargo passes its test options on; this harness supports two
/// of them.
fn filter(arguments: impl Iterator<Item = String>) -> Option<String> {
    let mut filter = String::new();
    for argument in arguments {
        match argument.as_str() {
            // There are no long cases, and the list is not needed.
            "--ignored" | "--list" => return None,
            option if option.starts_with('-') => {}
            _ => filter = argument,
        }
    }
    Some(filter)
}

fn cases_of(build: &Build, filter: &str) -> Vec<Case> {
    let own: &[Case] = match build.engine {
        Engine::MariaDb | Engine::MySql => &mysql::CASES,
        Engine::Postgres => &postgres::CASES,
        Engine::MongoDb | Engine::FerretDb => &documents::CASES,
    };
    let common: &[Case] = match build.engine.query_language() {
        QueryLanguage::Sql => &COMMON,
        QueryLanguage::Documents => &[],
    };
    let engine = build.engine.label();
    let wanted = |(name, _): &Case| name.contains(filter) || engine.contains(filter);
    own.iter().chain(common).copied().filter(wanted).collect()
}

fn word(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

#[expect(clippy::print_stderr, reason = "what a test harness is for; stdout stays empty, as everywhere")]
fn say(line: &str) {
    eprintln!("{line}");
}
