//! The process of a server, for a template or for a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::cgroup::Cgroup;
use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_model::Namespace;
use ciphertoll_record::ProcessEnd;

use crate::error::Error;
use crate::servers::config::Config;
use crate::servers::control::ControlLogin;
use crate::servers::engine::ServerEngine;
use crate::servers::engines;
use crate::workspace::Workspace;

/// Without crash recovery, a server starts within a second or two.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Writing out the buffers may take a while on a slow disk.
const STOP_GRACE: Duration = Duration::from_secs(30);
/// PostgreSQL's postmaster kills its remaining children after five seconds.
const ABORT_GRACE: Duration = Duration::from_secs(7);

pub(crate) struct LaunchContext<'a> {
    pub(crate) workspace: &'a Workspace,
    /// CPU affinity; all processors if absent.
    pub(crate) processors: Option<&'a [u16]>,
    /// Network namespace; ours if absent.
    pub(crate) namespace: Option<&'a Namespace>,
}

pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    engine: &'static dyn ServerEngine,
    /// Of a server of several processes, if one can be created. Dropped after the child.
    cgroup: Option<Cgroup>,
}

impl ServerProcess {
    /// Writes `config` to `config_file`, starts the server, and waits until `control` can log in.
    pub(crate) fn start(
        context: &LaunchContext<'_>,
        what: String,
        config: &Config<'_>,
        config_file: &Path,
        log: PathBuf,
        control: &ControlLogin,
    ) -> Result<Self, Error> {
        let workspace = context.workspace;
        let engine = engines::of(config.build.engine);
        if let Some(text) = engine.config_text(config) {
            files::write(config_file, text.as_bytes(), PRIVATE_FILE, workspace.run_as)?;
        }
        let program = match config.native {
            Some(keys) => {
                let encryption = engines::native_encryption(config.build.engine)?;
                encryption.program(config.build, keys)?
            }
            None => config.build.server_program.clone(),
        };
        let launch = Launch {
            what,
            program,
            arguments: engine.arguments(config, config_file),
            environment: config.environment(),
            directory: config.data.to_owned(),
            run_as: workspace.run_as,
            processors: context.processors.map(<[u16]>::to_vec),
            namespace: context.namespace.cloned(),
            provisions: engine.provisions(config),
            log,
        };
        let child = workspace.spawn(&launch)?;
        let cgroup = match engine.properties().shutdown_signals {
            None => None,
            // Before the server forks: children stay in the group that they are created in.
            Some(_) => Cgroup::around(child.pid(), &workspace.scratch)?,
        };
        let mut process = Self { child, engine, cgroup };
        control.wait_until_ready(&mut process.child, START_LIMIT)?;
        Ok(process)
    }

    /// Shuts the server down, and kills it if that takes too long.
    pub(crate) fn stop(&mut self) -> Result<ProcessEnd, Error> {
        match &self.engine.properties().shutdown_signals {
            None => Ok(self.child.stop(STOP_GRACE)?),
            Some(signals) => Ok(self.child.stop_by(signals.fast, STOP_GRACE)?),
        }
    }

    /// Whether the server consists of one process.
    pub(crate) fn is_single(&self) -> bool {
        self.engine.properties().shutdown_signals.is_none()
    }

    pub(crate) fn cpu_meter(&self) -> CpuMeter {
        match &self.cgroup {
            _ if self.is_single() => CpuMeter::Process { pid: self.child.pid() },
            Some(cgroup) => CpuMeter::Cgroup { path: cgroup.path().to_owned() },
            None => CpuMeter::Tree { pid: self.child.pid() },
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(signals) = &self.engine.properties().shutdown_signals
            && self.child.ended().is_none()
        {
            let _ = self.child.stop_by(signals.immediate, ABORT_GRACE);
        }
    }
}
