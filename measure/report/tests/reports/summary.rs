//! The lines that end a run.

use ciphertoll_model::Ending;
use ciphertoll_report::{Style, summary};

use crate::fixture::{Run, against, contexts, hostile, keys, noisy, one_block, quick, smoke, troubled};
use crate::simulated::simulated;
use crate::what_if::calibrated_until;

const MOST_LINES: usize = 25;

#[test]
fn a_run_ends_in_a_decision() {
    insta::assert_snapshot!(summary(&simulated().report(), Style::Plain, 100));
}

#[test]
fn a_troubled_run_says_so() {
    insta::assert_snapshot!(summary(&troubled().report(), Style::Plain, 100));
}

#[test]
fn an_interrupted_run_advises_nothing_and_says_how_to_go_on() {
    let run = calibrated_until(3, Ending::Interrupted);
    insta::assert_snapshot!(summary(&run.report(), Style::Plain, 100));
}

#[test]
fn no_run_ends_in_more_lines_than_a_terminal_has() {
    let server = || against("ctx=per-connect", "ctx = [\"per-connect\", \"shared\"]");
    let runs: [fn() -> Run; 9] =
        [simulated, quick, keys, smoke, contexts, troubled, one_block, noisy, hostile];
    for run in runs.iter().map(|run| run()).chain([server()]) {
        for width in [40, 80, 100, 120] {
            let text = summary(&run.report(), Style::Plain, width);
            assert!(text.lines().count() <= MOST_LINES, "{width} columns:\n{text}");
            assert!(text.contains("How sure:"), "{width} columns:\n{text}");
            assert!(text.contains("ciphertoll report"), "{width} columns:\n{text}");
        }
    }
}
