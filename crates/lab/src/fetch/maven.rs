//! Maven as the one who fetches: the user's own client, so that the user's own mirrors and proxies hold.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Error};

/// The program.
pub(super) const CLIENT: &str = "mvn";
/// The package that has it.
const PACKAGE: &str = "maven";
/// Characters of what the client said that an error repeats.
const LONGEST_SAYING: usize = 300;

/// How the client is called.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) program: PathBuf,
    /// Before all others.
    pub(super) arguments: Vec<OsString>,
}

impl Client {
    /// The one on PATH. A relative entry would run whatever lies in the present directory.
    pub(super) fn on_path(name: &str) -> Result<Self, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(CLIENT))
            .find(|program| is_executable(program));
        match found {
            Some(program) => Ok(Self { program, arguments: Vec::new() }),
            None => Err(Error::ClientMissing { name: name.to_owned(), client: CLIENT, package: PACKAGE }),
        }
    }

    /// Puts the file of `artefact` (`GROUP:NAME:VERSION`) into `directory`, under the name that its
    /// repository gives it. The client keeps what it has, and goes on where it was interrupted.
    pub(super) fn copy(&self, name: &str, artefact: &str, directory: &Path, log: &Path) -> Result<(), Error> {
        let output = File::create(log).context("make", log)?;
        let status = Command::new(&self.program)
            .args(&self.arguments)
            .args(["-B", "-Dstyle.color=never", "dependency:get", "dependency:copy"])
            .arg("-Dtransitive=false")
            .arg(format!("-Dartifact={artefact}"))
            .arg(joined("-DoutputDirectory=", directory))
            // A project in the present directory would have repositories and plugins of its own.
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("open", log)?)
            .stderr(output)
            .status()
            .context("start", &self.program)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Download {
            name: name.to_owned(),
            client: CLIENT,
            status: status.to_string(),
            said: reason(&String::from_utf8_lossy(&fs::read(log).context("read", log)?)),
            log: log.to_owned(),
        })
    }
}

fn is_executable(program: &Path) -> bool {
    const ANY_EXECUTE: u32 = 0o111;
    fs::metadata(program)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0)
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

/// The first error that the client told: those after it are advice. Where it told none, its last line.
fn reason(log: &str) -> String {
    const ERROR: &str = "[ERROR] ";
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().find_map(|line| line.strip_prefix(ERROR));
    let said = first.or_else(|| lines.next_back()).unwrap_or("(nothing)");
    said.chars().filter(|letter| !letter.is_control()).take(LONGEST_SAYING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_error_else_the_last_line() {
        let log =
            "[INFO] Scanning\n[ERROR] Failed to execute goal: no such artefact\n[ERROR] \n[ERROR] [Help 1]\n";
        assert_eq!(reason(log), "Failed to execute goal: no such artefact");
        assert_eq!(reason("one\nJAVA_HOME is not set\n\n"), "JAVA_HOME is not set");
        assert_eq!(reason(""), "(nothing)");
        assert_eq!(reason(&"x".repeat(5_000)).len(), LONGEST_SAYING);
    }
}
