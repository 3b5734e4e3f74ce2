//! SIGHUP: settings, passwords and certificates are read again on a thread of its own.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{ConfigError, ResolvedServer, ResolvedServers, ServerName};
use crate::console_facts::Facts;
use crate::log::{Level, Log};
use crate::notify::Notifier;
use crate::running::RunningServer;
use crate::settings::{AllowedUids, ListenAddress, Settings};

pub struct Reloader {
    /// In the order of the settings.
    pub servers: Vec<RunningServer>,
    pub notifier: Notifier,
    /// Each reload replaces it by a log with the new settings.
    pub log: Log,
    /// The settings of the start: some of them cannot change while a proxy runs.
    pub started_with: Arc<ResolvedServers>,
}

impl Reloader {
    /// Reloads the settings by `load`, one time after the other, whoever asks for it. Returns whether they are in force.
    pub fn shared(
        self,
        load: impl Fn() -> Result<ResolvedServers, ConfigError> + Send + Sync + 'static,
    ) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let reloader = Mutex::new(self);
        // After a panic the settings are those before or after the reload.
        Arc::new(move || reloader.lock().unwrap_or_else(PoisonError::into_inner).reload(&load))
    }

    /// Reloads the settings by `load`. Returns whether they are in force.
    fn reload(&mut self, load: impl Fn() -> Result<ResolvedServers, ConfigError>) -> bool {
        self.notifier.reloading();
        let reloaded = load().map_err(Into::into).and_then(|resolved| self.apply(resolved));
        let (metrics, is_done) =
            (self.servers.iter().map(|server| server.control.metrics()), reloaded.is_ok());
        match reloaded {
            Ok(log) => {
                metrics.for_each(|metrics| metrics.reloads.increment());
                self.log = log;
                log.event(Level::Info, "reloaded", &[]);
            }
            Err(error) => {
                metrics.for_each(|metrics| metrics.reloads_failed.increment());
                self.log.event(Level::Warn, "reload-failed", &[("reason", &error)]);
            }
        }
        self.notifier.ready();
        is_done
    }

    /// If it fails, the old settings stay in force, for all servers.
    fn apply(&self, new: ResolvedServers) -> Result<Log, Box<dyn std::error::Error>> {
        let names = |servers: &ResolvedServers| {
            let names =
                servers.servers.iter().map(|server| server.name.as_ref().map_or("", ServerName::as_str));
            names.collect::<Vec<_>>().join(", ")
        };
        let (fixed, changed) = (names(&self.started_with), names(&new));
        if fixed != changed {
            let servers = if fixed.is_empty() { "one without a name" } else { &fixed };
            return Err(format!("the servers stay {servers} until the proxy is restarted").into());
        }
        if new.admin != self.started_with.admin {
            ignored(self.log, "admin");
        }
        let log = new.log;
        let mut settings = Vec::new();
        for (old, new) in self.started_with.servers.iter().zip(new.servers) {
            let log = new.log(log);
            settings.push((self.settings(old, new.resolved.settings)?, log));
        }
        let mut prepared = Vec::new();
        for (server, (settings, log)) in self.servers.iter().zip(&settings) {
            prepared.push(server.control.prepare(settings, *log)?);
        }
        for apply in prepared {
            apply()?;
        }
        for (server, (settings, log)) in self.servers.iter().zip(&settings) {
            server.console.link().set_facts(Facts::of(settings, *log));
            self.set_socket_mode(&settings.listen, &settings.allowed_uids);
        }
        Ok(log)
    }

    /// The new settings of a server, with the old ones in place of those that cannot change.
    fn settings(&self, old: &ResolvedServer, settings: Settings) -> Result<Settings, String> {
        let fixed = &old.resolved.settings;
        let server = &fixed.server.address;
        if settings.server.address != *server {
            return Err(format!("the server stays {server} until the proxy is restarted"));
        }
        for (what, same) in [
            ("listen", settings.listen == fixed.listen),
            ("mode", settings.pooling == fixed.pooling),
            ("reset", settings.reset == fixed.reset),
            ("threads", settings.threads == fixed.threads),
        ] {
            if !same {
                ignored(old.log(self.log), what);
            }
        }
        let (pooling, reset) = (fixed.pooling, fixed.reset);
        Ok(Settings { listen: fixed.listen.clone(), pooling, reset, ..settings })
    }

    /// The mode of the socket files follows the allowed UIDs.
    fn set_socket_mode(&self, listen: &[ListenAddress], uids: &AllowedUids) {
        for address in listen {
            if let ListenAddress::Unix(path) = address
                && let Err(error) = set_permissions(path, Permissions::from_mode(uids.mode()))
            {
                let path = path.display();
                let fields: [(&str, &dyn std::fmt::Display); 2] = [("socket", &path), ("reason", &error)];
                self.log.event(Level::Warn, "socket-unchanged", &fields);
            }
        }
    }
}

fn ignored(log: Log, setting: &str) {
    let reason = "it changes only with a restart";
    log.event(Level::Warn, "reload-ignored", &[("setting", &setting), ("reason", &reason)]);
}
