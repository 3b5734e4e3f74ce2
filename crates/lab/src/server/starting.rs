//! How a server's process comes into being: on ports that are free, and again on the same ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{AtRest, Engine, Namespace, SecurityLevel};
use ciphertoll_record::Scratch;
use ciphertoll_wire::Secret;

use super::{Start, Terms};
use crate::at_rest::{self, Native, Preload};
use crate::config::{CLIENT_CA_FILE, Config, Listen, Network, Ports};
use crate::control::Control;
use crate::error::{Context, Error};
use crate::find::Build;
use crate::lab::Lab;
use crate::place::{CURRENT, Place};
use crate::port::free_port;
use crate::process::{ServerProcess, Surroundings};
use crate::user::RunAs;
use crate::{documents, ferretdb, mongodb, mysql_family, postgres, rows};

const MOST_PORTS: usize = 5;

/// All that a server is told whenever it is started.
pub(super) struct Recipe {
    build: Build,
    settings: BTreeMap<String, String>,
    pub(super) terms: Terms,
    openssl: Option<PathBuf>,
    strength: SecurityLevel,
    /// Where the plugins are that it encrypts its own files with, where it does.
    plugins: Option<PathBuf>,
    /// What is preloaded into it, where something is.
    preload: Option<Preload>,
    listen: Listen,
    log: PathBuf,
    run_as: RunAs,
    helper: PathBuf,
    processors: Option<Vec<u16>>,
    namespace: Option<Namespace>,
    scratch: Arc<Scratch>,
}

impl Recipe {
    pub(super) fn of(
        lab: &Lab,
        start: &Start<'_>,
        place: &Place,
        settings: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let (mut plugins, mut preload) = (None, None);
        match start.template.at_rest {
            AtRest::None | AtRest::AsIs | AtRest::Gocryptfs | AtRest::Fscrypt => {}
            AtRest::Native => plugins = Some(at_rest::find_plugins(start.build)?),
            AtRest::Tde(tde) => {
                let library = at_rest::find_library(&lab.helper, tde)?;
                preload = Some(Preload::lay(&library, &place.root, &place.keys, &place.data, tde)?);
            }
        }
        Ok(Self {
            build: start.build.clone(),
            settings: settings.clone(),
            terms: Terms::default(),
            openssl: place.write_openssl(start.strength, lab.run_as)?,
            strength: start.strength,
            plugins,
            preload,
            listen: Listen::of(lab),
            log: start.log.clone(),
            run_as: lab.run_as,
            helper: lab.helper.clone(),
            processors: start.processors.clone(),
            namespace: lab.network.clone(),
            scratch: Arc::clone(&lab.scratch),
        })
    }

    /// What is preloaded into the server, where something is.
    pub(super) fn preload(&self) -> Option<&Preload> {
        self.preload.as_ref()
    }

    /// Between our look at a port and the server's bind somebody else may take it.
    pub(super) fn start_on_a_free_port(
        &self,
        start: &Start<'_>,
        place: &Place,
        access: &Path,
        password: &Secret,
    ) -> Result<(ServerProcess, Control, Ports), Error> {
        let mut tried = Vec::new();
        while tried.len() < MOST_PORTS {
            let preferred = start.preferred_port.filter(|_| tried.is_empty());
            let Some(plain) = preferred.or_else(|| free_port(&tried)) else { break };
            tried.push(plain);
            let Some(ports) = self.ports(plain, &mut tried) else { break };
            let config = self.config(place, ports, Some(access));
            let control = self.control(&config, password);
            match self.start(place, &config, &control) {
                Err(Error::Died { log_end, .. }) if says_port_taken(&log_end) => {}
                started => {
                    let process = started?;
                    let control = match self.build.engine {
                        Engine::MongoDb => mongodb::make_first_account(&control, password)?,
                        _ => control,
                    };
                    return Ok((process, control, ports));
                }
            }
        }
        Err(Error::PortsTaken { what: self.what(), tried })
    }

    /// Starts it where it was; it has its accounts.
    pub(super) fn start_again(
        &self,
        place: &Place,
        ports: Ports,
        control: &Control,
    ) -> Result<ServerProcess, Error> {
        let config = self.config(place, ports, None);
        let file = self.config_file(place, &config);
        if file.exists() {
            std::fs::remove_file(&file).context("remove", &file)?;
        }
        self.start(place, &config, control)
    }

    fn start(&self, place: &Place, config: &Config<'_>, control: &Control) -> Result<ServerProcess, Error> {
        let surroundings = Surroundings {
            scratch: &self.scratch,
            helper: &self.helper,
            run_as: self.run_as,
            processors: self.processors.as_deref(),
            namespace: self.namespace.as_ref(),
        };
        let file = self.config_file(place, config);
        ServerProcess::start(&surroundings, self.what(), config, &file, self.log.clone(), control)
    }

    fn ports(&self, plain: u16, tried: &mut Vec<u16>) -> Option<Ports> {
        let tls = match self.build.engine {
            Engine::FerretDb => {
                let own = free_port(tried)?;
                tried.push(own);
                own
            }
            Engine::MariaDb | Engine::MySql | Engine::Postgres | Engine::MongoDb => plain,
        };
        Some(Ports { plain, tls })
    }

    fn config<'a>(&'a self, place: &'a Place, ports: Ports, access: Option<&'a Path>) -> Config<'a> {
        Config {
            build: &self.build,
            data: &place.data,
            run: &place.run,
            network: Network::Tcp {
                listen: self.listen,
                ports,
                tls: place.tls.join(CURRENT),
                client_ca: place.root.join(CLIENT_CA_FILE),
                terms: self.terms,
                settings: self.settings.clone(),
            },
            openssl: self.openssl.as_deref(),
            strength: self.strength,
            access,
            temporary: &place.temporary,
            native: self.plugins.as_deref().map(|plugins| Native {
                keys: &place.keys,
                plugins,
                component: &place.component,
                fresh: false,
            }),
            preload: self.preload.as_ref(),
        }
    }

    fn control(&self, config: &Config<'_>, password: &Secret) -> Control {
        let (socket, password) = (config.socket(), password.clone());
        match self.build.engine {
            Engine::MariaDb | Engine::MySql => Control::mysql(&socket, mysql_family::CONTROL_USER, password),
            Engine::Postgres => Control::postgres(&socket, postgres::CONTROL_ROLE, rows::SCHEMA),
            // It has no account yet.
            Engine::MongoDb => Control::documents(&socket, None),
            Engine::FerretDb => Control::documents(&socket, Some((documents::CONTROL_USER, password))),
        }
    }

    fn config_file(&self, place: &Place, config: &Config<'_>) -> PathBuf {
        place.root.join(format!("{}-{}.conf", self.build.engine.label(), config.port()))
    }

    /// `MariaDB 10.11.19`
    fn what(&self) -> String {
        format!("{} {}", self.build.engine.display_name(), self.build.version)
    }
}

fn says_port_taken(log_end: &str) -> bool {
    let words = [mysql_family::PORT_TAKEN, postgres::PORT_TAKEN, mongodb::PORT_TAKEN, ferretdb::PORT_TAKEN];
    words.concat().iter().any(|words| log_end.contains(words))
}
