//! A reader who types five examples of the README, with short trials. A unit test of `cli::arguments` parses all examples.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{real_server, text};

/// What is typed as it stands in the README, and what makes a run short.
const EXAMPLES: [(&str, &str); 5] = [
    ("ciphertoll run … --dry-run --format toml > nightly.toml", ""),
    ("ciphertoll run nightly.toml", "--size smoke --blocks 1 --trial-time 200ms --max-steal 100%"),
    ("ciphertoll report --format html -o report.html", ""),
    ("ciphertoll advise calibrate --connects 500/s --queries-per-connection 3", ""),
    ("ciphertoll lab --server mariadb --path tls1.3-p256 --link 45ms -- mariadb -e 'SELECT 1'", ""),
];

#[test]
fn five_examples_do_what_they_say() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let (bin, runs) = (place.path().join("bin"), place.path().join("ciphertoll-runs"));
    for directory in [&bin, &runs] {
        fs::create_dir(directory).expect("make a directory");
    }
    symlink(env!("CARGO_BIN_EXE_ciphertoll"), bin.join("ciphertoll")).expect("put the program into PATH");
    let calibration = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/calibration-mariadb");
    // Older than all others, so that it is not the latest.
    symlink(calibration, runs.join("20200101T000000Z-calibrate-0000")).expect("name a run");
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("the README");
    for (example, shorter) in EXAMPLES {
        assert!(readme.contains(example), "the README has no such example any more: {example}");
        let command = format!("{} {shorter}", example.replace(" … ", " --server mariadb --path plain "));
        let path = format!("{}:{}", text(&bin), std::env::var("PATH").expect("a PATH"));
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after", "20s", "600s", "sh", "-c", &command]).current_dir(place.path());
        let output = shell.env("PATH", path).output().expect("a shell starts");
        assert!(output.status.success(), "{command}: {output:#?}");
    }
    assert!(fs::read_to_string(place.path().join("report.html")).is_ok_and(|page| page.contains("</html>")));
}
