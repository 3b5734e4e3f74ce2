//! Records of earlier versions stay readable. Each directory of `tests/records` is one, named by the time of the version
//! that wrote it, with the expected text of its report.
//!
//! - `2026-11-21T0158`: the first format. Plans have neither `also`, `pin` nor `settings`, strata no `factor`, cells no
//!   `pace`.
//! - `2026-11-21T0644`: two engines, and comparisons of paths and authentications.
//! - `2026-11-21T0908`: paces, drivers, capacities, and a resumed run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{answer, ciphertoll, one_document, text};

const REPORT: &str = "report.txt";
/// Set this variable to rewrite the reports, and review the changes.
const UPDATE: &str = "UPDATE_GOLDEN";

fn records() -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records");
    let mut records: Vec<PathBuf> =
        fs::read_dir(place).expect("the records").map(|entry| entry.expect("an entry").path()).collect();
    records.sort();
    assert!(records.len() >= 3, "records are not found as they should be: {records:?}");
    records
}

/// What the program answers about a record, to the end that is good.
#[track_caller]
fn said(arguments: &[&str]) -> String {
    let answer = answer(arguments, Path::new("."));
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    answer.stdout
}

#[test]
fn earlier_records_say_what_they_said() {
    for record in records() {
        let report = said(&["report", text(&record)]);
        let file = record.join(REPORT);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &report).expect("write the report");
        }
        let expected = fs::read_to_string(&file).expect("the expected report");
        assert_eq!(report, expected, "{}; {UPDATE}=1 writes it anew", record.display());
    }
}

#[test]
fn earlier_records_are_shown_in_every_format() {
    for record in records() {
        let name = record.file_name().expect("a name").to_str().expect("a name in UTF-8");
        let document = one_document(&said(&["report", text(&record), "--format", "json"]));
        assert_eq!(document["complete"], true, "{name}");
        for cell in document["cells"].as_array().expect("cells") {
            assert!(cell["blocks_used"].as_u64().is_some_and(|blocks| blocks > 0), "{name}: {cell:#}");
        }
        for format in ["html", "markdown"] {
            assert!(said(&["report", text(&record), "--format", format]).contains(name), "{name}: {format}");
        }
        let plots = ["levels", "tolls", "phases", "percentiles", "cpu", "blocks"];
        for plot in plots {
            let csv = said(&["report", text(&record), "--format", "csv", "--plot", plot]);
            assert!(csv.contains("connect"), "{name}: {plot}: {csv}");
        }
        // Against a copy of itself there is nothing to prove, and that must not depend on its age.
        let place = tempfile::tempdir().expect("a directory");
        let copy = copied(&record, place.path());
        let same = said(&["compare", text(&record), text(&copy), "--allow-inconclusive", "--json"]);
        one_document(&same);
    }
}

fn copied(record: &Path, place: &Path) -> PathBuf {
    let copy = place.join("copy");
    fs::create_dir(&copy).expect("a directory");
    for file in fs::read_dir(record).expect("a record").map(|entry| entry.expect("an entry")) {
        if file.file_type().expect("a type").is_file() {
            fs::copy(file.path(), copy.join(file.file_name())).expect("a copy");
        }
    }
    copy
}

/// A CI gate that compares nothing must fail, even with --allow-inconclusive.
#[test]
fn a_comparison_of_nothing_is_a_wrong_command_line() {
    let [first, second, third] = records().try_into().expect("three records");
    let refused = |base: &Path, new: &Path, why: &str| {
        for rest in [&[][..], &["--allow-inconclusive"], &["--json"]] {
            let arguments = [&["compare", text(base), text(new)], rest].concat();
            let answer = answer(&arguments, Path::new("."));
            assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{arguments:?}");
            assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
            assert!(answer.stderr.contains(why), "{}", answer.stderr);
        }
    };
    refused(&first, &first, "is the same run as");
    let place = tempfile::tempdir().expect("a directory");
    let link = place.path().join("latest");
    std::os::unix::fs::symlink(fs::canonicalize(&second).expect("a path"), &link).expect("a link");
    refused(&second, &link, "is the same run as");
    refused(&first, &third, "have no comparison in common");
}

#[test]
fn the_c_locale_gets_ascii_alone() {
    let quick = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/quick");
    for format in ["summary", "terminal"] {
        let said = |locale: &str| {
            let mut command = ciphertoll(&["report", text(&quick), "--format", format]);
            let output = command.env("LC_ALL", locale).output().expect("the program starts");
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        for locale in ["C", "POSIX"] {
            let plain = said(locale);
            assert!(plain.is_ascii() && plain.contains("9.49 x"), "{locale}: {plain}");
            assert_eq!(plain.lines().count(), said("C.UTF-8").lines().count());
        }
        assert!(said("C.UTF-8").contains("9.49 ×"));
    }
    for command in [&["--help"][..], &["run", "--help"], &["advise", "--help"]] {
        let help = ciphertoll(command).env("LC_ALL", "C").output().expect("the program starts").stdout;
        assert!(help.is_ascii() && help.len() > 500, "{}", String::from_utf8_lossy(&help));
    }
    let json =
        ciphertoll(&["presets", "--json"]).env("LC_ALL", "C").output().expect("the program starts").stdout;
    assert!(!json.is_ascii(), "what a program reads stays as it is");
}
