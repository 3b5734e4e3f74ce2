//! Starts of a server's process: on free ports, and again on the same ports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_host::port::free_port;
use ciphertoll_model::{AtRest, SecurityLevel, ServerKey};
use ciphertoll_record::Context;
use ciphertoll_wire::Secret;

use crate::at_rest::native::{self, NativeKeys};
use crate::at_rest::preload::{self, Preload};
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::config::{
    CLIENT_CA_FILE, ClientRequirements, Config, ListenAddress, ListenPorts, Network,
};
use crate::servers::control::ControlLogin;
use crate::servers::directory::{AddedGroups, CURRENT, ServerDirectory};
use crate::servers::engine::ServerEngine;
use crate::servers::engines;
use crate::servers::process::{LaunchContext, ServerProcess};
use crate::servers::template::DataTemplate;
use crate::tls::support::has_openssl_with_ml_kem;
use crate::workspace::Workspace;

const MOST_PORTS: usize = 5;

pub struct ServerStart<'a> {
    pub build: &'a Build,
    pub template: &'a DataTemplate,
    /// Unique in the run; short, because it is part of a socket's path.
    pub name: &'a str,
    /// Key of the first certificate.
    pub key: ServerKey,
    pub log: PathBuf,
    /// Tried before any other port.
    pub preferred_port: Option<u16>,
    /// CPU affinity, as `split_processors` returns it; all processors if absent.
    pub processors: Option<Vec<u16>>,
    /// Whether the server accepts keys that its OpenSSL refuses by default.
    pub strength: SecurityLevel,
}

/// The configuration that every start of a server has in common.
pub(crate) struct LaunchPlan {
    pub(crate) engine: &'static dyn ServerEngine,
    pub(crate) build: Build,
    settings: BTreeMap<String, String>,
    pub(crate) requirements: ClientRequirements,
    openssl: Option<PathBuf>,
    strength: SecurityLevel,
    /// Plugin directory of a server that encrypts its own files.
    plugins: Option<PathBuf>,
    pub(crate) preload: Option<Preload>,
    pub(crate) listen: ListenAddress,
    log: PathBuf,
    processors: Option<Vec<u16>>,
    pub(crate) workspace: Workspace,
}

/// What the OpenSSL of this build supports.
fn added_groups(build: &Build) -> AddedGroups {
    if has_openssl_with_ml_kem(build) { AddedGroups::MlKem } else { AddedGroups::None }
}

impl LaunchPlan {
    pub(crate) fn prepare(
        workspace: &Workspace,
        start: &ServerStart<'_>,
        directory: &ServerDirectory,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let engine = engines::of(start.build.engine);
        let (mut plugins, mut preload) = (None, None);
        match start.template.at_rest {
            AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => {}
            AtRest::Native => {
                let encryption = engines::native_encryption(start.build.engine)?;
                plugins = Some(native::find_plugins(encryption, start.build)?);
            }
            AtRest::Tde(tde) => {
                let library = preload::find_library(&workspace.helper, tde)?;
                let ServerDirectory { root, keys, data, .. } = directory;
                preload = Some(Preload::install(&library, root, keys, data, tde)?);
            }
        }
        Ok(Self {
            engine,
            build: start.build.clone(),
            settings: settings.clone(),
            requirements: ClientRequirements::default(),
            openssl: directory.write_openssl(start.strength, added_groups(start.build), workspace.run_as)?,
            strength: start.strength,
            plugins,
            preload,
            listen: ListenAddress::of(workspace),
            log: start.log.clone(),
            processors: start.processors.clone(),
            workspace: workspace.clone(),
        })
    }

    /// Another process may take a port between our check and the server's bind; then the next port is tried.
    pub(crate) fn start_on_a_free_port(
        &self,
        start: &ServerStart<'_>,
        directory: &ServerDirectory,
        access: &Path,
        password: &Secret,
    ) -> Result<(ServerProcess, ControlLogin, ListenPorts), Error> {
        let mut tried = Vec::new();
        while tried.len() < MOST_PORTS {
            let preferred = start.preferred_port.filter(|_| tried.is_empty());
            let Some(plain) = preferred.or_else(|| free_port(&tried)) else { break };
            tried.push(plain);
            let Some(ports) = self.ports(plain, &mut tried) else { break };
            let config = self.config(directory, ports, Some(access));
            let socket = self.engine.socket_path(&directory.run, plain);
            let control = self.engine.control(&socket, password);
            match self.start(directory, &config, &control) {
                Err(Error::Host(ciphertoll_host::Error::Died { log_end, .. }))
                    if engines::is_port_taken(&log_end) => {}
                started => {
                    let process = started?;
                    let control = self.engine.create_control_account(control, password)?;
                    return Ok((process, control, ports));
                }
            }
        }
        Err(Error::PortsTaken { what: self.build.name(), tried })
    }

    /// Starts the server again on the same ports; its accounts exist. `access` are rules that it reads at each start.
    pub(crate) fn start_again(
        &self,
        directory: &ServerDirectory,
        ports: ListenPorts,
        access: Option<&Path>,
        control: &ControlLogin,
    ) -> Result<ServerProcess, Error> {
        let config = self.config(directory, ports, access);
        let file = self.config_file(directory, &config);
        if file.exists() {
            std::fs::remove_file(&file).context("remove", &file)?;
        }
        self.start(directory, &config, control)
    }

    fn start(
        &self,
        directory: &ServerDirectory,
        config: &Config<'_>,
        control: &ControlLogin,
    ) -> Result<ServerProcess, Error> {
        let context = LaunchContext {
            workspace: &self.workspace,
            processors: self.processors.as_deref(),
            namespace: self.workspace.network.as_ref(),
        };
        let file = self.config_file(directory, config);
        ServerProcess::start(&context, self.build.name(), config, &file, self.log.clone(), control)
    }

    fn ports(&self, plain: u16, tried: &mut Vec<u16>) -> Option<ListenPorts> {
        if !self.engine.properties().has_tls_port {
            return Some(ListenPorts { plain, tls: plain });
        }
        let tls = free_port(tried)?;
        tried.push(tls);
        Some(ListenPorts { plain, tls })
    }

    fn config<'a>(
        &'a self,
        directory: &'a ServerDirectory,
        ports: ListenPorts,
        access: Option<&'a Path>,
    ) -> Config<'a> {
        Config {
            build: &self.build,
            data: &directory.data,
            run: &directory.run,
            network: Network::Tcp {
                listen: self.listen,
                ports,
                tls: directory.tls.join(CURRENT),
                client_ca: directory.root.join(CLIENT_CA_FILE),
                requirements: self.requirements,
                settings: self.settings.clone(),
            },
            openssl: self.openssl.as_deref(),
            strength: self.strength,
            access,
            temporary: &directory.temporary,
            native: self.plugins.as_deref().map(|plugins| NativeKeys {
                keys: &directory.keys,
                plugins,
                component: &directory.component,
                fresh: false,
            }),
            preload: self.preload.as_ref(),
        }
    }

    fn config_file(&self, directory: &ServerDirectory, config: &Config<'_>) -> PathBuf {
        directory.root.join(format!("{}-{}.conf", self.build.engine.label(), config.port()))
    }
}
