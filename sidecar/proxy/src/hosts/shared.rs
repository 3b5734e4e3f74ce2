//! The hosts as all workers see them.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::machine::Hosts;
use super::target::{LoadBalance, TargetSession};

/// The lock is held at connects, at questions for the role and at doubts. A connection that changes its client reads its
/// host's epoch without it.
pub(crate) struct SharedHosts {
    /// Host and port, without brackets.
    labels: Box<[String]>,
    target: TargetSession,
    epochs: Box<[AtomicU64]>,
    hosts: Mutex<Hosts>,
    /// Logins outside of the pool that need a host.
    look_ups: AtomicUsize,
}

/// A login outside of the pool, until it is dropped.
pub(crate) struct PendingLookUp<'a>(&'a SharedHosts);

impl Drop for PendingLookUp<'_> {
    fn drop(&mut self) {
        self.0.look_ups.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SharedHosts {
    pub(crate) fn new(labels: Vec<String>, target: TargetSession, balance: LoadBalance) -> Self {
        let hosts = Hosts::new(labels.len(), target, balance);
        let epochs = hosts.epochs().map(AtomicU64::new).collect();
        Self {
            labels: labels.into(),
            target,
            epochs,
            hosts: Mutex::new(hosts),
            look_ups: AtomicUsize::new(0),
        }
    }

    pub(crate) fn target(&self) -> TargetSession {
        self.target
    }

    /// Whether there is only one host and no role is needed.
    pub(crate) fn is_plain(&self) -> bool {
        self.labels.len() == 1 && self.target == TargetSession::Any
    }

    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }

    pub(crate) fn label(&self, host: usize) -> &str {
        self.labels.get(host).map_or("", String::as_str)
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Hosts) -> R) -> R {
        // A worker that panics stops all of them.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut hosts);
        for (shared, epoch) in self.epochs.iter().zip(hosts.epochs()) {
            shared.store(epoch, Ordering::Release);
        }
        result
    }

    /// A host is searched for as long as this exists, as for a client of the pool.
    pub(crate) fn look_up(&self) -> PendingLookUp<'_> {
        self.look_ups.fetch_add(1, Ordering::AcqRel);
        PendingLookUp(self)
    }

    pub(crate) fn has_look_ups(&self) -> bool {
        self.look_ups.load(Ordering::Acquire) > 0
    }

    pub(crate) fn is_searching(&self) -> bool {
        self.with(|hosts| hosts.is_searching())
    }

    /// Connections of this host with another epoch must be asked for their role.
    pub(crate) fn epoch(&self, host: usize) -> u64 {
        self.epochs.get(host).map_or(0, |epoch| epoch.load(Ordering::Acquire))
    }

    /// Why no host can be used, in one line.
    pub(crate) fn describe(&self) -> String {
        let mut text = match self.target {
            TargetSession::Any => "no host answers".to_owned(),
            target => format!("no host is confirmed as {}", target.label()),
        };
        let summaries: Vec<_> = self.with(|hosts| hosts.summaries().collect());
        for (at, (label, summary)) in self.labels.iter().zip(summaries).enumerate() {
            let reason = summary.reason.unwrap_or_else(|| format!("{}, {}", summary.role, summary.standing));
            let separator = if at == 0 { ": " } else { "; " };
            let _ = write!(text, "{separator}{label} ({reason})");
        }
        text
    }
}
