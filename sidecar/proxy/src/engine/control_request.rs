//! What other threads of the program ask of the workers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::client_tls::ClientTls;
use super::console_request::ConsoleRequest;
use super::environment::AccessRules;
use super::upkeep::SettingsVersion;
use crate::log::Log;
use crate::protocol::Protocol;
use crate::resolver::RESOLVE_INTERVAL;
use crate::settings::{Limits, Settings, StartError};
use crate::status::Status;
use crate::upstream::{self, Upstream};

/// What a thread that is not a worker asks of one, and where the response goes.
pub(super) enum ControlRequest<P> {
    Status(Sender<Status>),
    Health(Sender<Health>),
    ApplySettings(Box<PreparedSettings<P>>, Sender<()>),
    Sockets(Sender<Option<Vec<OwnedFd>>>),
    HandOver(Sender<HandedOver>),
    Console(ConsoleRequest),
    /// The command of a user's password has ended. No response.
    PasswordFetched,
}

/// Whether a worker has given its listening sockets away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    Done,
    /// It has closed them already, and removed their files.
    IsStopping,
}

/// Whether new clients would be served, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// A server connection is open, or one was opened a moment ago.
    Well,
    /// An operator has paused the database of clients that name none: clients wait.
    Paused,
    /// None is open, and attempts to open one continue.
    NoServer,
    Stopping,
}

/// Settings that are checked and whose files are read. Each worker gets a clone.
#[derive(Clone)]
pub struct PreparedSettings<P> {
    pub(super) access: AccessRules,
    pub(super) protocol: P,
    pub(super) upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) log: Log,
    pub(super) version: SettingsVersion,
}

impl<P: Protocol> PreparedSettings<P> {
    /// Reads certificates, hashes passwords and resolves names: this may block, so no worker does it.
    pub fn new(settings: &Settings, log: Log) -> Result<Self, StartError> {
        let protocol = P::from_settings(settings)?;
        let tls = settings.tls.as_ref().map(ClientTls::read).transpose().map_err(StartError::Tls)?;
        let access = AccessRules {
            uids: settings.allowed_uids.clone(),
            unix_auth: settings.unix_auth,
            tls,
            console: settings.console.clone().map(Arc::new),
        };
        let mut upstream = Upstream::new(&settings.server, settings.tls_library, &settings.groups)
            .map_err(StartError::Tls)?
            .with_dns_time(settings.limits.dns.unwrap_or(RESOLVE_INTERVAL))
            .with_silence(silence_limit(settings));
        if !settings.watch_files.is_zero() {
            // Files that are replaced while the proxy runs close no connections.
            upstream.fingerprint = upstream::fingerprint_of_settings(settings);
        }
        let (limits, version) = (settings.limits.clone(), SettingsVersion::new());
        Ok(Self { access, protocol, upstream, limits, log, version })
    }
}

/// A link that goes silent is left within `health-time`, from about 1 s on. This limit passes twice: until an open connection
/// ends, and until the connect that follows fails.
fn silence_limit(settings: &Settings) -> Duration {
    if settings.server.is_watched() { settings.limits.health / 4 } else { Duration::ZERO }
}
