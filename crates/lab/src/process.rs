//! A server's process, for a template or for a run: started on a data directory, waited for, stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_model::{Engine, Namespace};
use ciphertoll_record::{ProcessEnd, Scratch};
use nix::sys::signal::Signal;

use crate::accounting::CpuMeter;
use crate::cgroup::Cgroup;
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

/// The postmaster kills what is left of its children after five seconds.
const ABORT_GRACE: Duration = Duration::from_secs(7);

/// What starting a process takes, beside what the server is told.
pub(crate) struct Surroundings<'a> {
    pub(crate) scratch: &'a Scratch,
    pub(crate) helper: &'a Path,
    pub(crate) run_as: RunAs,
    /// The processors to keep to; all, where absent.
    pub(crate) processors: Option<&'a [u16]>,
    /// The network to be in; ours, where absent.
    pub(crate) namespace: Option<&'a Namespace>,
}

/// A running server.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    engine: Engine,
    /// Of a server that is many processes, where one can be made. Dropped after the child.
    cgroup: Option<Cgroup>,
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
        if let Some(text) = config.text() {
            files::write(config_file, text.as_bytes(), PRIVATE_FILE, surroundings.run_as)?;
        }
        let program = match config.native {
            Some(native) => native.program(config.build)?,
            None => config.build.server_program.clone(),
        };
        let launch = Launch {
            what,
            program,
            arguments: config.arguments(config_file),
            environment: config.environment(),
            directory: config.data.to_owned(),
            run_as: surroundings.run_as,
            processors: surroundings.processors.map(<[u16]>::to_vec),
            namespace: surroundings.namespace.cloned(),
            provisions: config.provisions(),
            log,
        };
        let child = Child::spawn(surroundings.scratch, surroundings.helper, &launch)?;
        let engine = config.build.engine;
        let cgroup = match engine {
            Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb => None,
            // Before it forks: children stay where they were born.
            Engine::Postgres => Cgroup::around(child.pid(), surroundings.scratch)?,
        };
        let mut process = Self { child, engine, cgroup };
        control.wait_until_ready(&mut process.child, START_LIMIT)?;
        Ok(process)
    }

    /// Shuts the server down in an orderly way, if it lets itself.
    pub(crate) fn stop(&mut self) -> Result<ProcessEnd, Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb => {
                self.child.stop(STOP_GRACE)
            }
            // To SIGTERM it would wait for its clients.
            Engine::Postgres => self.child.stop_by(Signal::SIGINT, STOP_GRACE),
        }
    }

    /// What its CPU time is read from.
    pub(crate) fn cpu_meter(&self) -> CpuMeter {
        match (self.engine, &self.cgroup) {
            (Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb, _) => {
                CpuMeter::of_process(self.child.pid())
            }
            (Engine::Postgres, Some(cgroup)) => CpuMeter::of_cgroup(cgroup),
            (Engine::Postgres, None) => CpuMeter::of_tree(self.child.pid()),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Killed at once, a postmaster would leave shared memory behind.
        if self.engine == Engine::Postgres && self.child.ended().is_none() {
            let _ = self.child.stop_by(Signal::SIGQUIT, ABORT_GRACE);
        }
    }
}
