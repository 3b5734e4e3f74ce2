//! The load process itself. This program is both ends: started as `PROGRAM __load` it is the load process, else it
//! runs the tests, each of which starts it again.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]
#![expect(clippy::print_stdout, reason = "tests print what they have measured")]

mod ferretdb;
mod limits;
mod mariadb;
mod served;

use std::env;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ciphertoll_load::{Error, LoadProcess, decode_histogram, run_load_process, work};
use ciphertoll_model::{
    Auth, Clients, Ctx, Endpoint, Engine, FailureOrigin, LoadMessage, Scale, TlsParameters, TlsSpec,
    TlsStart, TlsVersion, TrialOperation, TrialPace, TrialResult, TrialSpec, Workload,
};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

/// A load process that says nothing for longer has hung.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Longer than the limit of time: a trial that waits for its end fails.
const WINDOW_NS: u64 = 3_600_000_000_000;

const TESTS: [(&str, fn()); 26] = [
    ("a_specification_that_is_none", a_specification_that_is_none),
    ("a_password_that_cannot_be_read", a_password_that_cannot_be_read),
    ("an_authority_that_cannot_be_read", an_authority_that_cannot_be_read),
    ("nobody_listens_to_a_pool", nobody_listens_to_a_pool),
    ("nobody_listens_to_churn", nobody_listens_to_churn),
    ("a_script_that_cannot_be_run", a_script_that_cannot_be_run),
    ("a_rate_that_is_none", a_rate_that_is_none),
    ("work_that_is_not_repeated", work_that_is_not_repeated),
    ("tls_that_an_engine_does_not_have", tls_that_an_engine_does_not_have),
    ("a_processor_that_is_not_there", a_processor_that_is_not_there),
    ("a_limit_is_kept_without_spinning", limits::a_limit_is_kept_without_spinning),
    ("a_server_at_its_connection_limit", limits::a_server_at_its_connection_limit_is_left_alone),
    ("a_pool_larger_than_the_limit", limits::a_pool_larger_than_the_limit_does_not_start),
    ("every_workload_runs", served::every_workload_runs),
    ("a_connect_that_does_its_work_twice", served::a_connect_that_does_its_work_twice),
    ("a_value_that_is_too_long", served::a_value_that_is_too_long),
    ("conflicts_are_retried", served::conflicts_are_retried),
    ("an_open_loop_keeps_its_rate", served::an_open_loop_keeps_its_rate),
    ("an_open_loop_sees_a_stall", served::an_open_loop_sees_a_stall),
    ("a_closed_loop_sees_it_once", served::a_closed_loop_sees_it_once),
    ("documents::every_workload_runs", ferretdb::every_workload_runs),
    ("documents::connects_are_made_of_phases", ferretdb::connects_are_made_of_phases),
    ("documents::what_is_inserted_is_there", ferretdb::what_is_inserted_is_there),
    ("documents::a_record_that_is_not_there", ferretdb::a_record_that_is_not_there),
    ("documents::a_wrong_password", ferretdb::a_wrong_password),
    ("documents::a_login_waits", ferretdb::a_login_waits_as_often_as_the_model_says),
];

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("__load") {
        return if run_load_process().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let tests = TESTS.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), tests.into()).exit_code()
}

/// A trial against nobody, with a password file that is there.
fn spec(directory: &Path) -> TrialSpec {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let password_file = directory.join("password");
    fs::write(&password_file, "hunter2").unwrap();
    TrialSpec {
        engine: Engine::MariaDb,
        auth: Auth::Native,
        endpoint: Endpoint::Tcp(free.local_addr().unwrap()),
        user: "toll".to_owned(),
        password_file,
        database: None,
        startup: Vec::new(),
        documents: None,
        tls: None,
        work: TrialOperation::Connect,
        pace: TrialPace::Closed,
        clients: Clients::new(3).unwrap(),
        threads: 2,
        warm_up_ns: 1_000_000,
        window_ns: WINDOW_NS,
        seed: 1,
        compressor: None,
        first_insert: None,
        max_per_s: None,
        processors: None,
        namespace: None,
        injected_delay_ns: 0,
        repeated_share: 0.0,
        start: ciphertoll_model::TrialStart::AtOnce,
    }
}

fn tls() -> TlsSpec {
    let parameters = TlsParameters::new(TlsVersion::Tls13);
    TlsSpec { ctx: Ctx::Shared, ..TlsSpec::new(parameters, Some("/nowhere/ca.pem".into()), "localhost") }
}

/// Where a program is that a test starts.
fn find(program: &str) -> Option<PathBuf> {
    let places = env::var_os("PATH")?;
    let mut places: Vec<_> = env::split_paths(&places).collect();
    places.push(PathBuf::from("/usr/sbin"));
    places.into_iter().map(|place| place.join(program)).find(|path| path.is_file())
}

/// What `workload` is in MariaDB, in a small table.
fn work_of(workload: Workload) -> TrialOperation {
    work(Engine::MariaDb, workload, Scale::DEFAULT, None)
}

/// A trial in which something was done, or went wrong: a machine that is busy with others may well stand still for as long as
/// a short window.
fn outcome(spec: &TrialSpec) -> Result<TrialResult, Error> {
    const ATTEMPTS: usize = 3;
    let is_idle = |result: &TrialResult| result.operations == 0 && result.errors.is_empty();
    for _ in 1..ATTEMPTS {
        match one_outcome(spec) {
            Ok(result) if is_idle(&result) => {}
            done => return done,
        }
    }
    one_outcome(spec)
}

/// All that the load process says, up to its last word.
fn one_outcome(spec: &TrialSpec) -> Result<TrialResult, Error> {
    let mut process = LoadProcess::start(&env::current_exe().unwrap(), spec)?;
    loop {
        match process.next_message(TIME_LIMIT)?.expect("the load process says nothing") {
            LoadMessage::Finished(result) => return Ok(*result),
            LoadMessage::WindowOpened | LoadMessage::WindowClosed => {}
            // Only after a start that was told.
            LoadMessage::Ready | LoadMessage::Begun { .. } => unreachable!("it waits for nobody"),
            LoadMessage::Samples { .. } | LoadMessage::Failed { .. } => unreachable!("not handed on"),
        }
    }
}

#[track_caller]
fn expect_failure(spec: &TrialSpec, fault: FailureOrigin, beginning: &str) {
    let error = outcome(spec).unwrap_err();
    assert!(matches!(error, Error::Reported { .. }), "{error:?}");
    assert_eq!(error.fault(), fault);
    assert!(error.to_string().starts_with(beginning), "{error}");
}

fn a_specification_that_is_none() {
    for text in ["", "\n", "{}\n", "garbage\n", "{\"endpoint\":{\"tcp\":\"127.0.0.1:1\"}}"] {
        let mut load = Command::new(env::current_exe().unwrap())
            .arg("__load")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        load.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = load.wait_with_output().unwrap();
        assert!(!output.status.success());
        let message: LoadMessage = serde_json::from_slice(&output.stdout).unwrap();
        let LoadMessage::Failed { fault, message, .. } = message else { panic!("{message:?}") };
        assert_eq!(fault, FailureOrigin::Internal);
        assert!(message.starts_with("the trial's specification does not parse: "), "{message}");
    }
}

fn a_password_that_cannot_be_read() {
    let directory = TempDir::new().unwrap();
    let spec = TrialSpec { password_file: PathBuf::from("/nowhere/password"), ..spec(directory.path()) };
    expect_failure(&spec, FailureOrigin::Host, "cannot read the password file: ");
}

fn an_authority_that_cannot_be_read() {
    let directory = TempDir::new().unwrap();
    let spec = TrialSpec { tls: Some(tls()), ..spec(directory.path()) };
    expect_failure(&spec, FailureOrigin::Internal, "cannot build the TLS context: CA file /nowhere/ca.pem: ");
}

/// Without its connections a pool cannot begin: the trial fails, and the server is to blame.
fn nobody_listens_to_a_pool() {
    let directory = TempDir::new().unwrap();
    let spec = TrialSpec { work: work_of(Workload::PointSelect), ..spec(directory.path()) };
    expect_failure(&spec, FailureOrigin::Server, "cannot connect: Connection refused");
}

/// Connects are the operations of churn: each client's failure is one, and counted.
fn nobody_listens_to_churn() {
    let directory = TempDir::new().unwrap();
    // The clients have given up: it does not wait for the end of the window.
    let result = outcome(&spec(directory.path())).unwrap();
    assert_eq!(result.operations, 0);
    let failed: u64 = result.errors.iter().map(|error| error.count).sum();
    assert_eq!(failed, 3, "{:?}", result.errors);
    assert!(result.errors.iter().all(|error| error.message.starts_with("cannot connect: ")));
    assert!(decode_histogram(&result.histogram_base64).unwrap().is_empty());
    assert_eq!(result.window_ns, WINDOW_NS);
    assert!(result.client_rss_peak_bytes > 0);
}

fn a_script_that_cannot_be_run() {
    let directory = TempDir::new().unwrap();
    for workload in [Workload::PointSelect, Workload::FirstQuery] {
        let mut work = work_of(workload);
        let (TrialOperation::Transactions(script) | TrialOperation::FirstQuery(script)) = &mut work else {
            panic!("it has one")
        };
        script.variables.clear();
        let spec = TrialSpec { work, ..spec(directory.path()) };
        let beginning = "the trial's script cannot be run: step 0 refers to no variable";
        expect_failure(&spec, FailureOrigin::Internal, beginning);
    }
}

fn a_rate_that_is_none() {
    let directory = TempDir::new().unwrap();
    for per_s in [0.0, -1.0] {
        let spec = TrialSpec { pace: TrialPace::Open { per_s }, ..spec(directory.path()) };
        expect_failure(
            &spec,
            FailureOrigin::Internal,
            "the trial cannot be made: an open loop needs a positive rate",
        );
    }
}

fn work_that_is_not_repeated() {
    let directory = TempDir::new().unwrap();
    let cases = [
        (work_of(Workload::PointSelect), TrialPace::Closed),
        (work_of(Workload::FirstQuery), TrialPace::Closed),
        (TrialOperation::Connect, TrialPace::Open { per_s: 10.0 }),
    ];
    for (work, pace) in cases {
        let spec = TrialSpec { work, pace, repeated_share: 0.5, ..spec(directory.path()) };
        let beginning = "the trial cannot be made: only connects in a closed loop can repeat their work";
        expect_failure(&spec, FailureOrigin::Internal, beginning);
    }
}

fn tls_that_an_engine_does_not_have() {
    let directory = TempDir::new().unwrap();
    let tls = TlsSpec { start: TlsStart::Direct, ..tls() };
    let spec = TrialSpec { tls: Some(tls), ..spec(directory.path()) };
    expect_failure(
        &spec,
        FailureOrigin::Internal,
        "the trial cannot be made: MySQL and MariaDB have no TLS from the first byte",
    );
}

fn a_processor_that_is_not_there() {
    let directory = TempDir::new().unwrap();
    for processors in [vec![], vec![1_023], vec![u16::MAX]] {
        let spec = TrialSpec { processors: Some(processors), ..spec(directory.path()) };
        expect_failure(&spec, FailureOrigin::Host, "cannot pin to the requested processors: ");
    }
}
