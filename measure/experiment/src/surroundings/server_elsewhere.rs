//! The CPU of a server that runs on another machine.

use ciphertoll_hosts::{HostError, ServerMeter};
use ciphertoll_model::VoidReason;

use crate::trial::TrialError;

/// The reader of a server's CPU on its own machine, with the server's port.
pub(crate) struct ServerElsewhere<'a> {
    pub(crate) meter: &'a mut ServerMeter,
    pub(crate) port: u16,
}

impl ServerElsewhere<'_> {
    /// Asks for a reading at an edge of the window. If that fails, there is none at its end.
    pub(crate) fn ask(&mut self) {
        let _ = self.meter.ask(self.port);
    }

    /// The server's CPU time in the window of a trial that is complete.
    pub(crate) fn cpu_ns(self, window_ns: u64) -> Result<u64, TrialError> {
        Ok(self.meter.used(window_ns).map_err(|error| lost(&error))?.cpu_ns)
    }
}

pub(crate) fn void(host: String, reason: VoidReason) -> TrialError {
    TrialError::Void(VoidReason::OnHost { host, reason: Box::new(reason) })
}

fn lost(error: &HostError) -> TrialError {
    match error {
        HostError::Unreachable { host, reason } => {
            void(host.clone(), VoidReason::HostLost { message: reason.clone() })
        }
        other => TrialError::Void(VoidReason::ServerDied { message: other.to_string() }),
    }
}
