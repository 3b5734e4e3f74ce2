//! Builds of servers that no distribution here has: fetched with the user's own client, held against a
//! checksum that is known beforehand, unpacked or built into the cache.
//!
//! A download and a directory being made have other names until they are whole, so that a fetch that is
//! killed leaves nothing that counts as one.

mod archive;
mod client;
mod golang;
mod maven;
mod table;
mod unpack;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::{Engine, ServerLevel};

use self::archive::Archive;
use self::client::Client;
use self::golang::Module;
pub use self::table::FETCHABLE;
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::find::{self, Build};
use crate::template::{beside, cache_directory, lock, make_cache};
use crate::user::RunAs;

/// Below the cache: what was fetched and unpacked.
const SERVERS: &str = "servers";
/// Below the cache: what is being fetched, and what the client said.
const DOWNLOADS: &str = "downloads";
/// What is not whole yet.
const PARTIAL: &str = ".partial";
/// Another user passes through on the way to the servers, and lists nothing.
const PASSABLE_DIRECTORY: u32 = 0o711;
const PUBLIC_DIRECTORY: u32 = 0o755;

/// A build that can be fetched.
#[derive(Debug, PartialEq, Eq)]
pub struct Fetchable {
    /// What it is called; also a level that asks for it: `postgres-18`.
    pub name: &'static str,
    /// The engine.
    pub engine: Engine,
    /// The version that it will say it is.
    pub version: &'static str,
    /// The server's licence.
    pub licence: &'static str,
    /// Where in it the server is.
    program: &'static str,
    /// Packages with libraries of the system that it needs, and that not every machine has.
    libraries: Option<&'static str>,
    source: Source,
}

/// What a build is made of.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// What somebody has built, for one kind of processor each.
    Archives { x86_64: Option<Archive>, aarch64: Option<Archive> },
    /// Its sources, for any.
    Module(Module),
}

/// What of a source is for this machine.
#[derive(Clone, Copy)]
enum Recipe<'a> {
    Unpack(&'a Archive),
    Build(&'a Module),
}

impl Recipe<'_> {
    fn client(self) -> client::Known {
        match self {
            Self::Unpack(_) => maven::MAVEN,
            Self::Build(_) => golang::GO,
        }
    }
}

/// Where a build is made, and who is told how far it is.
struct Workshop<'a, 'p> {
    name: &'static str,
    downloads: &'a Path,
    progress: &'p mut dyn FnMut(&str),
}

impl Workshop<'_, '_> {
    fn say(&mut self, doing: &str) {
        (self.progress)(&format!("{}: {doing}", self.name));
    }

    /// What the client says.
    fn log(&self) -> PathBuf {
        self.downloads.join(format!("{}.log", self.name))
    }
}

impl Fetchable {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FETCHABLE.iter().find(|fetchable| fetchable.name == name)
    }

    /// The first that is what `level` asks for; of a level that names no version, the engine is enough.
    pub(crate) fn for_level(level: &ServerLevel) -> Option<&'static Self> {
        let mut all = FETCHABLE.iter().filter(|one| one.recipe().is_some());
        all.find(|one| {
            one.engine == level.engine && level.directory.is_none() && level.accepts_version(one.version)
        })
    }

    /// Bytes to fetch for this machine's kind of processor; none where there is nothing for it.
    pub fn download_bytes(&self) -> Option<u64> {
        self.recipe().map(|recipe| match recipe {
            Recipe::Unpack(archive) => archive.bytes,
            Recipe::Build(module) => module.bytes,
        })
    }

    /// Whether it was fetched already.
    pub fn is_here(&self) -> bool {
        self.directory(&cache_directory()).is_dir()
    }

    /// Fetches it, unless it is here. `progress` gets a few words whenever something slow begins.
    pub fn fetch(&self, progress: &mut dyn FnMut(&str)) -> Result<Build, Error> {
        let recipe = self.recipe().ok_or(Error::NotForProcessor {
            name: self.name,
            engine: self.engine.label(),
            known: self.known_processor(),
        })?;
        let client = || Client::on_path(recipe.client(), self.name);
        let directory = self.fetch_into(&cache_directory(), recipe, client, progress)?;
        self.build_in(directory)
    }

    fn recipe(&self) -> Option<Recipe<'_>> {
        match &self.source {
            Source::Archives { x86_64, aarch64 } => {
                let archive = if cfg!(target_arch = "aarch64") { aarch64 } else { x86_64 };
                archive.as_ref().map(Recipe::Unpack)
            }
            Source::Module(module) => Some(Recipe::Build(module)),
        }
    }

    /// Where there is none for this machine's.
    fn known_processor(&self) -> &'static str {
        match &self.source {
            Source::Archives { aarch64: Some(_), .. } => "aarch64",
            Source::Archives { aarch64: None, .. } | Source::Module(_) => "x86_64",
        }
    }

    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(SERVERS).join(format!("{}-{}", self.engine.label(), self.version))
    }

    /// Makes the directory, unless it is there.
    fn fetch_into(
        &self,
        cache: &Path,
        recipe: Recipe<'_>,
        client: impl FnOnce() -> Result<Client, Error>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, Error> {
        let target = self.directory(cache);
        if target.is_dir() {
            return Ok(target);
        }
        make_cache(cache)?;
        let _lock = lock(&cache.join("fetch.lock"), progress)?;
        if target.is_dir() {
            return Ok(target);
        }
        let downloads = make_places(cache)?;
        let partial = beside(&target, PARTIAL);
        remove_directory(&partial)?;
        let mut workshop = Workshop { name: self.name, downloads: &downloads, progress };
        let left = match recipe {
            Recipe::Unpack(archive) => archive.make(&mut workshop, client, &partial)?,
            Recipe::Build(module) => module.make(&mut workshop, client, &partial)?,
        };
        fs::rename(&partial, &target).context("keep", &target)?;
        // The client has its own copy, should it ever be wanted again.
        if left.is_dir() {
            remove_directory(&left)?;
        } else {
            fs::remove_file(&left).context("remove", &left)?;
        }
        Ok(target)
    }

    /// The program that fetches it.
    pub fn client(&self) -> &'static str {
        self.recipe().map_or(maven::MAVEN, Recipe::client).name
    }

    /// The build in its directory; that it says its version shows that it runs on this machine.
    fn build_in(&self, directory: PathBuf) -> Result<Build, Error> {
        let level = ServerLevel {
            version: Some(self.version.to_owned()),
            directory: Some(directory),
            ..ServerLevel::of(self.engine)
        };
        find::find(&level).map_err(|_| self.does_not_run())
    }

    /// Why it is of no use although it is here.
    pub(crate) fn does_not_run(&self) -> Error {
        let program = self.directory(&cache_directory()).join(self.program);
        let complaint = match Command::new(&program).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            Err(error) => error.to_string(),
        };
        Error::Program { program, reason: self.explained(complaint.trim()) }
    }

    /// What the program complains of, with the packages where that is a library.
    fn explained(&self, complaint: &str) -> String {
        let said = format!("asked for its version, it says: {complaint}");
        match self.libraries {
            Some(packages) if complaint.contains("shared librar") => {
                format!("{said}; install the system's (Debian and Ubuntu: the packages {packages})")
            }
            _ => said,
        }
    }
}

/// The directories of all servers that were fetched, by this version or another.
pub(crate) fn directories() -> Vec<PathBuf> {
    let cache = cache_directory();
    let servers = cache.join(SERVERS);
    // Whatever is found there will be run.
    if ciphertoll_record::check_ours(&cache).and_then(|()| ciphertoll_record::check_ours(&servers)).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(&servers).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_none_or(|last| last != &PARTIAL[1..])).collect()
}

/// Whether that is below where fetched servers are.
pub(crate) fn is_fetched(path: &Path) -> bool {
    cache_directory().join(SERVERS).canonicalize().is_ok_and(|servers| path.starts_with(servers))
}

/// Makes what a fetch needs below the cache; returns the directory for downloads.
fn make_places(cache: &Path) -> Result<PathBuf, Error> {
    if RunAs::choose()?.other().is_some() {
        fs::set_permissions(cache, Permissions::from_mode(PASSABLE_DIRECTORY)).context("open up", cache)?;
    }
    let (servers, downloads) = (cache.join(SERVERS), cache.join(DOWNLOADS));
    for (path, mode) in [(&servers, PUBLIC_DIRECTORY), (&downloads, PRIVATE_DIRECTORY)] {
        if !path.is_dir() {
            files::make_directory(path, mode, RunAs::Ourselves)?;
        }
        ciphertoll_record::check_ours(path)?;
    }
    Ok(downloads)
}

/// Removes what an interrupted fetch has left, if it has.
fn remove_directory(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
