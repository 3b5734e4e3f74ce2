//! A running proxy.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::programs;
use ciphertoll_host::spawn::Child;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Endpoint, Leg, ProxyProgram};
use ciphertoll_record::Context;
use ciphertoll_wire::Secret;

use super::probe::ProxyProbe;
use super::setup::{ProxyContext, ProxyStart};
use super::{program, sidecar};
use crate::error::Error;
use crate::servers::directory::PASS_THROUGH;
use crate::servers::server::Server;
use crate::workspace::Workspace;

/// Finds the sidecar in the directory of this program or on PATH; the error says how to get it.
pub fn sidecar_program() -> Result<PathBuf, Error> {
    let program = env::current_exe().context("find", Path::new("/proc/self/exe"))?;
    Ok(programs::find_sidecar(&program)?)
}

/// Whether the proxy is asked for what the server does not report.
enum ProxyStatus {
    NotAsked,
    /// For the group of its server connections; its sockets are in this directory.
    AsksForGroups {
        run: PathBuf,
    },
}

impl ProxyStatus {
    fn group(&self) -> Result<Option<String>, Error> {
        match self {
            Self::NotAsked => Ok(None),
            Self::AsksForGroups { run } => sidecar::group(run).map(Some),
        }
    }
}

/// A proxy with a connection to the server. On drop, its process is ended and its files are removed.
pub struct RunningProxy {
    child: Child,
    probe: ProxyProbe,
    endpoint: Endpoint,
    leg: Leg,
    status: ProxyStatus,
    setup_time: Duration,
    directory: PathBuf,
}

impl RunningProxy {
    pub(crate) fn start(workspace: &Workspace, start: &ProxyStart<'_>) -> Result<Self, Error> {
        let mode = if workspace.run_as == RunAs::Ourselves { PRIVATE_DIRECTORY } else { PASS_THROUGH };
        let directory = workspace.scratch.make_directory(start.name, mode)?;
        Self::start_in(workspace, start, &directory).inspect_err(|_| drop(fs::remove_dir_all(&directory)))
    }

    fn start_in(workspace: &Workspace, start: &ProxyStart<'_>, directory: &Path) -> Result<Self, Error> {
        let run = directory.join("run");
        files::make_directory(&run, PRIVATE_DIRECTORY, workspace.run_as)?;
        let password_file = &start.account.password_file;
        let password = Secret::new(fs::read(password_file).context("read", password_file)?);
        let context = ProxyContext { workspace, directory, run: &run, password: &password };
        let began = Instant::now();
        let (mut child, endpoint) = program::start(&context, start)?;
        let probe = ProxyProbe::new(start, &endpoint, &password);
        let encryption = probe.connect(&mut child)?;
        let (from, library) = (start.proxy.program.label(), start.proxy.program.display_name());
        let mut leg = Leg {
            from: from.to_owned(),
            library: Some(library.to_owned()),
            ..start.server.leg_of(encryption)
        };
        let (directory, setup_time) = (directory.to_owned(), began.elapsed());
        let status = match start.proxy.group {
            Some(_) => ProxyStatus::AsksForGroups { run },
            None => ProxyStatus::NotAsked,
        };
        leg.group = status.group()?.or(leg.group);
        Ok(Self { child, probe, endpoint, leg, status, setup_time, directory })
    }

    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The encryption of its first server connection, as the server reports it.
    pub fn leg(&self) -> &Leg {
        &self.leg
    }

    /// Connects through the proxy again, and returns the encryption of that server connection. A killed client may have closed
    /// the pool's last connection; afterwards there is one.
    pub fn connect_through(&mut self, server: &Server) -> Result<Leg, Error> {
        let encryption = self.probe.connect(&mut self.child)?;
        let (from, library) = (self.leg.from.clone(), self.leg.library.clone());
        let leg = Leg { from, library, ..server.leg_of(encryption) };
        Ok(Leg { group: self.status.group()?.or(leg.group.clone()), ..leg })
    }

    pub fn setup_time(&self) -> Duration {
        self.setup_time
    }

    /// Every proxy is a single process.
    pub fn cpu_meter(&self) -> CpuMeter {
        CpuMeter::Process { pid: self.child.pid() }
    }

    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    pub(crate) fn version(workspace: &Workspace, of: ProxyProgram) -> String {
        let file = program::proxy_program(of, &workspace.helper);
        let scratch = workspace.scratch.path();
        let version = file.ok().and_then(|file| programs::version_of(&file, &["--version"], scratch).ok());
        version.unwrap_or_default()
    }

    /// Fails if the process has ended or is stopped.
    pub fn check(&mut self) -> Result<(), Error> {
        Ok(self.child.check()?)
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        const GRACE: Duration = Duration::from_millis(500);
        // A process that does not end is killed when it is dropped; remaining files are removed with the scratch directory.
        let _ = self.child.stop(GRACE);
        let _ = fs::remove_dir_all(&self.directory);
    }
}
