//! Programs that fetch: the user's own, so that the user's own mirrors and proxies hold.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Context, Error};

/// Characters of what a client said that an error repeats.
const LONGEST_SAYING: usize = 300;

/// A program, as packages have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// A blank and which of it, where that matters.
    pub(super) version: &'static str,
    /// Debian's and Ubuntu's.
    pub(super) package: &'static str,
}

/// How it is called here.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) program: PathBuf,
    /// Before all others.
    pub(super) arguments: Vec<OsString>,
}

impl Client {
    /// The one on PATH, for whoever fetches `name`. A relative entry would run whatever lies in the present directory.
    pub(super) fn on_path(known: Known, name: &str) -> Result<Self, Error> {
        Self::among(&std::env::var_os("PATH").unwrap_or_default(), known, name)
    }

    fn among(path: &OsStr, known: Known, name: &str) -> Result<Self, Error> {
        let found = std::env::split_paths(path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(known.name))
            .find(|program| is_executable(program));
        let Known { name: client, version, package } = known;
        match found {
            Some(program) => Ok(Self { program, arguments: Vec::new() }),
            None => Err(Error::ClientMissing { name: name.to_owned(), client, version, package }),
        }
    }

    /// With nothing to read, and in `directory`: a project in the present one would have settings of its own.
    pub(super) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(directory).stdin(Stdio::null());
        command
    }

    /// Runs it to its end; all that it says goes to `log`.
    pub(super) fn run(&self, command: &mut Command, log: File) -> Result<ExitStatus, Error> {
        let errors = log.try_clone().context("open", &self.program)?;
        command.stdout(log).stderr(errors).status().context("start", &self.program)
    }
}

fn is_executable(program: &Path) -> bool {
    const ANY_EXECUTE: u32 = 0o111;
    fs::metadata(program)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0)
}

/// What of a client's words an error can repeat.
pub(super) fn printable(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_control()).take(LONGEST_SAYING).collect()
}

/// The last line that says something.
pub(super) fn last_line(log: &str) -> &str {
    log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known { name: "go", version: " (1.24 or newer)", package: "golang-go" };

    #[test]
    fn a_client_that_is_missing_is_told_with_its_package() {
        let place = tempfile::tempdir().unwrap();
        let missing = Client::among(place.path().as_os_str(), KNOWN, "ferretdb").unwrap_err().to_string();
        assert_eq!(
            missing,
            "fetching ferretdb takes go (1.24 or newer), which is not on the PATH; \
             install it (Debian and Ubuntu: the package golang-go)"
        );
        // What cannot be run, or lies in the present directory, is none.
        fs::write(place.path().join("go"), "").unwrap();
        assert!(Client::among(place.path().as_os_str(), KNOWN, "ferretdb").is_err());
        assert!(Client::among(OsStr::new(".:"), KNOWN, "ferretdb").is_err());
        fs::set_permissions(place.path().join("go"), fs::Permissions::from_mode(0o755)).unwrap();
        let found = Client::among(place.path().as_os_str(), KNOWN, "ferretdb").unwrap();
        assert_eq!(found.program, place.path().join("go"));
    }
}
