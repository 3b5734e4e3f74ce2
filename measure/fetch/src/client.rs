//! The user's own download clients, so that the user's mirror and proxy settings apply.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::programs;
use ciphertoll_record::Context;

use crate::error::FetchError;

/// How often a client that takes long is reported.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Maximum length of client output in an error.
const MAX_CHARACTERS: usize = 300;

#[derive(Clone, Copy, Debug)]
pub(super) struct ClientProgram {
    pub(super) name: &'static str,
    /// The required version after a blank; may be empty.
    pub(super) version: &'static str,
    /// The package of Debian and Ubuntu.
    pub(super) package: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct FetchClient {
    pub(super) program: PathBuf,
    /// Arguments before all others.
    pub(super) arguments: Vec<OsString>,
}

impl FetchClient {
    /// Searches for `known`, which fetches the server `name`.
    pub(super) fn search(known: ClientProgram, name: &str) -> Result<Self, FetchError> {
        let ClientProgram { name: client, version, package } = known;
        match programs::search(client) {
            Some(program) => Ok(Self { program, arguments: Vec::new() }),
            None => Err(FetchError::ClientMissing { name: name.to_owned(), client, version, package }),
        }
    }

    /// A command without input that runs in `directory`, because a project in the current directory may have settings.
    pub(super) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(directory).stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, command: &mut Command, log: File) -> Result<ExitStatus, FetchError> {
        self.run_watched(command, log, &mut |_| {})
    }

    /// The same; `alive` hears now and then for how long it has run.
    pub(super) fn run_watched(
        &self,
        command: &mut Command,
        log: File,
        alive: &mut dyn FnMut(Duration),
    ) -> Result<ExitStatus, FetchError> {
        const POLL: Duration = Duration::from_millis(50);
        let errors = log.try_clone().context("open", &self.program)?;
        let mut child = command.stdout(log).stderr(errors).spawn().context("start", &self.program)?;
        let began = Instant::now();
        let mut next = SIGN_OF_LIFE;
        loop {
            if let Some(status) = child.try_wait().context("wait for", &self.program)? {
                return Ok(status);
            }
            if began.elapsed() >= next {
                alive(began.elapsed());
                next += SIGN_OF_LIFE;
            }
            thread::sleep(POLL);
        }
    }
}

/// Client output without control characters, shortened for an error.
pub(super) fn printable(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_control()).take(MAX_CHARACTERS).collect()
}

pub(super) fn last_line(log: &str) -> &str {
    log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_client_names_its_package() {
        let known =
            ClientProgram { name: "no-such-client", version: " (1.24 or newer)", package: "golang-go" };
        assert_eq!(
            FetchClient::search(known, "ferretdb").unwrap_err().to_string(),
            "fetching ferretdb requires no-such-client (1.24 or newer), which is not on the PATH; \
             install it (Debian and Ubuntu: the package golang-go)"
        );
    }
}
