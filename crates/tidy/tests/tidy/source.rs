//! Rules about the text of sources. Needles are put together with `concat!`, so that this file does not match itself.

use std::path::Path;

use crate::tree::{TextFile, expect_none, rust_files, text_files};

const MAX_LINES: usize = 600;

/// Where C is.
const C_ROOMS: [&str; 3] = ["drivers/", "bench/", "crates/tde-preload/"];

/// Where unsafe code may stand; each block has its safety argument (clippy's `undocumented_unsafe_blocks`).
const UNSAFE_ALLOWED: [&str; 5] = [
    "crates/tde-preload/",
    "crates/link/",
    "crates/resumption/",
    "crates/tde/src/xts.rs",
    "crates/tde/src/secret.rs",
];

/// Hints that a file was written on somebody's machine and works only there.
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
fn unsafe_stays_in_its_rooms() {
    let files = rust_files();
    let outside = files.iter().filter(|file| !UNSAFE_ALLOWED.iter().any(|room| file.path.starts_with(room)));
    let rule = format!("unsafe code belongs into {UNSAFE_ALLOWED:?} only");
    expect_none(&outside.flat_map(|file| file.findings(&rule, has_unsafe)).collect::<Vec<_>>());
}

#[test]
fn lints_are_expected_not_allowed() {
    let outer = concat!("#[al", "low(");
    let inner = concat!("#![al", "low(");
    let rule = "use #[expect(…, reason = \"…\")], which fails when it is no longer needed";
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

/// What says so itself forgets that in CI nothing is skipped.
#[test]
fn skipped_tests_say_so_in_one_way() {
    let says =
        [concat!("println!(\"sk", "ipped"), concat!("println!(\"SK", "IPPED"), concat!("var_os(\"C", "I\")")];
    let rule = "a skipped test says so by the crate `skip`";
    let files = rust_files();
    let elsewhere = files.iter().filter(|file| !file.path.starts_with("crates/skip/"));
    let breaks = |line: &str| says.iter().any(|said| line.contains(said));
    expect_none(&elsewhere.flat_map(|file| file.findings(rule, breaks)).collect::<Vec<_>>());
}

#[test]
fn no_private_key_is_committed() {
    let begin = concat!("-----BEG", "IN ");
    let end = concat!("PRIVATE ", "KEY-----");
    let breaks = |line: &str| line.contains(begin) && line.contains(end);
    let rule = "a private key; tests make theirs afresh";
    expect_none(&text_files().iter().flat_map(|file| file.findings(rule, breaks)).collect::<Vec<_>>());
}

#[test]
fn no_path_of_one_machine() {
    let rule = "an absolute path of one machine";
    expect_none(
        &text_files().iter().flat_map(|file| file.findings(rule, has_private_path)).collect::<Vec<_>>(),
    );
}

/// The C sources and headers: drivers, the peers of the benchmark, entry points that only C can have.
fn c_files() -> Vec<TextFile> {
    let mut files = text_files();
    files.retain(|file| file.has_extension("c") || file.has_extension("h"));
    for room in C_ROOMS {
        assert!(files.iter().any(|file| file.path.starts_with(room)), "{room} holds no C: look elsewhere");
    }
    files
}

/// The line without a comment at its end. A `//` inside a string cuts too early: good enough for these rules.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// The keyword, followed as a block, an item or an attribute's parenthesis is.
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

/// Such a path at the start of a path: `target/work/` in the middle of one is no hint.
fn has_private_path(line: &str) -> bool {
    PRIVATE_PATHS.iter().any(|private| {
        line.match_indices(private).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || ".-_}*/".contains(c))
        })
    })
}

#[test]
fn the_rules_see_what_they_should() {
    let keyword = concat!("uns", "afe");
    assert!(has_unsafe(&format!("    let x = {keyword} {{ read(p) }};")));
    assert!(has_unsafe(&format!("pub {keyword} fn f() {{}}")));
    assert!(has_unsafe(&format!("#[{keyword}(no_mangle)]")));
    assert!(!has_unsafe(&format!("// {keyword} {{")));
    assert!(!has_unsafe(&format!("{keyword}_code = \"forbid\"")));
    assert!(has_private_path(&format!("open(\"{}main\")", PRIVATE_PATHS[0])));
    assert!(!has_private_path(&format!("target{}main", PRIVATE_PATHS[0])));
    assert!(Path::new("crates/tde-preload/src/lib.rs").starts_with(UNSAFE_ALLOWED[0]));
    assert!(!Path::new("crates/tde-preload-x/src/lib.rs").starts_with(UNSAFE_ALLOWED[0]));
}
