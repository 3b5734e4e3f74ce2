//! Search for installed and fetched servers.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_fetch::fetchable::{self, Fetchable};
use ciphertoll_fetch::table::{self, FETCHABLE};
use ciphertoll_host::cache::cache_directory;
use ciphertoll_host::programs;
use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::{DebianRelease, Engine, ServerLevel};

use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::engine::EngineProperties;
use crate::servers::engines;

/// Directories of distributions and tarballs. Most are not on an ordinary user's PATH.
const SYSTEM_DIRECTORIES: [&str; 9] = [
    "/usr/sbin",
    "/usr/libexec",
    "/usr/bin",
    "/usr/local/sbin",
    "/usr/local/libexec",
    "/usr/local/bin",
    "/usr/local/mariadb/bin",
    "/usr/local/mysql/bin",
    "/usr/local/pgsql/bin",
];
/// Parents of directories with one PostgreSQL version each: parent, prefix of the name, subdirectory.
const VERSIONED_DIRECTORIES: [(&str, &str, &str); 2] =
    [("/usr/lib/postgresql", "", "bin"), ("/usr", "pgsql-", "bin")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Installed,
    /// Fetched by [`fetch`].
    Fetched,
}

/// A program that was fetched and runs.
pub enum FetchedProgram {
    Server(Build),
    Other { program: PathBuf, version: String },
}

impl Build {
    pub fn origin(&self) -> Origin {
        if fetchable::is_fetched(&self.server_program) { Origin::Fetched } else { Origin::Installed }
    }

    /// The shortest level with a version that selects this build and no other: `postgres-18`.
    pub fn level(&self) -> ServerLevel {
        let series_parts = engines::of(self.engine).properties().series_parts;
        let series: Vec<&str> = self.version.split('.').take(series_parts).collect();
        let of =
            |version: &str| ServerLevel { version: Some(version.to_owned()), ..ServerLevel::of(self.engine) };
        let versions = [series.join("."), self.version.clone()];
        let labelled = |release: DebianRelease, version: &str| ServerLevel {
            label: Some(release.label().to_owned()),
            ..of(version)
        };
        let releases = DebianRelease::ALL.into_iter();
        let levels = versions.iter().map(|version| of(version)).chain(
            releases.flat_map(|release| versions.iter().map(move |version| labelled(release, version))),
        );
        let finds_this = |level: &ServerLevel| find(level).is_ok_and(|found| found == *self);
        { levels }.find(finds_this).unwrap_or_else(|| ServerLevel {
            directory: Some(self.base_directory.clone()),
            ..ServerLevel::of(self.engine)
        })
    }

    /// The TLS library of the program: `OpenSSL 3`. `None` if the program file does not name a known one; then only the
    /// running server reports it.
    pub fn tls_library(&self) -> Option<String> {
        (engines::of(self.engine).properties().tls_library_of)(&self.server_program)
    }
}

/// Fetches a server, a proxy or OpenSSL, unless it was fetched before. `progress` is called before each slow step.
pub fn fetch(fetchable: &Fetchable, progress: &mut dyn FnMut(&str)) -> Result<FetchedProgram, Error> {
    let directory = fetchable.fetch_files(progress)?;
    // A reported version proves that the program runs on this machine.
    let Some(engine) = fetchable.engine() else {
        let program = fetchable.program_path(&cache_directory());
        let version = programs::version_of(&program, &["--version"], &directory)
            .or_else(|_| programs::version_of(&program, &["version"], &directory))
            .map_err(|_| fetchable.explain_failure())?;
        return Ok(FetchedProgram::Other { program, version });
    };
    let level = ServerLevel {
        version: Some(fetchable.version.to_owned()),
        directory: Some(directory),
        ..ServerLevel::of(engine)
    };
    find(&level).map(FetchedProgram::Server).map_err(|_| fetchable.explain_failure().into())
}

/// The newest build that matches `level`. A fetched build matches only if the level has a version that is not installed,
/// because fetching a server must not change the meaning of `postgres`; of an engine that can be fetched without a
/// version, any fetched build matches.
pub fn find(level: &ServerLevel) -> Result<Build, Error> {
    let programs = engines::of(level.engine).properties();
    let release = level.release();
    let installed = match release {
        None => candidates(programs, &directories(level.directory.as_deref())),
        Some(_) => Vec::new(),
    };
    let fetched = match level.directory {
        None => candidates(programs, &fetched_directories(release)),
        Some(_) => Vec::new(),
    };
    let newest =
        newest(level, &installed).or_else(|| newest(level, &fetched).filter(|_| can_be_fetched(level)));
    match newest {
        Some(candidate) => build(level.engine, candidate.clone()),
        None => Err(match Fetchable::for_level(level).filter(|one| can_be_fetched(level) && one.is_here()) {
            Some(broken) => broken.explain_failure().into(),
            None => missing(level, &installed, &fetched),
        }),
    }
}

/// All builds of `engine` that a level without a directory can select, newest first.
pub fn installed(engine: Engine) -> Vec<Build> {
    let releases = std::iter::once(None).chain(DebianRelease::ALL.map(Some));
    let directories: Vec<PathBuf> =
        directories(None).into_iter().chain(releases.flat_map(fetched_directories)).collect();
    let candidates = candidates(engines::of(engine).properties(), &directories).into_iter();
    // A build without its installer cannot be started.
    let mut builds: Vec<Build> = candidates.filter_map(|candidate| build(engine, candidate).ok()).collect();
    builds.sort_by_cached_key(|build| Reverse(version_numbers(&build.version)));
    builds
}

pub fn how_to_install(engine: Engine) -> &'static str {
    engines::of(engine).properties().how_to_get
}

type Candidate = (PathBuf, String);

fn candidates(programs: &EngineProperties, directories: &[PathBuf]) -> Vec<Candidate> {
    find_programs(directories, programs.server_names)
        .into_iter()
        .filter_map(|program| {
            let output = Command::new(&program).args(programs.version_arguments).output().ok()?;
            let version = (programs.parse_version)(&String::from_utf8_lossy(&output.stdout))?;
            Some((program, version))
        })
        .collect()
}

fn newest<'found>(level: &ServerLevel, candidates: &'found [Candidate]) -> Option<&'found Candidate> {
    let accepted = candidates.iter().filter(|(_, version)| level.accepts_version(version));
    accepted.max_by_key(|(_, version)| version_numbers(version))
}

fn build(engine: Engine, (server_program, version): Candidate) -> Result<Build, Error> {
    let base_directory = base_of(&server_program);
    let install_program =
        install_program(engines::of(engine).properties(), &server_program, &base_directory)?;
    Ok(Build { engine, version, server_program, install_program, base_directory })
}

fn missing(level: &ServerLevel, installed: &[Candidate], fetched: &[Candidate]) -> Error {
    let versions = |candidates: &[Candidate]| {
        candidates.iter().map(|(_, version)| version.clone()).collect::<Vec<_>>().join(", ")
    };
    let found = match (installed, fetched) {
        ([], []) => String::new(),
        ([], fetched) if !can_be_fetched(level) => {
            format!(" except the fetched {}, which must be named with its version", versions(fetched))
        }
        _ => format!(" (only {})", versions(&[installed, fetched].concat())),
    };
    let by_hand = match &level.version {
        // A distribution's package has one version, which is rarely the requested one.
        Some(version) => format!("name the directory of an installed one: {0}-{version}=DIR", level.engine),
        None => how_to_install(level.engine).to_owned(),
    };
    let how_to_get = match Fetchable::for_level(level) {
        Some(Fetchable { name, .. }) if can_be_fetched(level) => {
            format!("fetch it by `ciphertoll servers fetch {name}`, or {by_hand}")
        }
        Some(Fetchable { name, .. }) if fetched.is_empty() => {
            format!("{by_hand}, or fetch one by `ciphertoll servers fetch {name}` and use {name}")
        }
        _ => by_hand,
    };
    Error::ServerMissing { wanted: level.to_string(), found, how_to_get }
}

/// Whether a fetched build can match the level.
fn can_be_fetched(level: &ServerLevel) -> bool {
    level.version.is_some()
        || level.release().is_some()
        || FETCHABLE.iter().any(|one| one.name == level.engine.label())
}

fn fetched_directories(release: Option<DebianRelease>) -> Vec<PathBuf> {
    table::directories_for(release).iter().map(|directory| directory.join("bin")).collect()
}

/// The directories to search: below `named` only, or PATH and system directories.
fn directories(named: Option<&Path>) -> Vec<PathBuf> {
    if let Some(directory) = named {
        return ["", "bin", "sbin", "libexec"].iter().map(|part| directory.join(part)).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Relative entries are ignored: they would run a program of the current directory.
    let on_path = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    on_path.chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from)).chain(versioned_directories()).collect()
}

fn versioned_directories() -> impl Iterator<Item = PathBuf> {
    VERSIONED_DIRECTORIES.into_iter().flat_map(|(parent, beginning, below)| {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let named = entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(beginning));
        named.map(move |entry| entry.path().join(below))
    })
}

/// The programs with these names; each once, even if several links lead to it.
fn find_programs(directories: &[PathBuf], names: &[&str]) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = Vec::new();
    for name in names {
        for directory in directories {
            if let Ok(program) = directory.join(name).canonicalize()
                && program.is_file()
                && !programs.contains(&program)
            {
                programs.push(program);
            }
        }
    }
    programs
}

/// `/usr` for `/usr/sbin/mariadbd`.
fn base_of(program: &Path) -> PathBuf {
    let base = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    base.to_owned()
}

fn install_program(programs: &EngineProperties, server: &Path, base: &Path) -> Result<PathBuf, Error> {
    if programs.install_names.is_empty() {
        return Ok(server.to_owned());
    }
    let directories: Vec<PathBuf> = programs.install_directories.iter().map(|part| base.join(part)).collect();
    Ok(find_programs(&directories, programs.install_names).into_iter().next().ok_or_else(|| {
        ciphertoll_host::Error::Program {
            program: server.to_owned(),
            reason: format!(
                "{} is missing below {}; {}",
                programs.install_names[0],
                base.display(),
                programs.how_to_get
            ),
        }
    })?)
}

#[cfg(test)]
mod tests;
