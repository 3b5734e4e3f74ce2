//! Trials on a real server.

use std::env;
use std::thread;
use std::time::Duration;

use ciphertoll_load::LoadProcess;
use ciphertoll_model::{
    Clients, Draw, Engine, LoadMessage, Phase, Script, ScriptStatement, ScriptStep, StatementProtocol,
    TrialOperation, TrialPace, TrialResult, TrialSpec, Workload,
};
use ciphertoll_testing::missing;
use nix::sys::signal::Signal;

use crate::mariadb::{MAX_PACKET_BYTES, MariaDb};
use crate::{TIME_LIMIT, outcome, work_of};

/// How long the server stands still.
const STALL: Duration = Duration::from_millis(200);

/// A server, or a word on why the test tests nothing.
fn server() -> Option<MariaDb> {
    let server = MariaDb::start();
    if server.is_none() {
        missing("no mariadbd");
    }
    server
}

fn transactions(result: &TrialResult) -> u64 {
    assert_eq!(result.errors, []);
    assert!(result.operations > 0, "{result:?}");
    result.operations
}

pub(crate) fn every_workload_runs() {
    let Some(server) = server() else { return };
    for workload in
        Workload::ALL.into_iter().filter(|workload| workload.impossible(Engine::MariaDb).is_none())
    {
        for pace in [TrialPace::Closed, TrialPace::Open { per_s: 100.0 }] {
            let spec = TrialSpec { work: work_of(workload), pace, ..server.spec() };
            let result = outcome(&spec).unwrap_or_else(|error| panic!("{workload}: {error}"));
            let operations = transactions(&result);
            let steps = match &spec.work {
                TrialOperation::Transactions(script) if script.steps.len() > 1 => {
                    Some(script.steps.len() as u64)
                }
                _ => None,
            };
            if result.retries == 0 {
                assert_eq!(result.statements, steps.map(|steps| steps * operations), "{workload}");
            }
            assert_eq!(result.service.is_some(), pace != TrialPace::Closed);
            phases_fit(workload, pace, &result);
        }
    }
}

/// A connect's phases add up to its time; of a first query only the query is timed.
fn phases_fit(workload: Workload, pace: TrialPace, result: &TrialResult) {
    let sum: u64 = result.phase_sums_ns.values().sum();
    let phases: Vec<_> = result.phase_sums_ns.keys().copied().collect();
    match workload {
        Workload::Connect | Workload::CONNECT_QUERY => {
            assert!(phases.contains(&Phase::TcpConnect) && phases.contains(&Phase::Close));
            assert_eq!(phases.contains(&Phase::FirstQuery), workload == Workload::CONNECT_QUERY);
        }
        Workload::FirstQuery => assert_eq!(phases, [Phase::FirstQuery]),
        _ => assert_eq!(phases, []),
    }
    if pace == TrialPace::Closed && !phases.is_empty() {
        assert_eq!(sum, result.latency.sum_ns, "{workload}");
    }
}

/// It counts as one connect, which takes as long as its two.
pub(crate) fn a_connect_that_does_its_work_twice() {
    let Some(server) = server() else { return };
    let spec = TrialSpec { repeated_share: 1.0, ..server.spec() };
    let before = server.connects();
    let result = outcome(&spec).unwrap();
    let connects = server.connects() - before;
    let operations = transactions(&result);
    assert!(connects >= 2 * operations, "{connects} for {operations} operations");
    phases_fit(Workload::Connect, TrialPace::Closed, &result);
}

/// MariaDB gives NULL for a value that no packet holds: that is no bulk read.
pub(crate) fn a_value_that_is_too_long() {
    let Some(server) = server() else { return };
    let bytes = MAX_PACKET_BYTES * 2;
    let workload = format!("bulk-read+bytes={bytes}").parse().expect("a workload");
    let result = outcome(&TrialSpec { work: work_of(workload), ..server.spec() }).expect("a result");
    assert_eq!(result.operations, 0);
    assert!(result.errors[0].message.contains(&format!("and {bytes} were asked for")), "{:?}", result.errors);
}

/// Clients that lock two rows in either order run into each other; the same variables then go through.
pub(crate) fn conflicts_are_retried() {
    let Some(server) = server() else { return };
    let statement = |sql: &str, protocol| ScriptStatement { sql: sql.to_owned(), protocol };
    let step = |statement, parameters: &[usize]| ScriptStep { statement, parameters: parameters.to_vec() };
    let script = Script {
        statements: vec![
            statement("BEGIN", StatementProtocol::Text),
            statement("UPDATE sbtest1 SET k = k + 1 WHERE id = ?", StatementProtocol::Prepared),
            statement("COMMIT", StatementProtocol::Text),
        ],
        variables: vec![Draw::Uniform { first: 1, last: 3 }, Draw::Uniform { first: 1, last: 3 }],
        steps: vec![step(0, &[]), step(1, &[0]), step(1, &[1]), step(2, &[])],
        retry_on: vec!["1213".to_owned()],
        ..Script::default()
    };
    let clients = Clients::new(8).expect("eight clients");
    let spec = TrialSpec { work: TrialOperation::Transactions(script), clients, ..server.spec() };
    let result = outcome(&spec).expect("a result");
    let operations = transactions(&result);
    assert!(result.retries > 0, "{result:?}");
    assert!(result.statements > Some(4 * operations), "those of attempts in vain count, too");
}

/// Whatever the machine is busy with: what is due is done, at the rate asked for.
pub(crate) fn an_open_loop_keeps_its_rate() {
    let Some(server) = server() else { return };
    let clients = Clients::new(8).expect("eight clients");
    let (work, pace) = (work_of(Workload::PointSelect), TrialPace::Open { per_s: 1_000.0 });
    let spec = TrialSpec { work, pace, clients, threads: 2, window_ns: 1_000_000_000, ..server.spec() };
    let result = outcome(&spec).expect("a result");
    transactions(&result);
    // What was due in the window, whenever it was done. Poisson's standard deviation is 32.
    assert!((800..1_200).contains(&result.latency.count), "{}", result.latency.count);
    assert_eq!(result.unfinished, 0);
    let (service, lag) = (result.service.expect("open"), result.schedule_lag.expect("open"));
    assert_eq!((service.count, lag.count), (result.latency.count, result.latency.count));
    assert!(service.sum_ns <= result.latency.sum_ns);
    println!("  schedule lag: {lag:?}");
}

/// A trial in the middle of whose window the server stands still.
fn stalled(server: &MariaDb, pace: TrialPace) -> TrialResult {
    let spec = TrialSpec {
        work: work_of(Workload::PointSelect),
        pace,
        clients: Clients::ONE,
        // Who stops and wakes the server may be late, too.
        window_ns: 4_000_000_000,
        ..server.spec()
    };
    let program = env::current_exe().expect("this program");
    let mut process = LoadProcess::start(&program, &spec).expect("a load process");
    loop {
        match process.next_message(TIME_LIMIT).expect("no error").expect("a message") {
            LoadMessage::WindowOpened => {
                thread::sleep(STALL);
                server.signal(Signal::SIGSTOP);
                thread::sleep(STALL);
                server.signal(Signal::SIGCONT);
            }
            LoadMessage::Finished(result) => return *result,
            _ => {}
        }
    }
}

/// A twentieth of the operations are due while nobody answers: half of them wait for 100 ms and more.
pub(crate) fn an_open_loop_sees_a_stall() {
    let Some(server) = server() else { return };
    let result = stalled(&server, TrialPace::Open { per_s: 500.0 });
    assert_eq!(result.errors, []);
    let service = result.service.expect("open");
    assert!(result.latency.p99_ns >= 100_000_000, "{:?}", result.latency);
    assert!(service.p50_ns < 20_000_000, "{service:?}");
}

/// The only client waits once, and nobody counts those that would have come: not one in a hundred has waited.
pub(crate) fn a_closed_loop_sees_it_once() {
    let Some(server) = server() else { return };
    let result = stalled(&server, TrialPace::Closed);
    transactions(&result);
    assert!(result.latency.max_ns >= 100_000_000, "{:?}", result.latency);
    assert!(result.latency.p99_ns < 100_000_000, "{:?}", result.latency);
}
