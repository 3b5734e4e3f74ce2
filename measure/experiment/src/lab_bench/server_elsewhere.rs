//! The CPU of a server that runs on another machine.

use ciphertoll_hosts::{HostError, ServerMeter};
use ciphertoll_model::VoidReason;

use crate::bench::{Measured, ServerUse, TrialError};

/// The reader of a server's CPU on its own machine, with the server's port.
pub(super) struct ServerElsewhere<'a> {
    pub(super) meter: &'a mut ServerMeter,
    pub(super) port: u16,
}

impl ServerElsewhere<'_> {
    /// Asks for a reading at an edge of the window. If that fails, there is none at its end.
    pub(super) fn ask(&mut self) {
        let _ = self.meter.ask(self.port);
    }

    /// Adds the server's use to a trial that is complete.
    pub(super) fn add_to(self, measured: &mut Measured) -> Result<(), TrialError> {
        let used = self.meter.used(measured.load.window_ns);
        let cpu_ns = used.map_err(|error| lost(&error))?.cpu_ns;
        measured.server = Some(ServerUse { cpu_ns, ..ServerUse::default() });
        Ok(())
    }
}

pub(super) fn void(host: String, reason: VoidReason) -> TrialError {
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
