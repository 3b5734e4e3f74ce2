//! What is asked wrongly gets one line on stderr, which names the nearest right thing, and an exit code of the
//! table; what is only asked about gets an answer that depends on nothing but the question.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{answer, text};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd")
}

/// The words of every command in the snapshots of wrong input.
fn wrong_commands() -> Vec<String> {
    let snapshot = fs::read_to_string(cases().join("wrong_input.trycmd")).expect("the snapshots");
    snapshot.lines().filter_map(|line| line.strip_prefix("$ ciphertoll ")).map(str::to_owned).collect()
}

#[test]
fn snapshots() {
    trycmd::TestCases::new().env("COLUMNS", "100").case("tests/cmd/*.trycmd");
}

#[test]
fn every_wrong_input_gets_one_line_on_stderr_and_leaves_nothing() {
    const LONGEST_LINE: usize = 320;
    let commands = wrong_commands();
    assert!(commands.len() > 30, "the snapshots are not read as they should be");
    let place = cases().join("wrong_input.in");
    let before = names_in(&place);
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let answer = answer(&words, &place);
        assert!(matches!(answer.code, Some(2 | 5 | 8 | 9)), "{command}: {answer:?}");
        assert!(answer.one_line().len() <= LONGEST_LINE, "{command}: {answer:?}");
    }
    assert_eq!(names_in(&place), before, "nothing half-made is left");
}

fn names_in(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    names
}

#[test]
fn the_toml_that_a_dry_run_prints_asks_for_the_same_plan() {
    let asked: [&[&str]; 5] = [
        &["--seed", "7"],
        &["--path", "plain,unix,tls1.2-rsa2048", "--ctx", "per-connect,shared", "--clients", "1,8"],
        &["--server", "lts:mariadb-10.11,new:mariadb=/opt/m", "--baseline", "server=new:mariadb=/opt/m"],
        &[
            "--server",
            "postgres",
            "--set",
            "postgres.work_mem=8MB",
            "--set",
            "postgres.fsync=off",
            "--seed",
            "3",
        ],
        &["--size", "full", "--blocks", "3", "--trial-time", "1500ms", "--budget", "90", "--seed", "0"],
    ];
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("asked.toml");
    for arguments in asked {
        let dry = |arguments: &[&str]| answer(&[&["run", "--dry-run"], arguments].concat(), place.path());
        let toml = dry(&[arguments, &["--format", "toml"]].concat());
        assert_eq!((toml.code, toml.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        fs::write(&file, &toml.stdout).expect("write the TOML");
        let again = dry(&[text(&file), "--format", "toml"]);
        assert_eq!(again.stdout, toml.stdout, "{arguments:?}");
        let seeded = dry(&[text(&file)]);
        assert_eq!(seeded.code, Some(0), "{seeded:?}");
        assert_eq!(seeded.stdout, dry(&[text(&file)]).stdout, "the same seed gives the same plan");
        if arguments.contains(&"--seed") {
            assert_eq!(seeded.stdout, dry(arguments).stdout, "{arguments:?}");
        }
    }
    assert_eq!(names_in(place.path()), [file], "a dry run makes nothing");
}

#[test]
fn records_that_are_none_are_told_apart_from_runs_that_are_not_there() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let run = place.path().join("20261121T011500Z-quick-a3f1");
    fs::create_dir(&run).expect("a run directory");
    let started = r#"{"at_unix_ms":1,"event":"run_started","schema_version":1,"tool_version":"0.1.0"}"#;
    let newer = started.replace(r#""schema_version":1"#, r#""schema_version":99"#);
    for (events, said) in [
        ("", "does not begin with run_started"),
        ("{}\n", "no version"),
        (&format!("{newer}\n"), "newer ciphertoll"),
        (&format!("{started}\nnot json\n{started}\n"), "line 2"),
        // Only plan and specification are missing.
        (&format!("{started}\n"), "no such file"),
    ] {
        fs::write(run.join("events.jsonl"), events).expect("write events");
        let answer = answer(&["report", text(&run)], place.path());
        assert_eq!(answer.code, Some(8), "{events:?}: {answer:?}");
        assert!(answer.one_line().contains(said), "{events:?}: {answer:?}");
    }
    let missing = answer(&["report", "20261121T011500Z-quick-ffff", "--run-dir", "."], place.path());
    assert_eq!(missing.code, Some(2), "{missing:?}");
    missing.one_line();
}

/// Factors do not choose a path that a socket cannot have.
#[test]
fn a_url_of_a_socket_is_measured_over_the_socket() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let url = "mine=postgres://app@/shop?host=/nowhere";
    for factor in [["--workload", "connect"], ["--clients", "2"]] {
        let asked = [&["run", "--dry-run", "--url", url][..], &factor].concat();
        let planned = answer(&asked, place.path());
        assert_eq!(planned.code, Some(0), "{planned:?}");
        assert!(planned.stdout.contains("unix") && !planned.stdout.contains("use one URL"), "{planned:?}");
    }
}
