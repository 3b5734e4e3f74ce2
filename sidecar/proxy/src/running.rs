//! The servers of this process, as its other threads see them.

use std::sync::Arc;
use std::time::Instant;

use crate::config::ServerName;
use crate::console::{Console, Reload};
use crate::credentials::Credentials;
use crate::engine::{ControlHandle, Health, NoAnswer, ServerControl};
use crate::log::Log;
use crate::protocol::Protocol;
use crate::settings::{ListenAddress, Settings};
use crate::status::Status;

/// A server whose workers run.
#[derive(Clone)]
pub struct RunningServer {
    pub(crate) name: Option<ServerName>,
    /// As in the settings of the start.
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) control: Arc<dyn ServerControl>,
    pub(crate) console: Arc<dyn Console>,
}

impl RunningServer {
    pub fn new<P: Protocol>(
        name: Option<ServerName>,
        listen: Vec<ListenAddress>,
        handle: ControlHandle<P>,
    ) -> Self {
        Self { name, listen, control: Arc::new(handle.clone()), console: Arc::new(handle) }
    }

    /// Runs the commands of passwords, the first time at once.
    pub fn credentials(&self, settings: &Settings, log: Log) -> Credentials {
        let control = Arc::clone(&self.control);
        let report = move || control.password_fetched();
        let credentials =
            Credentials::new(settings.password_sources(), log, self.control.shared_metrics(), report);
        // The first passwords, before the first client needs one.
        credentials.tick(Instant::now());
        credentials
    }

    /// Serves clients of the console until the process ends. `reload` reads the settings again, and returns whether they are
    /// in force.
    pub fn open_console(&self, reload: Reload) {
        self.console.open(reload);
    }

    pub(crate) fn status(&self) -> Result<Status, NoAnswer> {
        let name = self.name.as_ref().map(|name| name.as_str().to_owned());
        Ok(Status { name, ..self.control.status()? })
    }
}

/// The worst state of the servers, and the names of the servers in that state.
pub(crate) fn health(servers: &[RunningServer]) -> Result<(Health, Vec<&str>), NoAnswer> {
    let (mut worst, mut names) = (Health::Well, Vec::new());
    for server in servers {
        let health = match server.control.health() {
            // One of several servers has ended, because the proxy stops.
            Err(NoAnswer) if servers.len() > 1 => Health::Stopping,
            health => health?,
        };
        if health > worst {
            (worst, names) = (health, Vec::new());
        }
        if health == worst {
            names.extend(server.name.as_ref().map(ServerName::as_str));
        }
    }
    Ok((worst, names))
}
