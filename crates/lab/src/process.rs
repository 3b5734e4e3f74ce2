//! A MariaDB process, for a template or for a run: started on a data directory, waited for, stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_record::{Ended, Scratch};

use crate::config::Config;
use crate::control::Control;
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::spawn::{Child, Launch};
use crate::user::RunAs;

/// Recovery after a crash apart, a server starts within a second or two.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Writing out what is dirty may take a while on a slow disk.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// What starting a process takes, beside what the server is told.
pub(crate) struct Surroundings<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) helper: &'a Path,
    pub(crate) run_as: RunAs,
}

/// A running server.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
}

impl ServerProcess {
    /// Starts a server with `config`, which is written to `config_file`, and waits until it lets
    /// `control` log in.
    pub(crate) fn start(
        surroundings: &Surroundings<'_>,
        what: String,
        config: &Config<'_>,
        config_file: &Path,
        log: PathBuf,
        control: &Control,
    ) -> Result<Self, Error> {
        files::write(config_file, config.text().as_bytes(), PRIVATE_FILE, surroundings.run_as)?;
        let launch = Launch {
            what,
            program: config.build.server_program.clone(),
            // It must be the first, or the system's own configuration is read too.
            arguments: vec![format!("--defaults-file={}", config_file.display())],
            environment: [].into(),
            directory: config.data.to_owned(),
            run_as: surroundings.run_as,
            log,
        };
        let mut child = Child::spawn(surroundings.scratch, surroundings.helper, &launch)?;
        control.wait_until_ready(&mut child, START_LIMIT)?;
        Ok(Self { child })
    }

    /// Shuts the server down in an orderly way, if it lets itself.
    pub(crate) fn stop(&mut self) -> Result<Ended, Error> {
        self.child.stop(STOP_GRACE)
    }
}
