//! Signals, and the threads that act on them.

use ciphertoll_net::Channel;

use super::mailbox::MAILBOX;
use crate::on_demand::OnDemandThread;

/// Number of the signals among what a worker watches.
pub(super) const SIGNALS: usize = 0;
/// Number of the first signal task, after the mailbox.
pub(super) const FIRST_SIGNAL_TASK: usize = MAILBOX + 1;
/// What another thread does on a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTask {
    /// SIGHUP
    Reload,
    /// SIGUSR2
    Upgrade,
}

impl SignalTask {
    pub(super) const ALL: [Self; 2] = [Self::Reload, Self::Upgrade];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
        }
    }
}

/// The thread of a signal task, and a stream that receives a byte for each signal.
pub(super) struct TaskThread {
    pub(super) signals: Channel,
    pub(super) thread: OnDemandThread<()>,
}
