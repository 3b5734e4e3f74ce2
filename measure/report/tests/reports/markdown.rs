//! The comment on a change.

use ciphertoll_report::markdown;

use crate::fixture::{hostile, keys, smoke, troubled};
use crate::simulated::simulated;

#[test]
fn a_comment_says_what_it_costs() {
    insta::assert_snapshot!(markdown(&simulated().report()));
}

#[test]
fn a_comment_on_a_troubled_run_folds_its_reasons_away() {
    insta::assert_snapshot!(markdown(&troubled().report()));
}

#[test]
fn a_comment_has_the_breakdown_of_connect_time() {
    let text = markdown(&keys().report());
    let (_, block) = text.split_once("**Breakdown of connect time").unwrap();
    insta::assert_snapshot!(block.split("<details>").next().unwrap());
}

#[test]
fn a_comment_without_verdicts_says_why() {
    let text = markdown(&smoke().report());
    assert!(
        text.contains("> No verdicts: separating a cost from noise takes 6 blocks, and this run has 2."),
        "{text}"
    );
    assert!(!text.contains("Switch on"), "{text}");
}

#[test]
fn the_command_that_repeats_a_run_shows_its_settings() {
    let mut run = smoke();
    for setting in ["postgres.work_mem=8MB", "mariadb.init_connect=SET a = 1"] {
        run.plan.settings.set(setting.parse().unwrap());
    }
    let text = markdown(&run.report());
    let command = text.lines().find(|line| line.starts_with("ciphertoll run ")).unwrap();
    let settings = " --set 'mariadb.init_connect=SET a = 1' --set postgres.work_mem=8MB";
    assert!(command.ends_with(settings), "{command}");
    assert!(command.contains("/spec.toml --seed "), "{command}");
}

#[test]
fn nothing_foreign_becomes_markup_or_mentions_anybody() {
    let text = markdown(&hostile().report());
    assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("@everyone"), "{text}");
    assert!(text.contains("&lt;script&gt;"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let bars = row.matches('|').count() - row.matches("\\|").count();
        assert_eq!(bars, 7, "{row}");
    }
}
