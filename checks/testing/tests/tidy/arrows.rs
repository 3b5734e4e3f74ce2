//! The permitted dependencies between crates, checked with `cargo metadata`.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::tree::{expect_none, workspace_root};

const PREFIX: &str = "ciphertoll-";

/// Each crate and the crates that it may use. A new crate needs a row here, and in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 22] = [
    ("vocabulary", &[]),
    ("model", &["vocabulary"]),
    ("record", &["model"]),
    ("wire", &["vocabulary"]),
    ("net", &["vocabulary", "wire"]),
    ("load", &["model", "wire", "net", "link"]),
    ("link", &["model"]),
    ("host", &["model", "record", "link"]),
    ("fetch", &["model", "record", "host"]),
    ("lab", &["model", "record", "wire", "net", "link", "tde", "host", "fetch"]),
    ("hosts", &["model", "record", "host", "load"]),
    ("stats", &["model"]),
    ("observe", &["vocabulary", "wire", "net"]),
    ("experiment", &["model", "record", "stats", "host", "lab", "load", "link", "hosts"]),
    ("report", &["model", "stats", "observe"]),
    ("proxy", &["vocabulary", "wire", "net"]),
    ("tde", &[]),
    ("tde-preload", &["tde"]),
    (
        "bench",
        &["model", "record", "stats", "wire", "net", "link", "host", "lab", "load", "hosts", "experiment"],
    ),
    ("oracles", &["model", "wire", "net", "host", "lab", "load"]),
    ("fuzz-targets", &["wire", "proxy", "tde", "observe"]),
    ("testing", &["model"]),
];

/// May use all crates except `FORBIDDEN_TO_ALL`.
const TOP: &str = "cli";

/// No crate may depend on these, not even a test: the first is the top, the second replaces libc functions of any program
/// that links it, and the third needs an async runtime.
const FORBIDDEN_TO_ALL: [&str; 3] = [TOP, "tde-preload", "oracles"];

#[test]
fn dependencies_follow_the_table() {
    let rooms: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let packages = workspace_packages();
    assert!(packages.len() > 5, "cargo metadata found almost no crates");
    let findings: Vec<String> = packages.iter().flat_map(|package| findings_of(package, &rooms)).collect();
    expect_none(&findings);
}

#[test]
fn the_table_names_only_crates_and_has_no_cycle() {
    let mut settled: Vec<&str> = Vec::new();
    // A crate is settled if all its dependencies are. Crates in a cycle never are.
    for _ in 0..ARROWS.len() {
        for (room, uses) in ARROWS {
            if !settled.contains(&room) && uses.iter().all(|used| settled.contains(used)) {
                settled.push(room);
            }
        }
    }
    let stuck: Vec<&str> =
        ARROWS.iter().map(|(room, _)| *room).filter(|room| !settled.contains(room)).collect();
    assert!(stuck.is_empty(), "in a cycle, or with an unknown dependency: {stuck:?}");
}

fn workspace_packages() -> Vec<Package> {
    let mut command = MetadataCommand::new();
    command.manifest_path(workspace_root().join("Cargo.toml")).no_deps();
    command.exec().expect("cargo metadata").packages
}

fn findings_of(package: &Package, rooms: &BTreeMap<&str, &[&str]>) -> Vec<String> {
    let Some(room) = package.name.strip_prefix(PREFIX) else {
        return vec![format!("{}: a crate's name must begin with {PREFIX}", package.name)];
    };
    let allowed = rooms.get(room).copied();
    if allowed.is_none() && room != TOP {
        return vec![format!("{}: not in the table of crates", package.name)];
    }
    let ours = package.dependencies.iter().filter_map(|used| Some((used, used.name.strip_prefix(PREFIX)?)));
    let broken = ours.filter(|(used, name)| {
        let exempt = used.kind == DependencyKind::Development;
        FORBIDDEN_TO_ALL.contains(name) || !(exempt || allowed.is_none_or(|allowed| allowed.contains(name)))
    });
    broken.map(|(used, name)| format!("{room} may not use {name} ({})", used.kind)).collect()
}
