//! SIGHUP: settings, passwords and certificates are read again on a thread of its own.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use crate::config::{ConfigError, Resolved};
use crate::engine::{ControlHandle, PreparedSettings};
use crate::log::{Level, Log};
use crate::notify::Notifier;
use crate::protocol::Protocol;
use crate::settings::{ListenAddress, Settings};

pub struct Reloader<P: Protocol> {
    pub control: ControlHandle<P>,
    pub notifier: Notifier,
    /// Each reload replaces it by a log with the new settings.
    pub log: Log,
    /// The settings of the start: some of them cannot change while a proxy runs.
    pub started_with: Arc<Resolved>,
}

impl<P: Protocol> Reloader<P> {
    /// Reloads the settings by `load`.
    pub fn reload(&mut self, load: impl Fn() -> Result<Resolved, ConfigError>) {
        self.notifier.reloading();
        let reloaded = load().map_err(Into::into).and_then(|resolved| self.apply(resolved));
        let metrics = self.control.metrics();
        match reloaded {
            Ok(log) => {
                metrics.reloads.increment();
                self.log = log;
                log.event(Level::Info, "reloaded", &[]);
            }
            Err(error) => {
                metrics.reloads_failed.increment();
                self.log.event(Level::Warn, "reload-failed", &[("reason", &error)]);
            }
        }
        self.notifier.ready();
    }

    /// If it fails, the old settings stay in force.
    fn apply(&self, resolved: Resolved) -> Result<Log, Box<dyn std::error::Error>> {
        let Resolved { settings, admin, log, .. } = resolved;
        let fixed = &self.started_with.settings;
        let (server, newer) = (&fixed.server, &settings.server);
        let is_same = newer.hosts().eq(server.hosts())
            && (newer.target, newer.balance) == (server.target, server.balance);
        if !is_same {
            let server = server.label();
            return Err(format!("the server stays {server} until the proxy is restarted").into());
        }
        for (what, same) in [
            ("listen", settings.listen == fixed.listen),
            ("admin", admin == self.started_with.admin),
            ("mode", settings.pooling == fixed.pooling),
            ("reset", settings.reset == fixed.reset),
            ("threads", settings.threads == fixed.threads),
        ] {
            if !same {
                let reason = "it changes only with a restart";
                self.log.event(Level::Warn, "reload-ignored", &[("setting", &what), ("reason", &reason)]);
            }
        }
        let (pooling, reset) = (fixed.pooling, fixed.reset);
        let settings = Settings { listen: fixed.listen.clone(), pooling, reset, ..settings };
        let prepared = PreparedSettings::new(&settings, log)?;
        self.control.apply_settings(&prepared)?;
        self.set_socket_mode(settings.allowed_uids.mode());
        Ok(log)
    }

    /// The mode of the socket files follows the allowed UIDs.
    fn set_socket_mode(&self, mode: u32) {
        for address in &self.started_with.settings.listen {
            if let ListenAddress::Unix(path) = address
                && let Err(error) = set_permissions(path, Permissions::from_mode(mode))
            {
                let path = path.display();
                let fields: [(&str, &dyn std::fmt::Display); 2] = [("socket", &path), ("reason", &error)];
                self.log.event(Level::Warn, "socket-unchanged", &fields);
            }
        }
    }
}
