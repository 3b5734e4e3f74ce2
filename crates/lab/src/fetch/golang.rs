//! Servers that are there as sources only: a Go module, fetched with `go`, held against the checksum of the module, built.
//!
//! The checksum is the `h1:` that Go itself writes into `go.sum`. The module's own `go.sum`, which is under it, has those of
//! all that the server is built from, and Go compares them. A Go that is too old fetches the one that the module names, as
//! newer ones do by themselves: it is a module, too.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::client::{self, Client, Known};
use super::unpack::{PROGRAM_MODE, ZIP_TIME_S};
use super::{PARTIAL, Workshop, remove_directory};
use crate::error::{Context, Doing, Error};
use crate::files::{self, PRIVATE_DIRECTORY};
use crate::find::version_numbers;
use crate::user::RunAs;

/// The program.
pub(super) const GO: Known = Known {
    name: "go",
    version: " (1.24 or newer; one that is older fetches a newer one on x86-64)",
    package: "golang-go",
};
/// The Go distribution as a module.
const TOOLCHAIN: &str = "golang.org/toolchain";
/// Its programs; a module has no file that may be run.
const TOOLCHAIN_PROGRAMS: [&str; 2] = ["bin", "pkg/tool"];
/// Deeper than any module.
const MOST_DIRECTORIES_DEEP: usize = 64;

/// Sources of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) path: &'static str,
    pub(super) version: &'static str,
    /// As fetched when this version of the table was written.
    pub(super) sum: &'static str,
    /// Of what is built: `./cmd/server`.
    pub(super) package: &'static str,
    /// The program's name.
    pub(super) program: &'static str,
    /// What is not among the sources although they ask for it: file and contents.
    pub(super) added: (&'static str, &'static str),
    /// Of it and of all that it is built from.
    pub(super) bytes: u64,
    /// The first Go that can build it.
    pub(super) go: [u32; 2],
    /// The Go that is fetched where the one that is here is older.
    pub(super) toolchain: Toolchain,
}

/// A Go distribution, as its own module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// `1.24.3`
    pub(super) version: &'static str,
    /// The checksum of the one for this machine; none where we do not know it.
    pub(super) sum: Option<&'static str>,
    pub(super) bytes: u64,
}

/// What `go mod download -json` says.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    error: Option<String>,
    dir: Option<PathBuf>,
    sum: Option<String>,
}

impl Module {
    /// Builds it into `target`; returns the directory that it was built in.
    pub(super) fn make(
        &self,
        workshop: &mut Workshop<'_, '_>,
        client: impl FnOnce() -> Result<Client, Error>,
        target: &Path,
    ) -> Result<PathBuf, Error> {
        let work = workshop.downloads.join(format!("{}-{}{PARTIAL}", workshop.name, self.version));
        remove_directory(&work)?;
        files::make_directory(&work, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        File::create(workshop.log()).context("make", &workshop.log())?;
        let client = self.recent(workshop, client()?, &work)?;
        workshop.say(&format!("fetching its sources with {}", GO.name));
        let sources = work.join("sources");
        copy_sources(&download(workshop, &client, &work, self.path, self.version, self.sum)?, &sources)?;
        let (name, contents) = self.added;
        fs::write(sources.join(name), contents).context("write", &sources.join(name))?;
        let megabytes = self.bytes.div_ceil(1_000_000);
        workshop.say(&format!(
            "fetching {megabytes} MB that it is built from and building it with {}: some minutes",
            GO.name
        ));
        let built = work.join("built");
        self.build(workshop, &client, &sources, &built)?;
        let bin = target.join("bin");
        for directory in [target, &bin] {
            files::make_directory(directory, PROGRAM_MODE, RunAs::Ourselves)?;
        }
        keep(&built, &bin.join(self.program))?;
        Ok(work)
    }

    fn build(
        &self,
        workshop: &Workshop<'_, '_>,
        client: &Client,
        sources: &Path,
        built: &Path,
    ) -> Result<(), Error> {
        let mut command = go(client, sources);
        // The same bytes wherever it is built, and none of the system's libraries.
        command.env("CGO_ENABLED", "0").args(["build", "-trimpath", "-buildvcs=false", "-o"]);
        command.arg(built).arg(self.package);
        let log = workshop.log();
        let status = client.run(&mut command, append(&log)?)?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&fs::read(&log).context("read", &log)?).into_owned();
        Err(failed(Doing::Build, workshop, &status.to_string(), client::last_line(&said)))
    }

    /// The user's Go, or where it is too old, one that it fetches.
    fn recent(&self, workshop: &mut Workshop<'_, '_>, client: Client, work: &Path) -> Result<Client, Error> {
        let found = go(&client, work).arg("version").output().context("start", &client.program)?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        // One that a distribution or its makers call otherwise is not for us to judge.
        let Some(version) = version_of(&found) else { return Ok(client) };
        if version.as_slice() >= &self.go[..] {
            return Ok(client);
        }
        let Toolchain { version, sum, bytes } = self.toolchain;
        let Some(sum) = sum else {
            let [major, minor] = self.go;
            return Err(Error::ClientTooOld {
                name: workshop.name.to_owned(),
                client: GO.name,
                found: found.trim().to_owned(),
                wanted: format!("{major}.{minor}"),
            });
        };
        let megabytes = bytes.div_ceil(1_000_000);
        workshop.say(&format!("fetching Go {version}, {megabytes} MB: the one that is here is too old"));
        let version = format!("v0.0.1-go{version}.linux-{}", processor());
        let distribution = download(workshop, &client, work, TOOLCHAIN, &version, sum)?;
        let root = work.join("go");
        copy_sources(&distribution, &root)?;
        // A module has but one file of this name.
        let names = ["src/_go.mod", "src/go.mod"].map(|name| root.join(name));
        fs::rename(&names[0], &names[1]).context("rename", &names[0])?;
        for directory in TOOLCHAIN_PROGRAMS {
            make_executable(&root.join(directory), MOST_DIRECTORIES_DEEP)?;
        }
        Ok(Client { program: root.join("bin/go"), arguments: Vec::new() })
    }
}

/// The name that Go has for this machine's kind of processor.
fn processor() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// A command of Go's that takes nothing over from what the user is working on.
fn go(client: &Client, directory: &Path) -> Command {
    let mut command = client.command(directory);
    command.env("GO111MODULE", "on").env("GOWORK", "off").env("GOTOOLCHAIN", "local");
    // For which machine, and where the distribution is: what it finds itself.
    command.env_remove("GOOS").env_remove("GOARCH").env_remove("GOROOT");
    command
}

/// Has Go fetch a module; returns the directory that it keeps it in, which is nobody's to write to.
fn download(
    workshop: &Workshop<'_, '_>,
    client: &Client,
    work: &Path,
    path: &str,
    version: &str,
    sum: &'static str,
) -> Result<PathBuf, Error> {
    let log = workshop.log();
    let mut command = go(client, work);
    command.args(["mod", "download", "-json", &format!("{path}@{version}")]).stderr(append(&log)?);
    let output = command.output().context("start", &client.program)?;
    let said = fs::read_to_string(&log).context("read", &log)?;
    let Ok(module) = serde_json::from_slice::<Downloaded>(&output.stdout) else {
        return Err(failed(Doing::Fetch, workshop, &output.status.to_string(), client::last_line(&said)));
    };
    if let Some(error) = module.error {
        return Err(failed(Doing::Fetch, workshop, &output.status.to_string(), &error));
    }
    let found = module.sum.unwrap_or_default();
    if found != sum {
        let module = format!("{path} {version}");
        return Err(Error::ModuleChecksum { module, expected: sum, found: client::printable(&found) });
    }
    module.dir.ok_or_else(|| failed(Doing::Fetch, workshop, "without a directory", client::last_line(&said)))
}

fn failed(doing: Doing, workshop: &Workshop<'_, '_>, status: &str, said: &str) -> Error {
    Error::Download {
        doing,
        name: workshop.name.to_owned(),
        client: GO.name,
        status: status.to_owned(),
        said: client::printable(said),
        log: workshop.log(),
    }
}

fn append(log: &Path) -> Result<File, Error> {
    File::options().append(true).create(true).open(log).context("open", log)
}

/// `1.26.8` of `go version go1.26.8 linux/amd64`.
fn version_of(said: &str) -> Option<Vec<u32>> {
    let version = said.split_ascii_whitespace().nth(2)?.strip_prefix("go")?;
    Some(version_numbers(version)).filter(|numbers| numbers.len() >= 2)
}

/// Copies a directory that cannot be written to into one that can.
fn copy_sources(from: &Path, to: &Path) -> Result<(), Error> {
    files::make_directory(to, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
    for entry in fs::read_dir(from).context("list", from)? {
        let entry = entry.context("list", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().context("look at", &source)?;
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

fn make_executable(path: &Path, deep: usize) -> Result<(), Error> {
    if !path.is_dir() || deep == 0 {
        return fs::set_permissions(path, Permissions::from_mode(PROGRAM_MODE)).context("make", path);
    }
    let entries = fs::read_dir(path).context("list", path)?;
    entries.flatten().try_for_each(|entry| make_executable(&entry.path(), deep - 1))
}

/// For all to run. A template is known by its server's time, too: built again, it is the same server.
fn keep(built: &Path, program: &Path) -> Result<(), Error> {
    fs::rename(built, program).context("keep", program)?;
    fs::set_permissions(program, Permissions::from_mode(PROGRAM_MODE)).context("make", program)?;
    let file = File::options().append(true).open(program).context("open", program)?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(ZIP_TIME_S)).context("keep", program)
}

#[cfg(test)]
mod tests;
