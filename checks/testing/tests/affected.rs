//! `scripts/test-affected` with stages that only pretend: which run, and which of them fails the whole.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const STAGES: [&str; 16] = [
    "doc",
    "fuzz",
    "test-tshark",
    "test-observe-podman",
    "test-alerts",
    "test-console",
    "test-tokens",
    "test-observe-circle",
    "test-go",
    "test-sqlalchemy",
    "test-php",
    "test-jdbc",
    "test-django",
    "test-sid",
    "test-tde",
    "test-dist",
];

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts")
}

/// Stages that pass, but for those with a program of their own.
fn stages(programs: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for stage in STAGES {
        let own = programs.iter().find(|(name, _)| *name == stage);
        let path = directory.path().join(stage);
        fs::write(&path, format!("#!/bin/sh\n{}\n", own.map_or("exit 0", |(_, program)| program))).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

/// The exit code, the names of the stages that ran, and the lines of those that did not.
fn run(
    script: &Path,
    stages: &Path,
    changed: Option<&str>,
    minutes: &str,
) -> (i32, Vec<String>, Vec<String>) {
    let mut command = Command::new(script);
    command.arg(minutes).env("STAGES", stages).env_remove("CHANGED");
    if let Some(changed) = changed {
        command.env("CHANGED", changed);
    }
    let output = command.output().unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    let lines_after = |title: &str| -> Vec<String> {
        let lines = output_text.lines().skip_while(|line| !line.ends_with(title)).skip(1);
        lines.map_while(|line| line.strip_prefix("    ").map(ToOwned::to_owned)).collect()
    };
    let code = output.status.code().unwrap();
    (code, lines_after("that ran:"), lines_after("that did not run:"))
}

#[test]
fn stages_run_if_a_changed_path_affects_them() {
    let stages = stages(&[]);
    let ran = |changed| run(&scripts().join("test-affected"), stages.path(), Some(changed), "60").1;
    assert_eq!(ran("README.md"), ["none"]);
    assert_eq!(ran("README.md\nat-rest/tde-preload/src/names.rs"), ["doc", "test-tde"]);
    assert_eq!(ran("packaging/ciphertoll-proxy.toml"), ["test-dist"]);
    let of_sidecar =
        ["doc", "test-alerts", "test-go", "test-sqlalchemy", "test-php", "test-jdbc", "test-django"];
    assert_eq!(ran("sidecar/proxy/src/main.rs"), of_sidecar);
    assert_eq!(ran("checks/fuzz/targets/src/scram.rs"), ["doc", "fuzz"]);
    assert_eq!(ran("measure/link/src/blocks.rs"), ["doc", "test-tshark"]);
    assert_eq!(ran("measure/host/src/sockets.rs"), ["doc", "test-observe-podman"]);
    assert_eq!(ran("scripts/test-console"), ["test-console"]);
    assert_eq!(ran("scripts/test-tokens"), ["test-tokens"]);
    assert_eq!(ran("scripts/test-observe-circle"), ["test-observe-circle"]);
}

#[test]
fn a_failed_test_fails_and_a_failed_download_does_not() {
    let changed = Some("sidecar/proxy/src/main.rs");
    let no_network = ("test-php", "echo npm >>\"$CIPHERTOLL_FETCH_FAILED\"; exit 1");
    let affected = scripts().join("test-affected");
    let (code, ran, not_run) = run(&affected, stages(&[no_network]).path(), changed, "60");
    assert_eq!(code, 0);
    assert!(!ran.iter().any(|stage| stage.starts_with("test-php")), "{ran:?}");
    assert!(not_run.iter().any(|line| line == "test-php: could not fetch (npm)"), "{not_run:?}");
    let (code, ran, _) = run(&affected, stages(&[no_network, ("test-go", "exit 3")]).path(), changed, "60");
    assert_eq!(code, 1);
    assert!(
        ran.contains(&"test-go (failed)".to_owned()) && ran.contains(&"test-django".to_owned()),
        "{ran:?}"
    );
}

#[test]
fn a_stage_without_enough_time_is_not_started() {
    let (code, ran, not_run) =
        run(&scripts().join("test-affected"), stages(&[]).path(), Some("at-rest/tde/src/seal.rs"), "30");
    assert_eq!((code, ran), (0, ["doc", "fuzz"].map(str::to_owned).to_vec()));
    assert!(not_run.iter().any(|line| line.starts_with("test-tde: it may take")), "{not_run:?}");
}

/// The commit before is what the change is compared with; a shallow clone does not have it.
#[test]
fn changed_paths_are_those_since_the_commit_before() {
    let repository = tempfile::tempdir().unwrap();
    let root = repository.path();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
        let status = Command::new("git").current_dir(root).args(identity).args(arguments).status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    fs::create_dir(root.join("scripts")).unwrap();
    for script in ["test-affected", "stage"] {
        fs::copy(scripts().join(script), root.join("scripts").join(script)).unwrap();
    }
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "first"]);
    let stages = stages(&[]);
    let affected = root.join("scripts/test-affected");
    let (code, ran, not_run) = run(&affected, stages.path(), None, "60");
    assert_eq!((code, ran.len(), not_run.len()), (0, 0, 0), "without an earlier commit, nothing runs");
    fs::create_dir(root.join("at-rest")).unwrap();
    fs::write(root.join("at-rest/README.md"), "changed").unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "second"]);
    assert_eq!(run(&affected, stages.path(), None, "60").1, ["test-tde"]);
}
