//! The load process itself. This program is both ends: started as `PROGRAM __load` it is the load process, else it
//! runs the tests, each of which starts it again.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]
#![expect(clippy::print_stdout, reason = "in place of the harness that this program cannot have")]

use std::env;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_load::{Error, LoadProcess, decode_histogram, run_load_process};
use ciphertoll_model::{
    Auth, Clients, Ctx, Endpoint, Engine, Fault, LoadMessage, Statement, TlsSpec, TlsVersion, TrialResult,
    TrialSpec,
};
use tempfile::TempDir;

/// A load process that says nothing for longer has hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// Never waited for: every trial here is over before.
const WINDOW_NS: u64 = 15_000_000_000;

const TESTS: [(&str, fn()); 5] = [
    ("a_specification_that_is_none", a_specification_that_is_none),
    ("a_password_that_cannot_be_read", a_password_that_cannot_be_read),
    ("an_authority_that_cannot_be_read", an_authority_that_cannot_be_read),
    ("nobody_listens_to_a_pool", nobody_listens_to_a_pool),
    ("nobody_listens_to_churn", nobody_listens_to_churn),
];

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("__load") {
        return if run_load_process().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // The harness's flags: nothing here is ignored, and nothing can be listed.
    let flags = ["--ignored", "--list"];
    if env::args().any(|argument| flags.contains(&argument.as_str())) {
        return ExitCode::SUCCESS;
    }
    let filter = first.filter(|filter| !filter.starts_with('-')).unwrap_or_default();
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
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
        tls: None,
        statement: Statement::Connect,
        clients: Clients::new(3).unwrap(),
        threads: 2,
        warm_up_ns: 1_000_000,
        window_ns: WINDOW_NS,
        seed: 1,
        injected_delay_ns: 0,
    }
}

/// All that the load process says, up to its last word.
fn outcome(spec: &TrialSpec) -> Result<TrialResult, Error> {
    let mut process = LoadProcess::start(&env::current_exe().unwrap(), spec)?;
    loop {
        match process.next_message(PATIENCE)?.expect("the load process says nothing") {
            LoadMessage::Finished(result) => return Ok(*result),
            LoadMessage::WindowOpened | LoadMessage::WindowClosed => {}
            LoadMessage::Failed { .. } => unreachable!("it is an error"),
        }
    }
}

#[track_caller]
fn expect_failure(spec: &TrialSpec, fault: Fault, beginning: &str) {
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
        let LoadMessage::Failed { fault, message } = message else { panic!("{message:?}") };
        assert_eq!(fault, Fault::Internal);
        assert!(message.starts_with("the trial's specification does not parse: "), "{message}");
    }
}

fn a_password_that_cannot_be_read() {
    let directory = TempDir::new().unwrap();
    let spec = TrialSpec { password_file: PathBuf::from("/nowhere/password"), ..spec(directory.path()) };
    expect_failure(&spec, Fault::Host, "cannot read the password file: ");
}

fn an_authority_that_cannot_be_read() {
    let directory = TempDir::new().unwrap();
    let tls = TlsSpec {
        version: TlsVersion::Tls13,
        ca_file: PathBuf::from("/nowhere/ca.pem"),
        server_name: "localhost".to_owned(),
        ctx: Ctx::Shared,
    };
    let spec = TrialSpec { tls: Some(tls), ..spec(directory.path()) };
    expect_failure(&spec, Fault::Internal, "cannot build the TLS context: CA file /nowhere/ca.pem: ");
}

/// Without its connections a pool cannot begin: the trial fails, and the server is to blame.
fn nobody_listens_to_a_pool() {
    let directory = TempDir::new().unwrap();
    let statement = Statement::PointSelect { table: "t".to_owned(), rows: 10 };
    let spec = TrialSpec { statement, ..spec(directory.path()) };
    expect_failure(&spec, Fault::Server, "cannot connect: Connection refused");
}

/// Connects are the operations of churn: each client's failure is one, and counted.
fn nobody_listens_to_churn() {
    let directory = TempDir::new().unwrap();
    let began = Instant::now();
    let result = outcome(&spec(directory.path())).unwrap();
    assert_eq!(result.operations, 0);
    let failed: u64 = result.errors.iter().map(|error| error.count).sum();
    assert_eq!(failed, 3, "{:?}", result.errors);
    assert!(result.errors.iter().all(|error| error.message.starts_with("cannot connect: ")));
    assert!(decode_histogram(&result.histogram_base64).unwrap().is_empty());
    assert_eq!(result.window_ns, WINDOW_NS);
    assert!(began.elapsed() < Duration::from_nanos(WINDOW_NS), "it waited for clients that had given up");
    assert!(result.client_rss_peak_bytes > 0);
}
