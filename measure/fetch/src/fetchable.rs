//! A program that can be fetched: a server, a proxy, or a TLS library.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_host::cache::{cache_directory, lock, make_cache, with_suffix};
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{DebianRelease, Engine, ProxyProgram};
use ciphertoll_record::Context;

use super::archive::Archive;
use super::client::{ClientProgram, FetchClient};
use super::debian::{self, DebianPackages};
use super::golang::{self, GoModule};
use super::job::{FetchJob, PARTIAL, file_name, remove_directory};
use super::maven;
use crate::error::FetchError;

/// Below the cache: fetched servers.
const SERVERS: &str = "servers";
/// Below the cache: downloads, and the clients' output.
const DOWNLOADS: &str = "downloads";
/// Other users can open paths below the directory, but not list it.
const PASSABLE_DIRECTORY: u32 = 0o711;
const PUBLIC_DIRECTORY: u32 = 0o755;

#[derive(Debug, PartialEq, Eq)]
pub struct Fetchable {
    /// For a server, a level that selects it: `postgres-18`, `debian-13:postgres-17`.
    pub name: &'static str,
    pub product: Product,
    /// The version that the program reports, or the beginning of it.
    pub version: &'static str,
    pub licence: &'static str,
    /// The main program, relative to its directory.
    pub(super) program: &'static str,
    /// Packages with system libraries that the server needs and that may be missing.
    pub(super) libraries: Option<&'static str>,
    pub(super) source: BuildSource,
}

/// What a fetch provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Server(Engine),
    /// A proxy program, by its label.
    Proxy(&'static str),
    /// The program `openssl` and its libraries.
    OpenSsl,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuildSource {
    Archives { x86_64: Option<Archive>, aarch64: Option<Archive> },
    Module(GoModule),
    Packages(DebianPackages),
}

impl Product {
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Server(engine) => engine.display_name(),
            Self::Proxy(label) => ProxyProgram::named(label).map_or(label, ProxyProgram::display_name),
            Self::OpenSsl => "OpenSSL",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Server(engine) => engine.label(),
            Self::Proxy(label) => label,
            Self::OpenSsl => "openssl",
        }
    }
}

/// The part of a source for this machine.
#[derive(Clone, Copy)]
pub(super) enum FetchMethod<'a> {
    Unpack(&'a Archive),
    Build(&'a GoModule),
    Install(&'a DebianPackages),
}

impl FetchMethod<'_> {
    fn client(self) -> ClientProgram {
        match self {
            Self::Unpack(_) => maven::MAVEN,
            Self::Build(_) => golang::GO,
            Self::Install(_) => debian::APT,
        }
    }
}

impl Fetchable {
    /// Bytes to fetch for this machine's processor; `None` if there is no build for it.
    pub fn download_bytes(&self) -> Option<u64> {
        self.method().map(|method| match method {
            FetchMethod::Unpack(archive) => archive.bytes,
            FetchMethod::Build(module) => module.bytes,
            FetchMethod::Install(packages) => packages.bytes,
        })
    }

    pub fn is_here(&self) -> bool {
        self.directory(&cache_directory()).is_dir()
    }

    /// Its directory, if it was fetched. Its programs are executed, so only we may be able to write to it.
    pub fn fetched_directory(&self) -> Option<PathBuf> {
        let directory = self.directory(&cache_directory());
        directories().into_iter().find(|fetched| *fetched == directory)
    }

    /// Fetches the files, unless they were fetched before; returns their directory.
    pub fn fetch_files(&self, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, FetchError> {
        let method = self.method().ok_or(FetchError::NotForProcessor {
            name: self.name,
            engine: self.product.label(),
            known: self.known_processor(),
        })?;
        let client = || FetchClient::search(method.client(), self.name);
        self.fetch_into(&cache_directory(), method, client, progress)
    }

    pub(super) fn method(&self) -> Option<FetchMethod<'_>> {
        match &self.source {
            BuildSource::Archives { x86_64, aarch64 } => {
                let archive = if cfg!(target_arch = "aarch64") { aarch64 } else { x86_64 };
                archive.as_ref().map(FetchMethod::Unpack)
            }
            BuildSource::Module(module) => Some(FetchMethod::Build(module)),
            BuildSource::Packages(packages) => Some(FetchMethod::Install(packages)),
        }
    }

    pub fn engine(&self) -> Option<Engine> {
        match self.product {
            Product::Server(engine) => Some(engine),
            Product::Proxy(_) | Product::OpenSsl => None,
        }
    }

    /// The Debian release of its packages.
    pub(crate) fn release(&self) -> Option<DebianRelease> {
        match &self.source {
            BuildSource::Packages(packages) => Some(packages.release),
            BuildSource::Archives { .. } | BuildSource::Module(_) => None,
        }
    }

    /// Whether only a level with this release selects it, because there is a build without a label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.name.contains(':')
    }

    /// A processor architecture that has a build.
    fn known_processor(&self) -> &'static str {
        match &self.source {
            BuildSource::Archives { aarch64: Some(_), .. } => "aarch64",
            BuildSource::Archives { aarch64: None, .. }
            | BuildSource::Module(_)
            | BuildSource::Packages(_) => "x86_64",
        }
    }

    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(SERVERS).join(self.directory_name())
    }

    pub(super) fn directory_name(&self) -> String {
        match self.source {
            BuildSource::Archives { .. } | BuildSource::Module(_) => {
                format!("{}-{}", self.product.label(), self.version)
            }
            // The exact version is known after the fetch.
            BuildSource::Packages(_) => file_name(self.name),
        }
    }

    pub fn program_path(&self, cache: &Path) -> PathBuf {
        self.directory(cache).join(self.program)
    }

    /// Creates the server's directory, unless it exists.
    pub(super) fn fetch_into(
        &self,
        cache: &Path,
        method: FetchMethod<'_>,
        client: impl FnOnce() -> Result<FetchClient, FetchError>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, FetchError> {
        let target = self.directory(cache);
        if target.is_dir() {
            return Ok(target);
        }
        make_cache(cache)?;
        let _lock = lock(&cache.join("fetch.lock"), progress)?;
        if target.is_dir() {
            return Ok(target);
        }
        let downloads = make_directories(cache)?;
        let partial = with_suffix(&target, PARTIAL);
        remove_directory(&partial)?;
        let mut job = FetchJob { name: self.name, downloads: &downloads, progress };
        let left = match method {
            FetchMethod::Unpack(archive) => archive.make(&mut job, client, &partial)?,
            FetchMethod::Build(module) => module.make(&mut job, client, &partial)?,
            FetchMethod::Install(packages) => packages.make(&mut job, client, &partial, &target)?,
        };
        fs::rename(&partial, &target).context("keep", &target)?;
        if let FetchMethod::Install(packages) = method
            && let Err(error) = packages.check(&target)
        {
            remove_directory(&target)?;
            return Err(error);
        }
        // The client keeps its own copy.
        if left.is_dir() {
            remove_directory(&left)?;
        } else {
            fs::remove_file(&left).context("remove", &left)?;
        }
        Ok(target)
    }

    pub fn client(&self) -> &'static str {
        self.method().map_or(maven::MAVEN, FetchMethod::client).name
    }

    /// The error for a fetched program that does not run, with missing libraries.
    pub fn explain_failure(&self) -> FetchError {
        let program = self.program_path(&cache_directory());
        let output = match Command::new(&program).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            Err(error) => error.to_string(),
        };
        ciphertoll_host::Error::Program { program, reason: self.explain(output.trim()) }.into()
    }

    /// An explanation of the output of a server that does not run; names the packages of missing libraries.
    fn explain(&self, output: &str) -> String {
        let said = format!("--version fails: {output}");
        match self.libraries {
            Some(packages) if output.contains("shared librar") => {
                format!("{said}; install the missing libraries (Debian and Ubuntu: the packages {packages})")
            }
            _ => said,
        }
    }
}

/// The directories of everything that was fetched.
pub(crate) fn directories() -> Vec<PathBuf> {
    let cache = cache_directory();
    let servers = cache.join(SERVERS);
    // Programs in these directories are executed, so only we may write to them.
    if ciphertoll_record::check_ours(&cache).and_then(|()| ciphertoll_record::check_ours(&servers)).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(&servers).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_none_or(|last| last != &PARTIAL[1..])).collect()
}

/// Whether the path is in the directory of fetched servers.
pub fn is_fetched(path: &Path) -> bool {
    cache_directory().join(SERVERS).canonicalize().is_ok_and(|servers| path.starts_with(servers))
}

/// Creates the directories of a fetch; returns the one for downloads.
fn make_directories(cache: &Path) -> Result<PathBuf, FetchError> {
    if RunAs::choose()?.other().is_some() {
        fs::set_permissions(cache, Permissions::from_mode(PASSABLE_DIRECTORY))
            .context("set the permissions of", cache)?;
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

#[cfg(test)]
mod tests;
