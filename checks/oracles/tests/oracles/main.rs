//! Our clients compared with independent drivers on every installed server: the same rows, the same refusals and the
//! same logins.
//!
//! Each comparison is a test; those of a server share it.

mod answer;
mod documents;
mod fixture;
mod logins;
mod mysql;
mod oracle;
mod ours;
mod postgres;
mod samples;
mod servers;

use std::process::ExitCode;

use ciphertoll_lab::{Build, find};
use ciphertoll_model::{Engine, QueryLanguage, ServerLevel};
use ciphertoll_testing::{Pool, no_server};
use libtest_mimic::{Arguments, Trial};

use crate::fixture::Fixture;

/// A comparison with an oracle, which panics on a difference.
type Case = (&'static str, fn(&mut Fixture));

/// On servers of every SQL engine.
const COMMON: [Case; 3] = [
    ("logins: every authentication over every path", logins::every_auth_over_every_path),
    ("samples: rows written by one are read by the other", samples::written_by_one_and_read_by_the_other),
    ("samples: rows of many parameters", samples::many_parameters),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = servers::builds()
        .into_iter()
        .flat_map(of_server)
        .chain(Engine::ALL.into_iter().filter_map(is_installed));
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}

/// A test for each case; they share a server.
fn of_server(build: Build) -> Vec<Trial> {
    let (kind, cases) = (format!("{} {}", build.engine, build.version), cases_of(&build));
    let pool = Pool::new(move || Some(Fixture::open(&build)));
    let test = |(name, case): Case| {
        let pool = pool.clone();
        let test = Trial::test(name, move || {
            pool.run(move |fixture| {
                case(fixture);
                fixture.server.check_alive().expect("the server is there at the end");
            });
            Ok(())
        });
        test.with_kind(&kind)
    };
    cases.into_iter().map(test).collect()
}

/// A test that reports that an engine has no server.
fn is_installed(engine: Engine) -> Option<Trial> {
    let error = find(&ServerLevel::of(engine)).err()?;
    let test = Trial::test("is installed", move || {
        no_server(engine, &error);
        Ok(())
    });
    Some(test.with_kind(engine.to_string()))
}

fn cases_of(build: &Build) -> Vec<Case> {
    let own: &[Case] = match build.engine {
        Engine::MariaDb | Engine::MySql => &mysql::CASES,
        Engine::Postgres => &postgres::CASES,
        Engine::MongoDb | Engine::FerretDb => &documents::CASES,
    };
    let common: &[Case] = match build.engine.query_language() {
        QueryLanguage::Sql => &COMMON,
        QueryLanguage::Documents => &[],
    };
    own.iter().chain(common).copied().collect()
}

#[expect(clippy::print_stderr, reason = "tests report on stderr; stdout is the harness's")]
fn say(line: &str) {
    eprintln!("{line}");
}
