//! What a test says when it, or a part of it, is not run. In CI nothing is skipped that the project's own scripts install:
//! there such a test fails.

use std::fmt::Display;

use ciphertoll_model::Engine;

/// Set to `true` by `.ci/run`, and by the machines of those who run it.
const CI: &str = "CI";

/// Whether this is CI.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var(CI).is_ok_and(|ci| ci == "true")
}

/// Says on stderr that something is missing that the project's own scripts install.
///
/// # Panics
///
/// In CI.
#[track_caller]
pub fn missing(what: &(impl Display + ?Sized)) {
    assert!(!in_ci(), "in CI nothing is skipped: {what}");
    not_for_all(what);
}

/// Says on stderr what a machine may well be without, CI's among them: what is too large to be fetched for each change, or
/// what only another kernel, processor or user has.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub fn not_for_all(why: &(impl Display + ?Sized)) {
    eprintln!("skipped: {why}");
}

/// Says on stderr that there is no server of an engine. CI has one of each, but for MySQL, which is too large for it, and
/// MongoDB, which no registry has.
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
