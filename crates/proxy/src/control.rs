//! SIGHUP: settings, passwords and certificates are read again, on a thread of its own.

use std::fs::{Permissions, set_permissions};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread;

use crate::config::{ConfigError, Resolved};
use crate::dialect::{Dialect, Pooling};
use crate::engine::{NoAnswer, Orders, Prepared};
use crate::log::{Level, Log};
use crate::notify::Notifier;
use crate::settings::{Listen, Settings, StartError};
use crate::url::Place;

/// Has a running proxy go on with other settings.
pub struct Reloader<D: Dialect> {
    /// The way to the proxy.
    pub orders: Orders<D>,
    /// Who wants to know.
    pub notifier: Notifier,
    /// Where events go, until settings say otherwise.
    pub log: Log,
    /// What cannot change, as it was at the start.
    pub fixed: Fixed,
}

/// What cannot change while a proxy runs.
pub struct Fixed {
    listen: Vec<Listen>,
    admin: Option<Listen>,
    pooling: Pooling,
    threads: NonZeroUsize,
    server: Place,
}

/// Settings that are not gone on with: the old ones hold.
#[derive(Debug, thiserror::Error)]
enum NotReloaded {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("the server is {0} until the proxy is started anew")]
    OtherServer(Place),
}

impl Fixed {
    /// What of these settings cannot change.
    pub fn of(resolved: &Resolved) -> Self {
        let Resolved { settings, admin, .. } = resolved;
        Self {
            listen: settings.listen.clone(),
            admin: admin.clone(),
            pooling: settings.pooling,
            threads: settings.threads,
            server: settings.server.place.clone(),
        }
    }
}

impl<D: Dialect> Reloader<D> {
    /// Calls `load` whenever something is written to the other end of `signals`.
    pub fn watch(
        mut self,
        mut signals: UnixStream,
        load: impl Fn() -> Result<Resolved, ConfigError> + Send + 'static,
    ) -> io::Result<()> {
        let watch = move || {
            // Several that come while settings are read are one.
            let mut bytes = [0; 64];
            loop {
                match signals.read(&mut bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    Ok(_) => {
                        self.notifier.reloading();
                        self.reload(&load);
                        self.notifier.ready();
                    }
                }
            }
        };
        thread::Builder::new().name("reload".to_owned()).spawn(watch).map(|_| ())
    }

    fn reload(&mut self, load: &impl Fn() -> Result<Resolved, ConfigError>) {
        let reloaded = load().map_err(NotReloaded::from).and_then(|resolved| self.take_over(resolved));
        let metrics = self.orders.metrics();
        match reloaded {
            Ok(log) => {
                metrics.reloads.up();
                self.log = log;
                log.event(Level::Info, "reloaded", &[]);
            }
            Err(error) => {
                metrics.reloads_failed.up();
                self.log.event(Level::Warn, "reload-failed", &[("reason", &error)]);
            }
        }
    }

    fn take_over(&self, resolved: Resolved) -> Result<Log, NotReloaded> {
        let Resolved { settings, admin, log, .. } = resolved;
        if settings.server.place != self.fixed.server {
            return Err(NotReloaded::OtherServer(self.fixed.server.clone()));
        }
        for (what, same) in [
            ("listen", settings.listen == self.fixed.listen),
            ("admin", admin == self.fixed.admin),
            ("mode", settings.pooling == self.fixed.pooling),
            ("threads", settings.threads == self.fixed.threads),
        ] {
            if !same {
                let reason = "it changes only when the proxy is started anew";
                self.log.event(Level::Warn, "reload-ignored", &[("setting", &what), ("reason", &reason)]);
            }
        }
        let Fixed { listen, pooling, .. } = &self.fixed;
        let settings = Settings { listen: listen.clone(), pooling: *pooling, ..settings };
        let prepared = Prepared::new(&settings, log)?;
        self.orders.renew(&prepared)?;
        self.open_to(settings.allowed_uids.mode());
        Ok(log)
    }

    /// The socket's file lets those in whom the kernel's word is asked for.
    fn open_to(&self, mode: u32) {
        for place in &self.fixed.listen {
            if let Listen::Unix(path) = place
                && let Err(error) = set_permissions(path, Permissions::from_mode(mode))
            {
                let path = path.display();
                let fields: [(&str, &dyn std::fmt::Display); 2] = [("socket", &path), ("reason", &error)];
                self.log.event(Level::Warn, "socket-unchanged", &fields);
            }
        }
    }
}
