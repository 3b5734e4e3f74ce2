//! What tests share: the messages of tests that are skipped, completely or in part (in CI, a test that needs what the
//! project's own scripts install fails instead), and servers that tests use one after another.

mod pool;

use std::fmt::Display;

use ciphertoll_model::{Engine, ProxyProgram};

pub use self::pool::Pool;

/// `true` in CI.
const CI: &str = "CI";

/// `true` in `make test-full`, which also fetches what has no fixed version.
const FULL: &str = "CIPHERTOLL_TEST_FULL";

#[must_use]
pub fn in_ci() -> bool {
    std::env::var(CI).is_ok_and(|ci| ci == "true")
}

/// Reports that something is missing which the project's own scripts install.
///
/// # Panics
///
/// In CI.
#[track_caller]
pub fn missing(what: &(impl Display + ?Sized)) {
    assert!(!in_ci(), "in CI nothing is skipped: {what}");
    not_for_all(what);
}

/// Reports that something is missing which CI may be without, too: it is too large to fetch for each change,
/// or only another kernel, processor or user has it.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub fn not_for_all(why: &(impl Display + ?Sized)) {
    eprintln!("skipped: {why}");
}

/// Reports that something is missing which `make test-full` fetches, and `make test` does not: it comes from an archive
/// that changes from day to day.
///
/// # Panics
///
/// In `make test-full`.
#[track_caller]
pub fn only_in_full(what: &(impl Display + ?Sized)) {
    let is_full = std::env::var(FULL).is_ok_and(|full| full == "true");
    assert!(!is_full, "in make test-full nothing is skipped: {what}");
    not_for_all(&format!("{what} (make test-full has it)"));
}

/// Reports that an engine has no installed server. CI has all except MySQL, which is too large to fetch for
/// each change, and MongoDB, which no registry offers.
///
/// # Panics
///
/// In CI, where it has one.
#[track_caller]
pub fn no_server(engine: Engine, why: &(impl Display + ?Sized)) {
    match engine {
        Engine::MySql | Engine::MongoDb => not_for_all(why),
        Engine::MariaDb | Engine::Postgres | Engine::FerretDb => missing(why),
    }
}

/// Reports that a proxy is not installed. CI has the sidecar and the distribution's `PgBouncer`.
///
/// # Panics
///
/// In CI, where it has one.
#[track_caller]
pub fn no_proxy(program: ProxyProgram, why: &(impl Display + ?Sized)) {
    match program.label() {
        "proxy" | "pgbouncer" => missing(why),
        "odyssey" | "mysqlrouter" => only_in_full(why),
        // No registry offers ProxySQL.
        _ => not_for_all(why),
    }
}
