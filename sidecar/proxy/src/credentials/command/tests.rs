use super::*;

fn shell(script: &str, time_limit: Duration) -> Result<Vec<u8>, CommandError> {
    let words = ["sh", "-c", script].map(ToOwned::to_owned);
    run(&words, &[], time_limit, &RunningCommands::default()).map(|output| output.expose().to_vec())
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn output_up_to_the_limit_is_returned() {
    assert_eq!(shell("printf x; echo noise >&2", LONG), Ok(b"x".to_vec()));
    let most = shell("head -c 65536 /dev/zero; head -c 100000 /dev/zero >&2", LONG);
    assert_eq!(most.map(|output| output.len()), Ok(MAX_OUTPUT_BYTES));
    let more = shell("head -c 65537 /dev/zero", LONG);
    assert_eq!(more, Err(CommandError::TooMuch { program: "sh".to_owned() }));
    // Nothing is left in the pipe of a command that has ended.
    for _ in 0..20 {
        assert_eq!(shell("head -c 50000 /dev/zero", LONG).map(|output| output.len()), Ok(50_000));
    }
    assert_eq!(shell("cat", LONG), Ok(Vec::new()));
}

#[test]
fn a_command_ends_when_it_exits_and_not_when_its_output_is_closed() {
    // Another process holds stdout open for longer than the limit; it is not waited for.
    assert_eq!(shell("printf x; sleep 90 & exit", LONG), Ok(b"x".to_vec()));
    assert_eq!(shell("printf x; exec >&- 2>&-; sleep 0.1; exit 0", LONG), Ok(b"x".to_vec()));
    // What another process goes on writing is not read for longer than the limit.
    let limited = shell("yes >&2 & printf x; exit", Duration::from_millis(500));
    assert_eq!(limited, Ok(b"x".to_vec()));
    let late = shell("exec >&- 2>&-; sleep 50", Duration::from_millis(200));
    let time = Duration::from_millis(200).into();
    assert_eq!(late, Err(CommandError::TimedOut { program: "sh".to_owned(), time }));
}

#[test]
fn a_failure_is_told_without_stdout() {
    let said = |script: &str| match shell(script, LONG) {
        Err(CommandError::Failed { status, said, .. }) => (status, said),
        other => panic!("{other:?}"),
    };
    let code = |number: u8| format!("exited with code {number}");
    assert_eq!(said("echo secret; echo >&2; echo why >&2; exit 3"), (code(3), ": why".to_owned()));
    let hidden = " (stderr repeats the output and is not shown)";
    assert_eq!(said("echo secret; echo 'got secret' >&2; exit 1"), (code(1), hidden.to_owned()));
    assert_eq!(said("echo a secret; echo secret >&2; exit 1"), (code(1), hidden.to_owned()));
    let json = "echo '{\"password\":\"s3cr3t-word\"}'";
    assert_eq!(
        said(&format!("{json}; echo 'rejected: s3cr3t-word' >&2; exit 1")),
        (code(1), hidden.to_owned())
    );
    let (_, long) = said("head -c 3000 /dev/zero | tr '\\0' x >&2; exit 1");
    assert_eq!(long.len(), MAX_LINE_CHARACTERS + 2);
    assert_eq!(said("printf 'a\\tb\\033' >&2; exit 1").1, ": a?b?");
    assert_eq!(said("kill -9 $$"), ("was killed by signal 9".to_owned(), String::new()));
    let missing = run(&["/nowhere/x".to_owned()], &[], LONG, &RunningCommands::default());
    let missing = missing.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(missing.starts_with("cannot start /nowhere/x: No such file"), "{missing}");
}

#[test]
fn no_command_starts_after_a_stop() {
    let running = RunningCommands::default();
    running.stop();
    let refused = run(&["true".to_owned()], &[], LONG, &running).map(drop);
    assert_eq!(refused, Err(CommandError::Stopping));
}
