//! Compares the documents with the code.

use std::fs;

use ciphertoll_model::ExitCode;
use ciphertoll_model::presets::{PRESETS, Preset};

use crate::tree::{text_files, workspace_root};

fn document(path: &str) -> String {
    fs::read_to_string(workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows `| 5 | meaning |` of the page.
fn documented_codes(page: &str) -> Vec<(u8, String)> {
    let rows = page.lines().filter_map(|line| {
        let (code, meaning) = line.strip_prefix('|')?.strip_suffix('|')?.split_once('|')?;
        Some((code.trim().parse().ok()?, meaning.trim().to_owned()))
    });
    rows.collect()
}

#[test]
fn the_page_of_exit_codes_equals_the_enum() {
    let defined: Vec<(u8, String)> =
        ExitCode::ALL.into_iter().map(|exit| (exit.code(), exit.meaning().to_owned())).collect();
    assert_eq!(documented_codes(&document("docs/exit-codes.md")), defined);
}

/// Whether a run of a study is on the page or not.
#[test]
fn the_page_of_the_studies_has_every_published_number() {
    let page = document("docs/measure/studies.md").replace('\\', "");
    let numbers = PRESETS.iter().flat_map(Preset::numbers);
    let missing: Vec<String> =
        numbers.map(|number| number.printed).filter(|printed| !page.contains(printed)).collect();
    assert!(missing.is_empty(), "make the page by scripts/studies: {missing:?}");
}

#[test]
fn the_readme_gives_the_two_commands() {
    let readme = document("README.md");
    for command in ["make run", "make test"] {
        assert!(readme.contains(command), "README.md does not mention `{command}`");
    }
}

#[test]
fn every_page_is_in_the_sites_table_of_contents() {
    let contents = document("scripts/book");
    let mut pages = text_files();
    pages.retain(|file| file.has_extension("md") && file.path.starts_with("docs"));
    // Decisions are listed by the script.
    pages.retain(|file| !file.path.display().to_string().starts_with("docs/decisions/0"));
    pages.retain(|file| !contents.contains(&format!("\"{}\"", file.path.display())));
    let missing: Vec<_> = pages.iter().map(|file| &file.path).collect();
    assert!(missing.is_empty(), "not in CHAPTERS of scripts/book: {missing:?}");
}
