//! Records as earlier versions wrote them stay readable: each directory of `tests/records` is one, called by
//! the time of the change whose program made it, with the text that its report is to be.
//!
//! - `2026-11-21T0158`: the first that there was. Plans know neither `also`, `pin` nor `settings`, strata no
//!   `factor`, cells no `pace`.
//! - `2026-11-21T0644`: two engines, and authentications compared beside paths.
//! - `2026-11-21T0908`: paces, drivers, capacities, and a run that was resumed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{answer, one_document, text};

const REPORT: &str = "report.txt";
/// Set to write the reports anew; what changed is then for the eye.
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
        let expected = fs::read_to_string(&file).expect("the report as it is to be");
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
        // Against itself there is nothing to prove, and that must not depend on its age.
        let same = said(&["compare", text(&record), text(&record), "--allow-inconclusive", "--json"]);
        one_document(&same);
    }
}
