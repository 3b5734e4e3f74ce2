//! Compares the threat model on the page about page encryption with the tests that it names.

use std::fs;

use crate::tree::{expect_none, workspace_root};

const PAGE: &str = "docs/at-rest/page-encryption.md";
const TESTS: [&str; 3] =
    ["at-rest/tde-preload/tests/proof", "measure/cli/tests/cli", "at-rest/tde/tests/tde"];

/// The test names in the last column of the table.
fn documented_tests(page: &str) -> Vec<&str> {
    let begin = page.find("<!-- threat model: begin -->").expect("the beginning of the table");
    let end = page.find("<!-- threat model: end -->").expect("the end of the table");
    let rows = page[begin..end].lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|row| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default())
        .inspect(|tests| {
            assert!(!tests.trim().is_empty(), "a row of the threat model in {PAGE} names no test");
        })
        .flat_map(str::split_whitespace)
        .collect()
}

#[test]
fn every_test_in_the_threat_model_exists() {
    let page = fs::read_to_string(workspace_root().join(PAGE)).expect("the page");
    let mut sources = String::new();
    for directory in TESTS {
        for entry in fs::read_dir(workspace_root().join(directory)).expect("a directory").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(entry.path()).expect("a file");
            }
        }
    }
    let documented = documented_tests(&page);
    assert!(documented.len() > 10, "too few: was the table changed? {documented:?}");
    let is_missing = |name: &&&str| !sources.contains(&format!("#[test]\nfn {name}("));
    let findings: Vec<_> = documented
        .iter()
        .filter(is_missing)
        .map(|name| format!("{PAGE}: {name}: there is no such test in {}", TESTS.join(", ")))
        .collect();
    expect_none(&findings);
}
