//! Everything real that a run uses: servers, tunnels and proxies in one scratch directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_host::cache::cache_directory;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{AtRest, Namespace, ProxyProgram, ServerUrl, Settings, Storage};
use ciphertoll_record::{Scratch, scratch_root};

use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::error::Error;
use crate::middle::proxy::running::RunningProxy;
use crate::middle::proxy::setup::ProxyStart;
use crate::middle::tunnel::running::RunningTunnel;
use crate::middle::tunnel::setup::TunnelStart;
use crate::profiler::Profiler;
use crate::remote::login::Passwords;
use crate::remote::server::Remote;
use crate::servers::build::Build;
use crate::servers::disk_space::{self, PlannedServer};
use crate::servers::launch::ServerStart;
use crate::servers::server::Server;
use crate::servers::template::{self, DataTemplate, TemplateContent};
use crate::tls::certificates::Authorities;
use crate::workspace::Workspace;

pub struct Lab {
    workspace: Workspace,
    cache: PathBuf,
}

impl Lab {
    /// Creates a lab with its own scratch directory. `helper` is the program with the hidden command
    /// [`ciphertoll_host::exec::EXEC_COMMAND`], usually the target of `/proc/self/exe`. Sweep first.
    pub fn open(helper: PathBuf) -> Result<Self, Error> {
        Self::open_below(helper, &scratch_root())
    }

    /// The same with another root of scratch directories.
    pub fn open_below(helper: PathBuf, scratch_root: &Path) -> Result<Self, Error> {
        Self::open_in(helper, scratch_root, cache_directory())
    }

    pub fn open_in(helper: PathBuf, scratch_root: &Path, cache: PathBuf) -> Result<Self, Error> {
        let workspace = Workspace {
            run_as: RunAs::choose()?,
            authorities: Arc::new(Authorities::generate()?),
            scratch: Arc::new(Scratch::create(scratch_root)?),
            helper,
            network: None,
            storage: Storage::Disk,
        };
        Ok(Self { workspace, cache })
    }

    /// Returns the template of `build` with `tables` from the cache, or creates it, which takes seconds. `progress` is called
    /// before each slow step. Once `stop` returns true, loading ends with [`Error::Interrupted`] and leaves no template.
    pub fn template(
        &self,
        build: &Build,
        tables: &Tables,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<DataTemplate, Error> {
        self.template_at_rest(build, tables, AtRest::None, progress, stop)
    }

    pub fn template_at_rest(
        &self,
        build: &Build,
        tables: &Tables,
        at_rest: AtRest,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<DataTemplate, Error> {
        let mut progress = LoadProgress { progress, stop };
        let content = TemplateContent { tables: *tables, at_rest };
        template::prepare(&self.workspace, &self.cache, build, content, &mut progress)
    }

    /// Fails if the disks have no space for `servers`, which all exist at the same time.
    pub fn check_disk_space(&self, servers: &[PlannedServer]) -> Result<(), Error> {
        disk_space::check_disk_space(&self.workspace, &self.cache, servers)
    }

    /// Starts a server, which is ready when this returns. Call on the main thread.
    pub fn start(&self, start: &ServerStart<'_>) -> Result<Server, Error> {
        self.start_with(start, &Settings::default())
    }

    /// Starts a server with those of `settings` that are for its engine. [`Server::unmet_settings`] lists the settings that
    /// did not take effect. If the server does not start with them, the error is [`ciphertoll_host::Error::Died`] with its log.
    pub fn start_with(&self, start: &ServerStart<'_>, settings: &Settings) -> Result<Server, Error> {
        Server::start(&self.workspace, start, settings)
    }

    /// Starts a tunnel, which is ready when this returns. Call on the main thread.
    pub fn start_tunnel(&self, start: TunnelStart<'_>) -> Result<RunningTunnel, Error> {
        RunningTunnel::start(&self.workspace, start)
    }

    /// Starts a proxy. When this returns, a client has reached the server through it, so that its first connection is not
    /// measured. Call on the main thread.
    pub fn start_proxy(&self, start: &ProxyStart<'_>) -> Result<RunningProxy, Error> {
        RunningProxy::start(&self.workspace, start)
    }

    /// Attaches `perf` to `processes`. Call on the main thread.
    pub fn attach_profiler(&self, role: &'static str, processes: &[i32]) -> Result<Profiler, Error> {
        Profiler::attach(&self.workspace, role, processes)
    }

    /// The version that a proxy program reports; empty if it does not.
    pub fn proxy_version(&self, program: ProxyProgram) -> String {
        RunningProxy::version(&self.workspace, program)
    }

    /// Logs in to a server at a URL, and writes its password to a private file (0600) for load processes.
    pub fn open_remote(&self, name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<Remote, Error> {
        Remote::open(&self.workspace, name, url, passwords)
    }

    /// Starts later servers in this network namespace, listening on all its addresses.
    pub fn move_servers_to(&mut self, network: Namespace) {
        self.workspace.network = Some(network);
    }

    /// Puts the files of later servers on this storage.
    pub fn store_servers_on(&mut self, storage: Storage) {
        self.workspace.storage = storage;
    }

    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Removed when the lab and all its servers are dropped.
    pub fn scratch(&self) -> &Scratch {
        &self.workspace.scratch
    }
}
