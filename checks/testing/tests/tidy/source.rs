//! Rules for the text of sources. Patterns are written with `concat!`, so that this file does not match itself.

use std::path::Path;

use crate::tree::{TextFile, expect_none, rust_files, text_files};

const MAX_LINES: usize = 600;
/// Longer tests of a module are in its file `tests.rs`.
const MAX_INLINE_TEST_LINES: usize = 80;

/// The first line of tests in the file of what they test.
const INLINE_TESTS: &str = concat!("mod te", "sts {");

/// Directories with C sources.
const C_ROOMS: [&str; 3] = ["drivers/", "checks/bench/", "at-rest/tde-preload/"];

/// Paths that may contain unsafe code; each block has a safety comment (clippy's `undocumented_unsafe_blocks`).
const UNSAFE_ALLOWED: [&str; 6] = [
    "at-rest/tde-preload/",
    "measure/link/",
    "protocols/net/src/silence.rs",
    "protocols/net/src/tls/resumption/",
    "at-rest/tde/src/xts.rs",
    "at-rest/tde/src/secret.rs",
];

/// Absolute paths that exist only on one machine.
const PRIVATE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

#[test]
fn files_are_short() {
    let files = rust_files().into_iter().chain(c_files());
    let long = files.filter_map(|file| {
        let lines = file.text.lines().count();
        let message = || format!("{}: {lines} lines; at most {MAX_LINES}: split it", file.path.display());
        (lines > MAX_LINES).then(message)
    });
    expect_none(&long.collect::<Vec<_>>());
}

#[test]
fn long_tests_have_a_file_of_their_own() {
    let long = rust_files().into_iter().filter_map(|file| {
        let tests = file.text.lines().skip_while(|line| *line != INLINE_TESTS);
        let lines = tests.take_while(|line| *line != "}").count() + 1;
        let message = || format!("{}: {lines} lines of tests belong in tests.rs", file.path.display());
        (lines > MAX_INLINE_TEST_LINES).then(message)
    });
    expect_none(&long.collect::<Vec<_>>());
}

#[test]
fn unsafe_code_is_only_in_permitted_paths() {
    let files = rust_files();
    let outside = files.iter().filter(|file| !UNSAFE_ALLOWED.iter().any(|room| file.path.starts_with(room)));
    let rule = format!("unsafe code is only permitted in {UNSAFE_ALLOWED:?}");
    expect_none(&outside.flat_map(|file| file.findings(&rule, has_unsafe)).collect::<Vec<_>>());
}

#[test]
fn lints_are_expected_not_allowed() {
    let outer = concat!("#[al", "low(");
    let inner = concat!("#![al", "low(");
    let rule = "use #[expect(…, reason = \"…\")], which fails if the lint does not fire";
    let breaks = |line: &str| code_of(line).contains(outer) || code_of(line).contains(inner);
    expect_none(&rust_files().iter().flat_map(|file| file.findings(rule, breaks)).collect::<Vec<_>>());
}

#[test]
fn expectations_have_reasons() {
    let start = concat!("[exp", "ect(");
    let mut findings = Vec::new();
    for file in rust_files() {
        for (at, _) in file.text.match_indices(start) {
            let inside = file.text[at..].split(")]").next().unwrap_or_default();
            if !inside.contains("reason =") {
                let line = file.text[..at].lines().count();
                findings.push(format!("{}:{line}: a lint expectation without a reason", file.path.display()));
            }
        }
    }
    expect_none(&findings);
}

/// In CI nothing may be skipped, which only the crate `testing` checks.
#[test]
fn skipped_tests_use_the_crate_testing() {
    let says =
        [concat!("println!(\"sk", "ipped"), concat!("println!(\"SK", "IPPED"), concat!("var_os(\"C", "I\")")];
    let rule = "skipped tests must use the crate `testing`";
    let files = rust_files();
    let elsewhere = files.iter().filter(|file| !file.path.starts_with("checks/testing/src/"));
    let breaks = |line: &str| says.iter().any(|said| line.contains(said));
    expect_none(&elsewhere.flat_map(|file| file.findings(rule, breaks)).collect::<Vec<_>>());
}

#[test]
fn no_private_key_is_committed() {
    let begin = concat!("-----BEG", "IN ");
    let end = concat!("PRIVATE ", "KEY-----");
    let breaks = |line: &str| line.contains(begin) && line.contains(end);
    let rule = "a private key: tests must generate theirs";
    expect_none(&text_files().iter().flat_map(|file| file.findings(rule, breaks)).collect::<Vec<_>>());
}

#[test]
fn no_path_of_one_machine() {
    let rule = "an absolute path of one machine";
    expect_none(
        &text_files().iter().flat_map(|file| file.findings(rule, has_private_path)).collect::<Vec<_>>(),
    );
}

/// The C sources and headers: drivers, peers of the benchmarks, and variadic entry points.
fn c_files() -> Vec<TextFile> {
    let mut files = text_files();
    files.retain(|file| file.has_extension("c") || file.has_extension("h"));
    for room in C_ROOMS {
        assert!(files.iter().any(|file| file.path.starts_with(room)), "{room} has no C sources");
    }
    files
}

/// The line without a comment at its end. A `//` within a string cuts too early, which is good enough here.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Whether the line has the keyword before a block, an item, or in an attribute.
fn has_unsafe(line: &str) -> bool {
    let keyword = concat!("uns", "afe");
    let followers = [" {", " fn ", " impl ", " trait ", " extern ", "("];
    let code = code_of(line);
    code.match_indices(keyword).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + keyword.len()..];
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            && (after.is_empty() || followers.iter().any(|follower| after.starts_with(follower)))
    })
}

/// Whether the line has such a path, not only as a part of another path such as `target/work/`.
fn has_private_path(line: &str) -> bool {
    PRIVATE_PATHS.iter().any(|private| {
        line.match_indices(private).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || ".-_}*/".contains(c))
        })
    })
}

#[test]
fn the_rules_match_as_intended() {
    let keyword = concat!("uns", "afe");
    assert!(has_unsafe(&format!("    let x = {keyword} {{ read(p) }};")));
    assert!(has_unsafe(&format!("pub {keyword} fn f() {{}}")));
    assert!(has_unsafe(&format!("#[{keyword}(no_mangle)]")));
    assert!(!has_unsafe(&format!("// {keyword} {{")));
    assert!(!has_unsafe(&format!("{keyword}_code = \"forbid\"")));
    assert!(has_private_path(&format!("open(\"{}main\")", PRIVATE_PATHS[0])));
    assert!(!has_private_path(&format!("target{}main", PRIVATE_PATHS[0])));
    assert!(Path::new("at-rest/tde-preload/src/lib.rs").starts_with(UNSAFE_ALLOWED[0]));
    assert!(!Path::new("at-rest/tde-preload-x/src/lib.rs").starts_with(UNSAFE_ALLOWED[0]));
}
