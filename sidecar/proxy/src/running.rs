//! The servers of this process, as its other threads see them.

use std::sync::Arc;

use crate::config::ServerName;
use crate::engine::{Health, NoAnswer, ServerControl};
use crate::settings::ListenAddress;
use crate::status::Status;

/// A server whose workers run.
#[derive(Clone)]
pub struct RunningServer {
    pub name: Option<ServerName>,
    /// As in the settings of the start.
    pub listen: Vec<ListenAddress>,
    pub control: Arc<dyn ServerControl>,
}

impl RunningServer {
    pub(crate) fn status(&self) -> Result<Status, NoAnswer> {
        let name = self.name.as_ref().map(|name| name.as_str().to_owned());
        Ok(Status { name, ..self.control.status()? })
    }
}

/// The worst state of the servers, and the names of those that are in it.
pub(crate) fn health(servers: &[RunningServer]) -> Result<(Health, Vec<&str>), NoAnswer> {
    let (mut worst, mut names) = (Health::Well, Vec::new());
    for server in servers {
        let health = server.control.health()?;
        if health > worst {
            (worst, names) = (health, Vec::new());
        }
        if health == worst {
            names.extend(server.name.as_ref().map(ServerName::as_str));
        }
    }
    Ok((worst, names))
}
