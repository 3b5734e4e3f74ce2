//! No circle of files within a crate: files that reach each other by what they use. So a file can be understood with those
//! that it uses, and those with fewer.
//!
//! A file uses another if it names an item of it: by an import, or by a path in its code, such as a call into a child
//! module. `mod` and re-exports are no uses: a re-exported item belongs to the file that declares it. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::paths::{Import, imports, paths};
use crate::tree::{ROOMS, expect_none, rust_files};

/// The path of a module below its crate.
type Module = Vec<String>;

/// What one file says about others.
#[derive(Default)]
struct File {
    imports: Vec<Import>,
    /// Paths in code.
    paths: Vec<Vec<String>>,
}

/// The files of a crate.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, File>,
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let findings: Vec<String> = crates()
        .into_iter()
        .flat_map(|(name, krate)| {
            let circles = krate.circles();
            let title = (!circles.is_empty()).then_some(name);
            title.into_iter().chain(circles.iter().flat_map(|circle| krate.words(circle))).collect::<Vec<_>>()
        })
        .collect();
    expect_none(&findings);
}

fn crates() -> BTreeMap<String, Crate> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    for file in rust_files() {
        if let Some((name, module)) = module_of(&file.path) {
            crates.entry(name).or_default().files.insert(module, File::of(&file.text));
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
    if module.first() == Some(&"bin") || file == "tests" || module.contains(&"tests") {
        return None;
    }
    let mut module: Module = module.iter().map(|part| (*part).to_owned()).collect();
    let is_root = module.is_empty() && ["lib", "main"].contains(&file);
    if !is_root && file != "mod" {
        module.push(file.to_owned());
    }
    Some(((*name).to_owned(), module))
}

impl File {
    fn of(text: &str) -> Self {
        Self { imports: imports(text), paths: paths(text) }
    }
}

impl Crate {
    /// The module that declares what `path` names in `module`; `None` outside of the crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        const MAX_REEXPORTS: usize = 5;
        let mut found = module.to_vec();
        let mut rest = match path[0].as_str() {
            "crate" => {
                found.clear();
                &path[1..]
            }
            "self" => &path[1..],
            _ => path,
        };
        let is_relative = path[0] != "super" && rest.len() == path.len();
        while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
            found.pop();
            rest = after;
        }
        let before = rest.len();
        while let Some((first, after)) = rest.split_first() {
            let child = [&found[..], std::slice::from_ref(first)].concat();
            if !self.files.contains_key(&child) {
                break;
            }
            (found, rest) = (child, after);
        }
        let imports = || self.files.get(&found).into_iter().flat_map(|file| &file.imports);
        let mut known = imports().filter(|import| !import.is_inner && Some(import.name()) == rest.first());
        match known.next() {
            Some(import) if depth < MAX_REEXPORTS => {
                let path: Vec<String> = import.path.iter().chain(&rest[1..]).cloned().collect();
                self.resolve(&found, &path, depth + 1)
            }
            None if is_relative && rest.len() == before => None,
            _ => Some(found),
        }
    }

    fn used_by(&self, module: &Module) -> BTreeSet<Module> {
        let file = &self.files[module];
        let imports = file.imports.iter().filter(|import| !import.is_public).map(|import| &import.path);
        let resolved = imports.chain(&file.paths).filter_map(|path| self.resolve(module, path, 0));
        resolved.filter(|found| found != module && self.files.contains_key(found)).collect()
    }

    /// All modules that a module reaches.
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
    fn circles(&self) -> BTreeSet<Vec<&Module>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, self.used_by(module))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            edges.keys().map(|module| (*module, Self::reached_from(&edges, module))).collect();
        let circle_of = |module: &&Module| -> Vec<&Module> {
            let both =
                |other: &&Module| reached[*module].contains(*other) && reached[*other].contains(*module);
            self.files.keys().filter(both).collect()
        };
        self.files.keys().map(|module| circle_of(&module)).filter(|circle| circle.len() > 1).collect()
    }

    /// A circle, and who uses whom in it.
    fn words(&self, circle: &[&Module]) -> Vec<String> {
        let name = |module: &Module| if module.is_empty() { "(root)".to_owned() } else { module.join("::") };
        let line = |module: &&Module| {
            let used = self.used_by(module);
            let used: Vec<String> = used.iter().filter(|used| circle.contains(used)).map(name).collect();
            format!("  {} uses {}", name(module), used.join(", "))
        };
        let title = format!(" a circle of {} files:", circle.len());
        [title].into_iter().chain(circle.iter().map(line)).collect()
    }
}

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let files = files.iter().map(|(name, text)| (module(name), File::of(text))).collect();
    let krate = Crate { files };
    krate
        .circles()
        .iter()
        .map(|circle| circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn a_circle_through_a_reexport_is_found() {
    let found = circles_of(&[
        ("", "mod a;\npub use a::{A, Other};\n"),
        ("a", "use crate::b::B;\nuse super::{c::{self, C}, d::D as E};\n"),
        ("b", "use std::fs;\nuse crate::A;\n\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n"),
        ("c", ""),
        ("d", ""),
    ]);
    assert_eq!(found, ["a b"]);
}

#[test]
fn a_call_into_a_child_that_uses_its_parent_is_a_circle() {
    let child = ("a::child", "use super::A;\npub fn make(a: A) {}\n");
    let calls = ("a", "mod child;\npub struct A;\nfn f() { child::make(A) }\n");
    let imports = ("a", "mod child;\nuse child::make;\npub struct A;\n");
    let only_shows = ("a", "mod child;\npub use child::make;\npub struct A;\n");
    for (parent, expected) in [(calls, 1), (imports, 1), (only_shows, 0)] {
        assert_eq!(circles_of(&[parent, child]).len(), expected, "{}", parent.1);
    }
}

#[test]
fn paths_through_imported_modules_are_followed_and_words_are_not() {
    let user = "use crate::b;\n// crate::c::f\nconst TEXT: &str = \"crate::c::f\";\nfn f() { b::g::<u8>(); c::h(); }\n";
    assert_eq!(
        circles_of(&[("a", user), ("b", "fn g<T>() { crate::a::f() }"), ("c", "use crate::a::f;")]),
        ["a b"]
    );
}
