//! Servers that are built from source: a Go module, fetched with `go` and verified against its checksum.
//!
//! The checksum is the `h1:` that Go writes to `go.sum`. It covers the module's own `go.sum`, by which Go verifies all
//! dependencies. If the installed Go is too old, a newer one is fetched, which is a Go module too.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::programs::version_numbers;
use ciphertoll_host::user::RunAs;
use ciphertoll_record::Context;
use serde::Deserialize;

use super::client::{self, ClientProgram, FetchClient};
use super::job::{FetchJob, PARTIAL, remove_directory};
use super::unpack::{PROGRAM_MODE, ZIP_TIME_S};
use crate::error::FetchError;

pub(super) const GO: ClientProgram = ClientProgram {
    name: "go",
    version: " (1.24 or newer; one that is older fetches a newer one on x86-64)",
    package: "golang-go",
};
/// The Go distribution as a module.
const TOOLCHAIN: &str = "golang.org/toolchain";
/// Directories of its programs. Files of a module are not executable.
const TOOLCHAIN_PROGRAMS: [&str; 2] = ["bin", "pkg/tool"];
const MOST_DIRECTORIES_DEEP: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct GoModule {
    pub(super) path: &'static str,
    pub(super) version: &'static str,
    pub(super) sum: &'static str,
    /// The package to build: `./cmd/server`.
    pub(super) package: &'static str,
    pub(super) program: &'static str,
    /// A file that the build needs and the module lacks: name and contents.
    pub(super) added: (&'static str, &'static str),
    /// Including dependencies.
    pub(super) bytes: u64,
    /// The oldest Go that can build it.
    pub(super) go: [u32; 2],
    /// The Go that is fetched if the installed one is older.
    pub(super) toolchain: Toolchain,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// `1.24.3`
    pub(super) version: &'static str,
    /// The checksum for this machine's processor, if it is known.
    pub(super) sum: Option<&'static str>,
    pub(super) bytes: u64,
}

/// The output of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    error: Option<String>,
    dir: Option<PathBuf>,
    sum: Option<String>,
}

impl GoModule {
    /// Builds the server into `target`; returns the build directory.
    pub(super) fn make(
        &self,
        job: &mut FetchJob<'_, '_>,
        client: impl FnOnce() -> Result<FetchClient, FetchError>,
        target: &Path,
    ) -> Result<PathBuf, FetchError> {
        let work = job.downloads.join(format!("{}-{}{PARTIAL}", job.name, self.version));
        remove_directory(&work)?;
        files::make_directory(&work, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        File::create(job.log()).context("make", &job.log())?;
        let client = self.recent_go(job, client()?, &work)?;
        job.report(&format!("fetching its sources with {}", GO.name));
        let sources = work.join("sources");
        copy_sources(&download(job, &client, &work, self.path, self.version, self.sum)?, &sources)?;
        let (name, contents) = self.added;
        fs::write(sources.join(name), contents).context("write", &sources.join(name))?;
        let megabytes = self.bytes.div_ceil(1_000_000);
        job.report(&format!(
            "fetching {megabytes} MB of dependencies and building it with {}, which takes some minutes",
            GO.name
        ));
        let built = work.join("built");
        self.build(job, &client, &sources, &built)?;
        let bin = target.join("bin");
        for directory in [target, &bin] {
            files::make_directory(directory, PROGRAM_MODE, RunAs::Ourselves)?;
        }
        keep(&built, &bin.join(self.program))?;
        Ok(work)
    }

    fn build(
        &self,
        job: &mut FetchJob<'_, '_>,
        client: &FetchClient,
        sources: &Path,
        built: &Path,
    ) -> Result<(), FetchError> {
        let mut command = go(client, sources);
        // A reproducible build without system libraries.
        command.env("CGO_ENABLED", "0").args(["build", "-trimpath", "-buildvcs=false", "-o"]);
        command.arg(built).arg(self.package);
        let log = job.log();
        let said = || fs::read(&log).map(|said| String::from_utf8_lossy(&said).into_owned());
        let status = client.run_watched(&mut command, append(&log)?, &mut |time| {
            let said = said().unwrap_or_default();
            let last = client::printable(client::last_line(&said));
            job.report(&format!("still building after {} s; {} said last: {last}", time.as_secs(), GO.name));
        })?;
        if status.success() {
            return Ok(());
        }
        let said = said().context("read", &log)?;
        Err(failed("build", job, &status.to_string(), client::last_line(&said)))
    }

    /// The installed Go, or a fetched one if it is too old.
    fn recent_go(
        &self,
        job: &mut FetchJob<'_, '_>,
        client: FetchClient,
        work: &Path,
    ) -> Result<FetchClient, FetchError> {
        let found = go(&client, work).arg("version").output().context("start", &client.program)?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        // A Go with an unknown version format is assumed to be recent.
        let Some(version) = version_of(&found) else { return Ok(client) };
        if version.as_slice() >= &self.go[..] {
            return Ok(client);
        }
        let Toolchain { version, sum, bytes } = self.toolchain;
        let Some(sum) = sum else {
            let [major, minor] = self.go;
            return Err(FetchError::ClientTooOld {
                name: job.name.to_owned(),
                client: GO.name,
                found: found.trim().to_owned(),
                wanted: format!("{major}.{minor}"),
            });
        };
        let megabytes = bytes.div_ceil(1_000_000);
        job.report(&format!("fetching Go {version}, {megabytes} MB, because the installed one is too old"));
        let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let version = format!("v0.0.1-go{version}.linux-{processor}");
        let distribution = download(job, &client, work, TOOLCHAIN, &version, sum)?;
        let root = work.join("go");
        copy_sources(&distribution, &root)?;
        // A module must not contain a nested `go.mod`, so the distribution renames it.
        let names = ["src/_go.mod", "src/go.mod"].map(|name| root.join(name));
        fs::rename(&names[0], &names[1]).context("rename", &names[0])?;
        for directory in TOOLCHAIN_PROGRAMS {
            make_executable(&root.join(directory), MOST_DIRECTORIES_DEEP)?;
        }
        Ok(FetchClient { program: root.join("bin/go"), arguments: Vec::new() })
    }
}

/// A Go command that ignores the user's workspace and toolchain settings.
fn go(client: &FetchClient, directory: &Path) -> Command {
    let mut command = client.command(directory);
    command.env("GO111MODULE", "on").env("GOWORK", "off").env("GOTOOLCHAIN", "local");
    // Go determines the target and its own directory itself.
    command.env_remove("GOOS").env_remove("GOARCH").env_remove("GOROOT");
    command
}

/// Downloads a module; returns its read-only directory in Go's cache.
fn download(
    job: &FetchJob<'_, '_>,
    client: &FetchClient,
    work: &Path,
    path: &str,
    version: &str,
    sum: &'static str,
) -> Result<PathBuf, FetchError> {
    let log = job.log();
    let mut command = go(client, work);
    command.args(["mod", "download", "-json", &format!("{path}@{version}")]).stderr(append(&log)?);
    let output = command.output().context("start", &client.program)?;
    let said = fs::read_to_string(&log).context("read", &log)?;
    let Ok(module) = serde_json::from_slice::<Downloaded>(&output.stdout) else {
        return Err(failed("fetch", job, &output.status.to_string(), client::last_line(&said)));
    };
    if let Some(error) = module.error {
        return Err(failed("fetch", job, &output.status.to_string(), &error));
    }
    let found = module.sum.unwrap_or_default();
    if found != sum {
        let module = format!("{path} {version}");
        return Err(FetchError::ModuleChecksum { module, expected: sum, found: client::printable(&found) });
    }
    module.dir.ok_or_else(|| failed("fetch", job, "without a directory", client::last_line(&said)))
}

fn failed(step: &'static str, job: &FetchJob<'_, '_>, status: &str, said: &str) -> FetchError {
    FetchError::Download {
        step,
        name: job.name,
        client: GO.name,
        status: status.to_owned(),
        said: client::printable(said),
        log: job.log(),
    }
}

fn append(log: &Path) -> Result<File, FetchError> {
    Ok(File::options().append(true).create(true).open(log).context("open", log)?)
}

/// `1.26.8` of `go version go1.26.8 linux/amd64`.
fn version_of(said: &str) -> Option<Vec<u32>> {
    let version = said.split_ascii_whitespace().nth(2)?.strip_prefix("go")?;
    Some(version_numbers(version)).filter(|numbers| numbers.len() >= 2)
}

/// Copies a read-only directory; the copy is writable.
fn copy_sources(from: &Path, to: &Path) -> Result<(), FetchError> {
    files::make_directory(to, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
    for entry in fs::read_dir(from).context("list", from)? {
        let entry = entry.context("list", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().context("inspect", &source)?;
        if kind.is_dir() {
            copy_sources(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source).context("read", &source)?, &target).context("make", &target)?;
        } else {
            fs::copy(&source, &target).context("copy", &source)?;
            let own = Permissions::from_mode(files::PRIVATE_FILE);
            fs::set_permissions(&target, own).context("make", &target)?;
        }
    }
    Ok(())
}

fn make_executable(path: &Path, deep: usize) -> Result<(), FetchError> {
    if !path.is_dir() || deep == 0 {
        return Ok(fs::set_permissions(path, Permissions::from_mode(PROGRAM_MODE)).context("make", path)?);
    }
    let entries = fs::read_dir(path).context("list", path)?;
    entries.flatten().try_for_each(|entry| make_executable(&entry.path(), deep - 1))
}

/// Installs the program for all users. Its modification time is fixed, because it is a part of a template's key: a rebuilt
/// server uses the same templates.
fn keep(built: &Path, program: &Path) -> Result<(), FetchError> {
    fs::rename(built, program).context("keep", program)?;
    fs::set_permissions(program, Permissions::from_mode(PROGRAM_MODE)).context("make", program)?;
    let file = File::options().append(true).open(program).context("open", program)?;
    Ok(file
        .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(ZIP_TIME_S))
        .context("keep", program)?)
}

#[cfg(test)]
mod tests;
