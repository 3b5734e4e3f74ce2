//! Notices that files were replaced: certificates of SPIFFE, cert-manager, Kubernetes secrets.

use std::fs::{Metadata, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::on_demand::OnDemandThread;
use crate::settings::Settings;

/// A file that has just changed may still be being written, so it is checked again after this time.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// What distinguishes two files of the same name; links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    /// Also by a change of permissions.
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// The state of all files of some settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot(Vec<(PathBuf, Option<Stamp>)>);

impl Snapshot {
    pub(crate) fn of(settings: &Settings) -> Self {
        let mut files: Vec<PathBuf> =
            settings.server.files().into_iter().map(|(_, _, path)| path.to_owned()).collect();
        if let Some(tls) = &settings.tls {
            files.extend([tls.identity.certificate_file.clone(), tls.identity.key_file.clone()]);
            files.extend(tls.clients.clone());
        }
        let stamp = |path: PathBuf| {
            let stamp = metadata(&path).ok().as_ref().map(Stamp::of);
            (path, stamp)
        };
        Self(files.into_iter().map(stamp).collect())
    }
}

/// What must be done after a look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Unchanged,
    /// They have changed, and may change further.
    Settling,
    /// They have changed since they were read, and not since the last look.
    Changed,
}

/// Remembers the state in which the files were read. Clones share the timer.
#[derive(Clone, Debug, Default)]
pub struct FileWatch {
    /// In milliseconds; 0: never.
    interval_ms: Arc<AtomicU64>,
    /// Looks again sooner.
    is_settling: Arc<AtomicBool>,
    read: Snapshot,
    last: Snapshot,
    failed: Option<Snapshot>,
}

impl FileWatch {
    /// To be called before the files are read.
    pub fn of(settings: &Settings) -> Self {
        let mut watch = Self::default();
        watch.restart(settings, Snapshot::of(settings));
        watch
    }

    /// Other settings are in force, whose files were read after `read`.
    pub(crate) fn restart(&mut self, settings: &Settings, read: Snapshot) {
        let interval = u64::try_from(settings.watch_files.as_millis()).unwrap_or(u64::MAX);
        self.interval_ms.store(interval, Ordering::Relaxed);
        (self.last, self.read, self.failed) = (read.clone(), read, None);
    }

    pub(crate) fn look(&mut self, now: Snapshot) -> Look {
        let look = match () {
            () if now == self.read => Look::Unchanged,
            () if now != self.last => Look::Settling,
            () => Look::Changed,
        };
        self.is_settling.store(look == Look::Settling, Ordering::Relaxed);
        self.last = now;
        look
    }

    /// The files of the last look are in use.
    pub(crate) fn applied(&mut self) {
        (self.read, self.failed) = (self.last.clone(), None);
    }

    /// The files of the last look cannot be used. Returns whether that is new.
    pub(crate) fn failed(&mut self) -> bool {
        let is_new = self.failed.as_ref() != Some(&self.last);
        self.failed = Some(self.last.clone());
        is_new
    }

    /// A function that is called a few times per second. It calls `act` on another thread, when it is time for a look.
    pub fn ticker(&self, mut act: impl FnMut() + Send + 'static) -> impl FnMut(Instant) + Send + 'static {
        let (interval_ms, is_settling) = (Arc::clone(&self.interval_ms), Arc::clone(&self.is_settling));
        let thread = OnDemandThread::new("watch-files", move |()| act());
        let mut last = Instant::now();
        move |now| {
            let interval = Duration::from_millis(interval_ms.load(Ordering::Relaxed));
            if interval.is_zero() {
                return;
            }
            let settling = is_settling.load(Ordering::Relaxed);
            let pause = if settling { interval.min(SETTLE_TIME) } else { interval };
            if now.duration_since(last) >= pause {
                last = now;
                // If no thread can be started, the next check serves the same purpose.
                let _ = thread.add_unless_waiting(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
