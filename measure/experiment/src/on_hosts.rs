//! One trial on load hosts as the coordinator sees it.

use ciphertoll_host::accounting::Sample;
use ciphertoll_hosts::{TrialFailure, TrialWatch};
use ciphertoll_model::{ErrorKind, FailureOrigin, TrialSpec, VoidReason};

use crate::failure::internal;
use crate::interrupt::Interrupt;
use crate::layers::load_hosts::HostsMeasured;
use crate::layers::server::ServerUse;
use crate::measured::{MachineUse, Measured};
use crate::observe::{Clocks, Unobserved, WindowUse, close_window, measured, open_window};
use crate::surroundings::hosts::{Hosts, fatal};
use crate::surroundings::server_elsewhere::{ServerElsewhere, void};
use crate::trial::{TestbedError, TrialError};

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
pub(crate) fn observe_on_hosts(
    hosts: &mut Hosts,
    clocks: &Clocks,
    spec: &TrialSpec,
    interrupt: &Interrupt,
) -> Result<Measured, Unobserved> {
    let server_boot_id = hosts.server_boot_id();
    let (fleet, meter) = hosts.parts(&spec.endpoint);
    let Some(fleet) = fleet else {
        return Err(TrialError::Fatal(internal("no load host".to_owned())).into());
    };
    let server = meter.filter(|_| !clocks.have_server());
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
        let cpu_ns = server.cpu_ns(measured.load.window_ns)?;
        measured.server = Some(ServerUse { cpu_ns, ..ServerUse::default() });
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
            TrialError::Fatal(TestbedError {
                message: format!("host {host}: {reason}"),
                exit_code: ciphertoll_model::ExitCode::HostResource,
            })
        }
        TrialFailure::Load { host, reason, .. } => void(host, VoidReason::LoadFailed { message: reason }),
    })
}
