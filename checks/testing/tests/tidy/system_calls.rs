//! Compares the page about page encryption with the system calls of the kernel's headers, and with the tests of each way to
//! write to a file. A new system call must be classified there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tree::{expect_none, workspace_root};

const PAGE: &str = "docs/at-rest/page-encryption.md";
const TESTS: &str = "at-rest/tde-preload/tests/proof/ways.rs";
/// Where distributions install the headers, for the architectures that the library supports.
const HEADERS: [&str; 6] = [
    "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "/usr/include/aarch64-linux-gnu/asm/unistd_64.h",
    "/usr/include/asm/unistd_64.h",
    "/usr/include/asm-generic/unistd.h",
    "/usr/include/linux/asm/unistd_64.h",
    "/usr/include/asm/unistd.h",
];
/// The number of system calls, and a name for 32-bit machines only.
const OTHERS: [&str; 2] = ["syscalls", "clock_adjtime64"];

fn read(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The part of the page about system calls.
fn section(page: &str) -> &str {
    let begin = page.find("<!-- system calls: begin -->").expect("the beginning of the section");
    let end = page.find("<!-- system calls: end -->").expect("the end of the section");
    &page[begin..end]
}

/// All words in backticks that can be names of system calls.
fn documented(section: &str) -> BTreeSet<&str> {
    let quoted = section.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))).collect()
}

/// The names in lines `#define __NR_name 17`, without variants for 32-bit machines.
fn defined(header: &str) -> BTreeSet<&str> {
    let names = header.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("#define __NR_")?;
        let (name, number) = rest.split_once(char::is_whitespace)?;
        let is_number = number.trim().starts_with(|first: char| first.is_ascii_digit());
        let is_narrow = name.ends_with("time64") || name.ends_with("time32");
        (is_number && !is_narrow && !OTHERS.contains(&name)).then_some(name)
    });
    names.collect()
}

#[test]
fn every_system_call_of_the_headers_is_classified_on_the_page() {
    let page = read(PAGE);
    let documented = documented(section(&page));
    let mut missing = Vec::new();
    let found =
        HEADERS.iter().filter_map(|header| Some((header, fs::read_to_string(Path::new(header)).ok()?)));
    for (header, text) in found {
        missing.extend(defined(&text).difference(&documented).map(|name| {
            format!(
                "{header}: {name}: a system call that {PAGE} does not classify: can a byte reach a file by it? Cover or \
                 refuse it in at-rest/tde-preload, with a test in {TESTS}"
            )
        }));
    }
    expect_none(&missing);
}

#[test]
fn a_new_system_call_would_be_noticed() {
    let header = "#define __NR_read 0\n#define __NR_write_by_telepathy 999\n#define __NR_x_time64 5\n#define __NR_fcntl __NR3264_fcntl\n";
    assert_eq!(defined(header).into_iter().collect::<Vec<_>>(), ["read", "write_by_telepathy"]);
    assert!(!documented(section(&read(PAGE))).contains("write_by_telepathy"));
}

/// The words in the last column of the table.
fn documented_tests(section: &str) -> BTreeSet<&str> {
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.flat_map(|row| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().split_whitespace())
        .collect()
}

#[test]
fn every_way_on_the_page_has_a_test_and_every_test_is_on_the_page() {
    let (page, tests) = (read(PAGE), read(TESTS));
    let documented = documented_tests(section(&page));
    assert!(documented.len() > 50, "too few: was the table changed? {documented:?}");
    let quoted = |name: &str| tests.contains(&format!("\"{name}\""));
    let untested = documented.iter().filter(|name| !quoted(name));
    let mut findings: Vec<_> =
        untested.map(|name| format!("{PAGE}: {name}: there is no such way in {TESTS}")).collect();
    let ways = tests.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split('"').next());
    let undocumented = ways.filter(|name| !documented.contains(name));
    findings.extend(undocumented.map(|name| format!("{TESTS}: {name}: not in the table of {PAGE}")));
    expect_none(&findings);
}
