//! What the coordinator makes of a load process: its words, and every way to end without them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use ciphertoll_load::{Error, LoadProcess, decode_histogram};
use ciphertoll_model::{
    Auth, Clients, Endpoint, Engine, FailureOrigin, LoadMessage, TrialOperation, TrialPace, TrialResult,
    TrialSpec,
};
use tempfile::TempDir;

/// A load process that says nothing for longer has hung.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// A program that is still open for writing, in a child that another test just forked, cannot be started
/// (ETXTBSY): one test at a time writes its program and starts it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn spec() -> TrialSpec {
    TrialSpec {
        engine: Engine::MariaDb,
        auth: Auth::Native,
        endpoint: Endpoint::Unix(PathBuf::from("/nowhere")),
        user: "toll".to_owned(),
        password_file: PathBuf::from("/nowhere"),
        database: None,
        startup: Vec::new(),
        documents: None,
        tls: None,
        work: TrialOperation::Connect,
        pace: TrialPace::Closed,
        clients: Clients::ONE,
        threads: 1,
        warm_up_ns: 0,
        window_ns: 1,
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

/// Starts a shell script in the place of the load process.
fn start(script: &str) -> (LoadProcess, TempDir) {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("program");
    let alone = ONE_AT_A_TIME.lock().unwrap();
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let process = LoadProcess::start(&program, &spec()).unwrap();
    drop(alone);
    (process, directory)
}

/// The next message or the end.
fn next(process: &mut LoadProcess) -> Result<LoadMessage, Error> {
    let message = process.next_message(TIME_LIMIT)?;
    Ok(message.expect("the load process says nothing"))
}

#[track_caller]
fn ends_with(script: &str, expected: &str, fault: FailureOrigin) {
    let (mut process, _directory) = start(script);
    let error = next(&mut process).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.fault(), fault);
}

#[test]
fn messages_arrive_in_order() {
    let (mut process, _directory) =
        start("echo '{\"message\":\"window_opened\"}'; echo '{\"message\":\"window_closed\"}'");
    assert_eq!(next(&mut process).unwrap(), LoadMessage::WindowOpened);
    assert_eq!(next(&mut process).unwrap(), LoadMessage::WindowClosed);
    assert!(matches!(next(&mut process), Err(Error::NoResult(_))));
}

#[test]
fn the_trial_arrives_whole_and_the_command_is_load() {
    let (mut process, _directory) = start(
        "read -r line; printf '{\"message\":\"failed\",\"body\":{\"fault\":\"host\",\"message\":\"%s %s\"}}\\n' \"$1\" \"${#line}\"",
    );
    let length = serde_json::to_string(&spec()).unwrap().len();
    let Err(Error::Reported { message, .. }) = next(&mut process) else { panic!("not as it was told to") };
    assert_eq!(message, format!("__load {length}"));
}

#[test]
fn a_reported_failure_keeps_its_fault() {
    for (name, fault) in [
        ("server", FailureOrigin::Server),
        ("tls", FailureOrigin::Tls),
        ("host", FailureOrigin::Host),
        ("internal", FailureOrigin::Internal),
    ] {
        let line =
            format!("{{\"message\":\"failed\",\"body\":{{\"fault\":\"{name}\",\"message\":\"why\"}}}}");
        ends_with(&format!("echo '{line}'"), "why", fault);
    }
}

#[test]
fn a_reported_failure_keeps_its_kind() {
    for (kind, full) in
        [("", false), (",\"kind\":\"other\"", false), (",\"kind\":\"too_many_connections\"", true)]
    {
        let body = format!("{{\"fault\":\"server\",\"message\":\"why\"{kind}}}");
        let (mut process, _directory) = start(&format!("echo '{{\"message\":\"failed\",\"body\":{body}}}'"));
        let error = next(&mut process).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.is_too_many_connections()), ("why", full), "{kind}");
    }
}

#[test]
fn silent_ends_are_told_apart() {
    let ended = "the load process ended without a result: ";
    ends_with("exit 3", &format!("{ended}exit code 3"), FailureOrigin::Internal);
    ends_with("exit 0", &format!("{ended}exit code 0"), FailureOrigin::Internal);
    ends_with("kill -9 $$", &format!("{ended}killed by signal 9"), FailureOrigin::Internal);
}

#[test]
fn words_that_are_no_message() {
    let (mut process, _directory) = start("echo hello");
    let error = next(&mut process).unwrap_err();
    assert!(error.to_string().starts_with("cannot parse the load process's message: "), "{error}");
    assert_eq!(error.fault(), FailureOrigin::Internal);
}

#[test]
fn nothing_yet_is_no_error() {
    let (mut process, _directory) = start("read -r line; read -r another");
    assert_eq!(process.next_message(Duration::ZERO).unwrap(), None);
    assert!(process.pid() > 0);
}

/// Dropping kills and reaps: nothing of a trial outlives it.
#[test]
fn a_dropped_process_is_gone() {
    let (mut process, directory) =
        start("echo '{\"message\":\"window_opened\"}'; read -r line; read -r another");
    assert_eq!(next(&mut process).unwrap(), LoadMessage::WindowOpened);
    let entry = PathBuf::from(format!("/proc/{}", process.pid()));
    assert!(entry.exists());
    drop(process);
    assert!(!entry.exists());
    drop(directory);
}

#[test]
fn a_program_that_is_not_there() {
    let alone = ONE_AT_A_TIME.lock().unwrap();
    let error = LoadProcess::start("/nowhere/ciphertoll".as_ref(), &spec()).map(|_| ()).unwrap_err();
    drop(alone);
    assert!(error.to_string().starts_with("cannot start the load process: "), "{error}");
    assert_eq!(error.fault(), FailureOrigin::Host);
}

/// A driver of somebody else's, as a shell's command line.
fn drive(script: &str) -> LoadProcess {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    LoadProcess::start_command(shell, &spec(), Duration::from_secs(1)).unwrap()
}

const FINISHED: &str = r#"{"message":"finished","body":{"operations":3,"window_ns":1000,"client_cpu_ns":7,"client_rss_peak_bytes":9}}"#;

fn finished(process: &mut LoadProcess) -> TrialResult {
    loop {
        if let LoadMessage::Finished(result) = next(process).unwrap() {
            return *result;
        }
    }
}

/// What a driver of three lines has to say, and what becomes of it.
#[test]
fn samples_become_the_results_times() {
    let mut process = drive(&format!(
        r#"read -r spec
        echo '{{"message":"window_opened"}}'
        echo '{{"message":"samples","body":{{"latency_ns":[100,300]}}}}'
        echo '{{"message":"window_closed"}}'
        echo '{{"message":"samples","body":{{"latency_ns":[800]}}}}'
        echo '{FINISHED}'"#
    ));
    assert_eq!(next(&mut process).unwrap(), LoadMessage::WindowOpened);
    let result = finished(&mut process);
    assert_eq!((result.operations, result.operations_by_half), (3, [0, 0]));
    assert_eq!((result.latency.count, result.latency.sum_ns, result.latency.max_ns), (3, 1200, 800));
    assert_eq!(result.latency.p50_ns, 300);
    assert_eq!(decode_histogram(&result.histogram_base64).unwrap().len(), 3);
}

#[test]
fn a_driver_without_samples_has_an_empty_histogram() {
    let result = finished(&mut drive(&format!("echo '{FINISHED}'")));
    assert_eq!(result.latency.count, 0);
    assert!(decode_histogram(&result.histogram_base64).unwrap().is_empty());
}

/// Times that a driver took itself are its word.
#[test]
fn a_drivers_own_times_stay() {
    let own = FINISHED.replace(
        r#""operations""#,
        r#""latency":{"count":1,"sum_ns":5,"p50_ns":5,"p95_ns":5,"p99_ns":5,"max_ns":5},"histogram_base64":"own","operations""#,
    );
    let samples = r#"{"message":"samples","body":{"latency_ns":[100]}}"#;
    let result = finished(&mut drive(&format!("echo '{samples}'; echo '{own}'")));
    assert_eq!((result.latency.sum_ns, result.histogram_base64.as_str()), (5, "own"));
}

#[test]
fn the_last_complaint_is_quoted() {
    let mut process = drive("echo 'first' >&2; printf '\\033[31mno such\\nlibrary x  \\n\\n' >&2; exit 4");
    let error = next(&mut process).unwrap_err().to_string();
    assert_eq!(error, "the load process ended without a result: exit code 4; it said: library x");
}

#[test]
fn a_line_without_end_is_refused() {
    let mut process = drive("exec cat /dev/zero");
    let error = next(&mut process).unwrap_err();
    assert_eq!(error.to_string(), "the load process wrote a line of more than 16777216 bytes");
    assert_eq!(error.fault(), FailureOrigin::Internal);
}
