//! Python virtual environments: made once, by pip, from packages with known hashes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::error::Error;

/// How much of pip's output is shown.
const MAX_REASON_CHARS: usize = 200;
/// Prints everything that an environment depends on: packages are built for a version and linked to this interpreter.
const WHICH: &str = "import sys; print(sys.implementation.cache_tag, sys.base_prefix, *sys.version_info[:3])";
/// pip's words for an unreachable index or proxy.
const UNREACHABLE: [&str; 3] = ["connection broken by", "Could not fetch URL", "Cannot connect to proxy"];

/// The Python that environments are made with.
#[derive(Clone, Debug)]
pub(super) struct Python {
    program: PathBuf,
    identity: String,
}

/// Why there is no environment.
#[derive(Debug)]
pub(super) enum EnvironmentError {
    /// Something that is needed is missing; one line.
    Missing(String),
    /// An operation on our own files or processes failed.
    Own(Error),
}

impl Python {
    /// The interpreter at this path.
    pub(super) fn at(program: PathBuf) -> Result<Self, EnvironmentError> {
        let output = run(Command::new(&program).args(["-I", "-c", WHICH]))?;
        let identity = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !identity.is_empty() {
            return Ok(Self { program, identity });
        }
        Err(EnvironmentError::Missing(complaint(&output)))
    }

    /// Distinguishes environments that must be made separately.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Makes an environment in `place` with the packages of the file `requirements`. Wheels only: building a package
    /// from source would run code with unknown hashes.
    pub(super) fn make(&self, place: &Path, requirements: &Path) -> Result<(), EnvironmentError> {
        let made = run(Command::new(&self.program).args(["-I", "-m", "venv"]).arg(place))?;
        if !made.status.success() {
            return Err(EnvironmentError::Missing(complaint(&made)));
        }
        let mut pip = Command::new(place.join("bin").join("python3"));
        pip.args(["-I", "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]);
        pip.args(["--require-hashes", "--only-binary", ":all:", "--retries", "1", "--timeout", "15"]);
        let installed = run(pip.arg("--requirement").arg(requirements))?;
        if installed.status.success() {
            Ok(())
        } else {
            Err(EnvironmentError::Missing(complaint(&installed)))
        }
    }
}

/// The packages of a requirements file in order: `pymongo 4.20.0`.
pub(super) fn packages(requirements: &str) -> Vec<String> {
    let pinned = |line: &str| {
        let (name, version) = line.split_once("==")?;
        Some(format!("{} {}", name.trim(), version.split_whitespace().next()?))
    };
    let is_package = |line: &&str| !line.starts_with(['#', ' ', '\t', '-']);
    requirements.lines().filter(is_package).filter_map(pinned).collect()
}

/// Copies the sources into the environment, next to its programs.
pub(super) fn add_sources(place: &Path, sources: &[(String, String)]) -> Result<(), Error> {
    for (name, text) in sources {
        fs::write(place.join(name), text).map_err(Error::io("write", place.join(name)))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<Output, EnvironmentError> {
    let program = PathBuf::from(command.get_program());
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    output.map_err(|error| EnvironmentError::Own(Error::io("run", program)(error)))
}

/// The line with the reason.
fn complaint(output: &Output) -> String {
    let words = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let lines = || words.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| !line.is_empty());
    let line = if words.iter().any(|text| text.contains("ensurepip is not")) {
        // Debian packages venv separately, and explains that in many lines.
        "this Python has no venv"
    } else if lines().any(|line| UNREACHABLE.iter().any(|words| line.contains(words))) {
        "pip does not reach its package index: the network or a proxy is unreachable"
    } else {
        let error = lines().find_map(|line| line.strip_prefix("ERROR: "));
        error.or_else(|| lines().next_back()).unwrap_or("it ended without a message")
    };
    line.chars().take(MAX_REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn said(stdout: &str, stderr: &str) -> String {
        let [stdout, stderr] = [stdout, stderr].map(|text| text.as_bytes().to_vec());
        complaint(&Output { status: ExitStatus::from_raw(256), stdout, stderr })
    }

    #[test]
    fn packages_are_listed_with_their_versions() {
        let text = include_str!("../../../../drivers/pymongo.requirements.txt");
        assert_eq!(packages(text), ["pymongo 4.20.0", "dnspython 2.9.2"]);
        let hashes = text.lines().filter(|line| line.trim_start().starts_with("--hash=sha256:")).count();
        assert!(hashes >= packages(text).len(), "{text}");
    }

    #[test]
    fn errors_are_explained_in_a_line() {
        let offline = "WARNING: Retrying after connection broken by 'NewConnectionError': /simple/pymongo/\n\
                       ERROR: Could not find a version that satisfies the requirement pymongo==4.20.0";
        assert!(said("", offline).starts_with("pip does not reach its package index"));
        let changed =
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you\n pymongo";
        assert!(said("Collecting pymongo\n", changed).starts_with("THESE PACKAGES DO NOT MATCH THE HASHES"));
        let bare =
            "The virtual environment was not created successfully because ensurepip is not\navailable.";
        assert_eq!(said(bare, ""), "this Python has no venv");
        assert_eq!(
            said("", "Traceback:\nModuleNotFoundError: No module named 'venv'\n"),
            "ModuleNotFoundError: No module named 'venv'"
        );
        assert_eq!(said("", "\n"), "it ended without a message");
    }
}
