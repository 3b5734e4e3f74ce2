//! One trial on load hosts as the coordinator sees it, and the CPU of a server that runs elsewhere.

use ciphertoll_hosts::{Error, Fleet, ServerMeter, TrialFailure, TrialWatch};
use ciphertoll_lab::Sample;
use ciphertoll_model::{ErrorKind, FailureOrigin, TrialSpec, VoidReason};

use super::hosts::fatal;
use super::observe::{Clocks, Unobserved, WindowUse, close_window, measured, open_window};
use crate::bench::{BenchError, HostsMeasured, MachineUse, Measured, ServerUse, TrialError};
use crate::interrupt::Interrupt;

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

/// What a trial on load hosts needs.
pub(super) struct OnHosts<'a> {
    pub(super) fleet: &'a mut Fleet,
    /// Those of a private server, which may share this machine with the hosts.
    pub(super) clocks: &'a Clocks,
    pub(super) server: Option<ServerElsewhere<'a>>,
    pub(super) server_boot_id: Option<String>,
    pub(super) interrupt: &'a Interrupt,
}

struct Watch<'a> {
    clocks: &'a Clocks,
    server: Option<ServerElsewhere<'a>>,
    interrupt: &'a Interrupt,
    opened: Option<Sample>,
    window: Option<WindowUse>,
}

impl TrialWatch for Watch<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupt.ending().is_some()
    }

    fn window_opens(&mut self) {
        self.server.iter_mut().for_each(ServerElsewhere::ask);
        self.opened = open_window(self.clocks);
    }

    fn window_closes(&mut self) {
        self.server.iter_mut().for_each(ServerElsewhere::ask);
        let opened = self.opened.as_ref();
        self.window = opened.and_then(|opened| close_window(self.clocks, opened, None));
    }
}

/// Runs the trial on the hosts and reads the meters of the server at the start and end of the window.
pub(super) fn observe_on_hosts(on: OnHosts<'_>, spec: &TrialSpec) -> Result<Measured, Unobserved> {
    let OnHosts { fleet, clocks, server, server_boot_id, interrupt } = on;
    let mut watch = Watch { clocks, server, interrupt, opened: None, window: None };
    let outcome = fleet.run(spec, &mut watch).map_err(unobserved)?;
    let server_is_elsewhere = !clocks.have_server();
    let mut measured = measured(outcome.total, watch.window.as_ref())?;
    if server_is_elsewhere {
        // Neither clients nor server used this machine.
        measured.machine = MachineUse::default();
    }
    let own = ciphertoll_hosts::boot_id();
    measured.hosts = Some(HostsMeasured {
        overlap: outcome.overlap,
        hosts: outcome.hosts,
        shared_boot_ids: [Some(own), server_boot_id].into_iter().flatten().collect(),
    });
    measured.server_is_elsewhere = server_is_elsewhere;
    if let Some(server) = watch.server {
        server.add_to(&mut measured)?;
    }
    Ok(measured)
}

/// A lost host may be reached again before the next trial. A host that cannot run a load at all ends the run.
fn unobserved(failure: TrialFailure) -> Unobserved {
    Unobserved::Failed(match failure {
        TrialFailure::Interrupted => TrialError::Interrupted,
        TrialFailure::Fatal(error) => fatal(error),
        TrialFailure::Lost { host, reason } => void(host, VoidReason::HostLost { message: reason }),
        TrialFailure::Load { host, reason, kind: ErrorKind::TooManyConnections, .. } => {
            return Unobserved::NoRoom { message: format!("host {host}: {reason}") };
        }
        TrialFailure::Load { host, reason, fault: FailureOrigin::Host, .. } => {
            TrialError::Fatal(BenchError {
                message: format!("host {host}: {reason}"),
                exit_code: ciphertoll_model::ExitCode::HostResource,
            })
        }
        TrialFailure::Load { host, reason, .. } => void(host, VoidReason::LoadFailed { message: reason }),
    })
}

fn void(host: String, reason: VoidReason) -> TrialError {
    TrialError::Void(VoidReason::OnHost { host, reason: Box::new(reason) })
}

fn lost(error: &Error) -> TrialError {
    match error {
        Error::Unreachable { host, reason } => {
            void(host.clone(), VoidReason::HostLost { message: reason.clone() })
        }
        other => TrialError::Void(VoidReason::ServerDied { message: other.to_string() }),
    }
}
