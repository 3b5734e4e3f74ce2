//! What is read again on separate threads while the proxy runs: settings and passwords on SIGHUP,
//! certificates that were replaced on disk.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{ConfigError, ResolvedServer, ResolvedServers, ServerName};
use crate::console_facts::Facts;
use crate::credentials::Credentials;
use crate::log::{Level, Log};
use crate::notify::Notifier;
use crate::running::RunningServer;
use crate::settings::{AllowedUids, ListenAddress, Settings, UnknownUsers};
use crate::watch::{FileWatch, Look, Snapshot};

/// Clones share the state. Reloads run one after the other, whatever requests them.
#[derive(Clone)]
pub struct Reloader(Arc<Mutex<Reloads>>);

/// A server, and what of its settings is read again.
pub struct ReloadedServer {
    pub running: RunningServer,
    pub credentials: Credentials,
    pub files: FileWatch,
}

struct Reloads {
    /// In the order of the settings.
    servers: Vec<ReloadedServer>,
    notifier: Notifier,
    /// Each reload replaces it by a log with the new settings.
    log: Log,
    /// The settings of the start: some of them cannot change while a proxy runs.
    started_with: Arc<ResolvedServers>,
    /// The settings of the last reload, if there was one.
    reloaded: Option<Vec<Settings>>,
}

impl Reloader {
    /// `servers` are in the order of the settings.
    pub fn new(
        servers: Vec<ReloadedServer>,
        notifier: Notifier,
        log: Log,
        started_with: Arc<ResolvedServers>,
    ) -> Self {
        Self(Arc::new(Mutex::new(Reloads { servers, notifier, log, started_with, reloaded: None })))
    }

    /// Reloads the settings by `load`. Returns whether they are in force.
    pub fn reload(&self, load: impl Fn() -> Result<ResolvedServers, ConfigError>) -> bool {
        self.lock().reload(load)
    }

    /// Reads certificates, keys and authorities of a server again if they were replaced on disk. While they cannot be used,
    /// the earlier ones stay in force.
    pub fn look_at_files(&self, server: usize) {
        self.lock().look_at_files(server);
    }

    /// After a panic the settings are those before or after the reload.
    fn lock(&self) -> MutexGuard<'_, Reloads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reloads {
    fn reload(&mut self, load: impl Fn() -> Result<ResolvedServers, ConfigError>) -> bool {
        self.notifier.reloading();
        let reloaded = load().map_err(Into::into).and_then(|resolved| self.apply(resolved));
        let is_done = reloaded.is_ok();
        let metrics = self.servers.iter().map(|server| server.running.control.metrics());
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
    fn apply(&mut self, new: ResolvedServers) -> Result<Log, Box<dyn std::error::Error>> {
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
        for ((server, old), new) in self.servers.iter().zip(&self.started_with.servers).zip(new.servers) {
            let log = new.log(log);
            settings.push((self.settings(server, old, new.resolved.settings)?, log));
        }
        let files: Vec<_> = settings.iter().map(|(settings, _)| Snapshot::of(settings)).collect();
        let mut prepared = Vec::new();
        for (server, (settings, log)) in self.servers.iter().zip(&settings) {
            prepared.push(server.running.control.prepare(settings, *log)?);
        }
        // If a server's workers have ended because the proxy stops, the other servers still get their
        // settings.
        let applied: Vec<_> = prepared.into_iter().map(|apply| apply()).collect();
        for ((server, (settings, log)), files) in self.servers.iter_mut().zip(&settings).zip(files) {
            server.running.console.link().set_facts(Facts::of(settings, *log));
            server.credentials.replace(settings.password_sources(), *log);
            server.files.restart(settings, files);
            set_socket_mode(&settings.listen, &settings.allowed_uids, *log);
        }
        self.reloaded = Some(settings.into_iter().map(|(settings, _)| settings).collect());
        applied.into_iter().collect::<Result<(), _>>()?;
        Ok(log)
    }

    /// The new settings of a server, with the old ones in place of those that cannot change.
    fn settings(
        &self,
        server: &ReloadedServer,
        old: &ResolvedServer,
        settings: Settings,
    ) -> Result<Settings, String> {
        let fixed = &old.resolved.settings;
        let (server_url, newer) = (&fixed.server, &settings.server);
        let is_same = newer.hosts().eq(server_url.hosts())
            && (newer.target, newer.balance) == (server_url.target, server_url.balance);
        if !is_same {
            return Err(format!("the server stays {} until the proxy is restarted", server_url.label()));
        }
        // Connections are watched from the start, or not at all.
        let same_watch =
            fixed.server.is_watched() || settings.limits.dns.is_some() == fixed.limits.dns.is_some();
        for (what, same) in [
            ("dns-time", same_watch),
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
        let mut settings = Settings { listen: fixed.listen.clone(), pooling, reset, ..settings };
        if !same_watch {
            settings.limits.dns = fixed.limits.dns;
        }
        for user in &mut settings.users {
            // The password that an unchanged command has printed stays in use.
            let known = user.command.as_ref().and_then(|cell| server.credentials.known(cell));
            user.command = known.or_else(|| user.command.take());
        }
        if let UnknownUsers::Command(passwords) = &mut settings.access.unknown_users
            && let Some(known) = server.credentials.known_of_any_user(passwords)
        {
            *passwords = known;
        }
        Ok(settings)
    }

    fn look_at_files(&mut self, server: usize) {
        let started = self.started_with.servers.get(server);
        let reloaded = self.reloaded.as_ref().and_then(|settings| settings.get(server));
        let settings = reloaded.or(started.map(|started| &started.resolved.settings));
        let (Some(started), Some(settings), Some(server)) = (started, settings, self.servers.get_mut(server))
        else {
            return;
        };
        if settings.watch_files.is_zero() || server.files.look(Snapshot::of(settings)) != Look::Changed {
            return;
        }
        let (log, control) = (started.log(self.log), &server.running.control);
        let prepared = control.prepare(settings, log);
        if server.files.look(Snapshot::of(settings)) != Look::Changed {
            // They have changed while they were read.
            return;
        }
        let applied = prepared.map_err(Box::<dyn std::error::Error>::from).and_then(|apply| Ok(apply()?));
        let metrics = control.metrics();
        match applied {
            Ok(()) => {
                server.files.applied();
                metrics.files_applied.increment();
                log.event(Level::Info, "certificates-reloaded", &[]);
            }
            Err(error) => {
                if server.files.failed() {
                    metrics.files_failed.increment();
                    log.event(Level::Warn, "certificates-not-reloaded", &[("reason", &error)]);
                }
            }
        }
    }
}

/// The names of servers, if there are several.
fn names(servers: &ResolvedServers) -> String {
    let names = servers.servers.iter().map(|server| server.name.as_ref().map_or("", ServerName::as_str));
    names.collect::<Vec<_>>().join(", ")
}

fn ignored(log: Log, setting: &str) {
    let reason = "it changes only with a restart";
    log.event(Level::Warn, "reload-ignored", &[("setting", &setting), ("reason", &reason)]);
}

/// The mode of the socket files follows the allowed UIDs.
fn set_socket_mode(listen: &[ListenAddress], uids: &AllowedUids, log: Log) {
    for address in listen {
        if let ListenAddress::Unix(path) = address
            && let Err(error) = set_permissions(path, Permissions::from_mode(uids.mode()))
        {
            let path = path.display();
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("socket", &path), ("reason", &error)];
            log.event(Level::Warn, "socket-unchanged", &fields);
        }
    }
}
