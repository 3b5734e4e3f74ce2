//! Finds the installed PostgreSQL versions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Overrides the PostgreSQL versions: directories of programs, separated by colons.
const BIN: &str = "CIPHERTOLL_TDE_POSTGRES_BIN";
/// `all` tests every version that is found, as `make tde-proof` does, and not only the oldest and the newest.
const VERSIONS: &str = "CIPHERTOLL_TDE_VERSIONS";

#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The reported version.
    pub(crate) name: String,
    pub(crate) major: u32,
    /// The directory of its programs.
    pub(crate) bin: PathBuf,
}

impl Version {
    fn at(bin: PathBuf) -> Option<Self> {
        let mut asked = Command::new(bin.join("postgres"));
        let said = asked.arg("--version").stdin(Stdio::null()).output().ok()?;
        let name = String::from_utf8(said.stdout).ok()?.trim().to_owned();
        let number = name.strip_prefix("postgres (PostgreSQL) ")?;
        let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Self { major: digits.parse().ok()?, name, bin })
    }

    /// Adapts a statement: before version 15, databases were always copied file by file.
    pub(crate) fn statement(&self, sql: &str) -> String {
        if self.major >= 15 {
            return sql.to_owned();
        }
        sql.replace(" STRATEGY file_copy", "").replace(" STRATEGY wal_log", "")
    }

    /// Whether it has this program.
    pub(crate) fn has(&self, program: &str) -> bool {
        self.bin.join(program).exists()
    }
}

/// One per major version, with the most programs: from the distribution, `scripts/build-postgres`, or
/// `ciphertoll servers fetch`.
pub(crate) fn found() -> Vec<Version> {
    if let Some(directories) = env::var_os(BIN) {
        return env::split_paths(&directories).filter_map(Version::at).collect();
    }
    let mut places = below(Path::new("/usr/lib/postgresql"), "");
    for cache in caches() {
        places.extend(below(&cache.join("builds"), "postgres-"));
        places.extend(below(&cache.join("servers"), "postgres-"));
    }
    let mut found: BTreeMap<u32, Version> = BTreeMap::new();
    for version in places.into_iter().filter_map(|place| Version::at(place.join("bin"))) {
        let fuller = found.get(&version.major).is_none_or(|old| !old.has("psql") && version.has("psql"));
        if fuller {
            found.insert(version.major, version);
        }
    }
    found.into_values().collect()
}

/// The versions to test.
pub(crate) fn tested() -> Vec<Version> {
    let mut versions = found();
    let is_all =
        env::var_os(BIN).is_some() || env::var_os(VERSIONS).is_some_and(|versions| versions == "all");
    if !is_all {
        let newest = versions.pop();
        versions.truncate(1);
        versions.extend(newest);
    }
    versions
}

/// The newest version with this program. Its clients support older servers.
pub(crate) fn newest_with(name: &str) -> Option<Version> {
    found().into_iter().filter(|version| version.has(name)).max_by_key(|version| version.major)
}

fn caches() -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let caches = [Some(PathBuf::from("/var/cache")), own];
    caches.into_iter().flatten().map(|cache| cache.join("ciphertoll")).collect()
}

fn below(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    // Ignores incomplete downloads.
    let named = |name: OsString| {
        name.to_str().is_some_and(|name| name.starts_with(prefix) && !name.ends_with(".partial"))
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().filter(|entry| named(entry.file_name())).map(|entry| entry.path()).collect();
    found.sort();
    found
}
