//! The user's own download clients, so that the user's mirror and proxy settings apply.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Context, Error};

/// Maximum length of client output in an error.
const MAX_CHARACTERS: usize = 300;

/// A client and the package that provides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientProgram {
    pub(super) name: &'static str,
    /// The required version after a blank; may be empty.
    pub(super) version: &'static str,
    /// The package of Debian and Ubuntu.
    pub(super) package: &'static str,
}

/// An installed client.
#[derive(Clone, Debug)]
pub(super) struct FetchClient {
    pub(super) program: PathBuf,
    /// Arguments before all others.
    pub(super) arguments: Vec<OsString>,
}

impl FetchClient {
    /// Searches PATH. Relative entries are ignored: they would run a program of the current directory.
    pub(super) fn on_path(known: ClientProgram, name: &str) -> Result<Self, Error> {
        Self::among(&std::env::var_os("PATH").unwrap_or_default(), known, name)
    }

    fn among(path: &OsStr, known: ClientProgram, name: &str) -> Result<Self, Error> {
        let found = std::env::split_paths(path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(known.name))
            .find(|program| is_executable(program));
        let ClientProgram { name: client, version, package } = known;
        match found {
            Some(program) => Ok(Self { program, arguments: Vec::new() }),
            None => Err(Error::ClientMissing { name: name.to_owned(), client, version, package }),
        }
    }

    /// A command without input that runs in `directory`, because a project in the current directory may have settings.
    pub(super) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(directory).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end; its output goes to `log`.
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

/// Client output without control characters, shortened for an error.
pub(super) fn printable(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_control()).take(MAX_CHARACTERS).collect()
}

/// The last line that is not empty.
pub(super) fn last_line(log: &str) -> &str {
    log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: ClientProgram =
        ClientProgram { name: "go", version: " (1.24 or newer)", package: "golang-go" };

    #[test]
    fn the_error_for_a_missing_client_names_its_package() {
        let place = tempfile::tempdir().unwrap();
        let missing =
            FetchClient::among(place.path().as_os_str(), KNOWN, "ferretdb").unwrap_err().to_string();
        assert_eq!(
            missing,
            "fetching ferretdb requires go (1.24 or newer), which is not on the PATH; \
             install it (Debian and Ubuntu: the package golang-go)"
        );
        // Neither a file that is not executable nor a relative entry counts.
        fs::write(place.path().join("go"), "").unwrap();
        assert!(FetchClient::among(place.path().as_os_str(), KNOWN, "ferretdb").is_err());
        assert!(FetchClient::among(OsStr::new(".:"), KNOWN, "ferretdb").is_err());
        fs::set_permissions(place.path().join("go"), fs::Permissions::from_mode(0o755)).unwrap();
        let found = FetchClient::among(place.path().as_os_str(), KNOWN, "ferretdb").unwrap();
        assert_eq!(found.program, place.path().join("go"));
    }
}
