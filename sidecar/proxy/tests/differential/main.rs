//! Random sessions of raw messages, directly and through the proxy in each mode: the answers must be equal, message by
//! message, but for what the documentation lists. See README.md.

mod documented;
mod driver;
mod mysql;
mod options;
mod parts;
mod postgres;
#[expect(dead_code, reason = "shared with the tests of the proxy, which use more of it")]
#[path = "../proxy/process.rs"]
mod process;
mod proxies;
mod random;
#[path = "../proxy/server.rs"]
mod server;
mod session;
mod shrink;
mod waiting;

use std::process::ExitCode;
use std::thread;

use ciphertoll_model::Engine;

use crate::options::Options;

fn main() -> ExitCode {
    let Some(filter) = filter(std::env::args().skip(1)) else { return ExitCode::SUCCESS };
    let options = Options::read();
    let chosen = |name: &str| options.has_protocol(name) && format!("differential {name}").contains(&filter);
    let failures: usize = thread::scope(|scope| {
        // A server is a child of the thread that starts it, and ends with it.
        let postgres = scope.spawn(|| if chosen("postgres") { postgres::run(&options) } else { 0 });
        let mysql = scope.spawn(|| {
            let engines = [Engine::MariaDb, Engine::MySql].into_iter();
            engines
                .filter(|engine| chosen(&engine.to_string()))
                .map(|engine| mysql::run(engine, &options))
                .sum()
        });
        [postgres, mysql].map(|thread| thread.join().unwrap_or(1)).into_iter().sum()
    });
    say(&format!("{failures} kinds of differences"));
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
