//! No import cycle of more than three files within a crate, so that a file can be understood with few others.
//!
//! An import is a `use` of a path that begins with `crate`, `super` or `self`. Re-exports are followed to the file that
//! declares the item, and are no imports themselves. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tree::{ROOMS, expect_none, rust_files};

const MAX_FILES: usize = 3;

/// The path of a module below its crate.
type Module = Vec<String>;

/// A `use` with one item, and whether it is a re-export.
struct Import {
    is_public: bool,
    path: Vec<String>,
}

/// The modules of a crate and their imports.
#[derive(Default)]
struct Crate {
    imports: BTreeMap<Module, Vec<Import>>,
}

#[test]
fn import_cycles_are_small() {
    let mut findings = Vec::new();
    for (name, krate) in crates() {
        for cycle in krate.cycles().into_iter().filter(|cycle| cycle.len() > MAX_FILES) {
            let files: Vec<String> = cycle.iter().map(|module| module.join("::")).collect();
            findings.push(format!(
                "{name}: an import cycle of {} files, at most {MAX_FILES} are permitted: {}",
                files.len(),
                files.join(", ")
            ));
        }
    }
    expect_none(&findings);
}

fn crates() -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for file in rust_files() {
        if let Some((name, module)) = module_of(&file.path) {
            crates.entry(name).or_default().imports.insert(module, imports(&file.text));
        }
    }
    crates
}

/// The crate and the module of `ROOM/NAME/src/…`. Binaries are crates of their own, and are left out.
fn module_of(path: &Path) -> Option<(String, Module)> {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let [room, name, "src", module @ .., file] = &parts[..] else { return None };
    if !ROOMS.contains(room) {
        return None;
    }
    let file = file.strip_suffix(".rs")?;
    if module.first() == Some(&"bin") || file == "tests" {
        return None;
    }
    let mut module: Module = module.iter().map(|part| (*part).to_owned()).collect();
    let is_root = module.is_empty() && ["lib", "main"].contains(&file);
    if !is_root && file != "mod" {
        module.push(file.to_owned());
    }
    Some(((*name).to_owned(), module))
}

/// The items that a file imports from its own crate.
fn imports(text: &str) -> Vec<Import> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut imports = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        let (is_public, rest) = match line.strip_prefix("pub") {
            Some(rest) => (true, rest.split_once("use ").map_or("", |(before, _)| &rest[before.len()..])),
            None => (false, line),
        };
        let Some(first) = rest.strip_prefix("use ") else { continue };
        let mut statement = first.to_owned();
        while !statement.contains(';') {
            let Some(next) = lines.next() else { break };
            statement.push_str(next.trim());
        }
        let statement = statement.split(';').next().unwrap_or_default();
        for path in expanded(statement) {
            let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            let is_local = ["crate", "super", "self"].contains(&path[0].as_str());
            if is_public && !is_local {
                path.insert(0, "self".to_owned());
            }
            if is_public || is_local {
                imports.push(Import { is_public, path });
            }
        }
    }
    imports
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return if path.is_empty() { Vec::new() } else { vec![path.to_owned()] };
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let below = parts.iter().flat_map(|part| expanded(part.trim()));
    below.map(|path| format!("{}{path}", prefix.trim())).collect()
}

impl Crate {
    /// The module that declares what `path` names in `module`.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Module {
        const MAX_REEXPORTS: usize = 5;
        let mut found = if path[0] == "crate" { Vec::new() } else { module.to_vec() };
        let mut rest = if path[0] == "super" { path } else { &path[1..] };
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
            found.pop();
            rest = after;
        }
        while let Some((first, after)) = rest.split_first() {
            let child = [&found[..], std::slice::from_ref(first)].concat();
            if !self.imports.contains_key(&child) {
                break;
            }
            (found, rest) = (child, after);
        }
        let reexported = self.imports.get(&found).into_iter().flatten();
        let mut reexported =
            reexported.filter(|import| import.is_public && import.path.last() == rest.first());
        match reexported.next() {
            Some(import) if !rest.is_empty() && depth < MAX_REEXPORTS => {
                self.resolve(&found, &import.path, depth + 1)
            }
            _ => found,
        }
    }

    fn imported_by(&self, module: &Module) -> BTreeSet<Module> {
        let imports = self.imports[module].iter().filter(|import| !import.is_public);
        let resolved = imports.map(|import| self.resolve(module, &import.path, 0));
        resolved.filter(|found| found != module && self.imports.contains_key(found)).collect()
    }

    /// All modules that a module reaches by imports.
    fn reached_from<'a>(
        edges: &'a BTreeMap<&Module, BTreeSet<Module>>,
        start: &Module,
    ) -> BTreeSet<&'a Module> {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![start]);
        while let Some(module) = waiting.pop() {
            for next in edges.get(module).into_iter().flatten() {
                if reached.insert(next) {
                    waiting.push(next);
                }
            }
        }
        reached
    }

    /// The largest sets of modules that all reach each other.
    fn cycles(&self) -> BTreeSet<Vec<&Module>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.imports.keys().map(|module| (module, self.imported_by(module))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (*module, Self::reached_from(&edges, module))).collect();
        let cycle_of = |module: &&Module| -> Vec<&Module> {
            let both =
                |other: &&Module| reached[*module].contains(*other) && reached[*other].contains(*module);
            self.imports.keys().filter(both).collect()
        };
        self.imports.keys().map(|module| cycle_of(&module)).filter(|cycle| cycle.len() > 1).collect()
    }
}

#[test]
fn a_cycle_through_a_reexport_is_found() {
    let file = |name: &str, text: &str| (vec![name.to_owned()], imports(text));
    let root = (Vec::new(), imports("mod a;\npub use a::{A, Other};\n"));
    let a = file("a", "use crate::b::B;\nuse super::{c::{self, C}, d::D as E};\n");
    let b = file("b", "use std::fs;\nuse crate::A;\n\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n");
    let others = [file("c", ""), file("d", "")];
    let krate = Crate { imports: [root, a, b].into_iter().chain(others).collect() };
    let cycles: Vec<String> = krate
        .cycles()
        .iter()
        .map(|cycle| cycle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(cycles, ["a b"]);
    assert_eq!(krate.imported_by(&vec!["a".to_owned()]).len(), 3);
}
