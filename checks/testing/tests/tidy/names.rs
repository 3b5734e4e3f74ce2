//! One name, one meaning: no name is used for more than two types.

use std::collections::BTreeMap;

use crate::tree::{ROOMS, expect_none, rust_files};

const MAX_TYPES: usize = 2;

/// Names that more types have, and how many. These numbers may only fall.
const ALLOWANCES: [(&str, usize); 6] =
    [("Arguments", 8), ("Context", 4), ("Error", 12), ("Kind", 3), ("Settings", 3), ("State", 14)];

#[test]
fn a_name_is_used_for_few_types() {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files() {
        if ROOMS.iter().any(|room| file.path.starts_with(room))
            && file.path.iter().nth(2).is_some_and(|part| part == "src")
        {
            for name in file.text.lines().filter_map(declared_type) {
                types.entry(name.to_owned()).or_default().push(file.path.display().to_string());
            }
        }
    }
    assert!(types.len() > 100, "too few types: wrong directory?");
    let mut findings = Vec::new();
    for (name, files) in types {
        let allowance =
            ALLOWANCES.iter().find(|(allowed, _)| *allowed == name).map_or(MAX_TYPES, |(_, most)| *most);
        if files.len() > allowance {
            findings.push(format!(
                "{name}: {} types have this name, at most {allowance} may: {}",
                files.len(),
                files.join(", ")
            ));
        }
    }
    expect_none(&findings);
}

/// The name of the struct, enum, trait or union that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let rest =
        ["struct ", "enum ", "trait ", "union "].iter().find_map(|keyword| line.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

#[test]
fn declarations_of_types_are_recognised() {
    assert_eq!(declared_type("pub(crate) struct Pool<'a> {"), Some("Pool"));
    assert_eq!(declared_type("    enum Kind {"), Some("Kind"));
    assert_eq!(declared_type("pub trait Sink: Send {"), Some("Sink"));
    assert_eq!(declared_type("// struct Pool"), None);
    assert_eq!(declared_type("let structure = 1;"), None);
}
