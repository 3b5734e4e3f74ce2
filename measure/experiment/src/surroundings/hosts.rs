//! Load hosts and the host of a server at a URL: connected before the first block, and again whenever one was lost.

use std::path::Path;

use ciphertoll_hosts::{
    Bootstrap, Fleet, HostError, HostFacts, ServerMeter, TransportContext, Waiting, transport,
};
use ciphertoll_lab::Lab;
use ciphertoll_model::{ConnectedHost, Endpoint, Event, ExitCode, HostRole, Plan};
use ciphertoll_record::{Effect, ProcessIdentity};

use crate::interrupt::Interrupt;
use crate::surroundings::server_elsewhere::ServerElsewhere;
use crate::trial::{Emit, TestbedError, TrialError};

/// The hosts of a run; none if everything runs on this machine.
#[derive(Default)]
pub(crate) struct Hosts {
    load: Option<Fleet>,
    server: Option<ServerMeter>,
    /// The port of a server at a URL, by whose process the source of its CPU times is named.
    server_port: Option<u16>,
}

impl Hosts {
    /// Creates what must be created, and connects all hosts of the plan. A run that ends meanwhile because of a signal has
    /// none, and is ended by the scheduler.
    pub(crate) fn connected(
        plan: &Plan,
        lab: &Lab,
        program: &Path,
        servers: &[Endpoint],
        interrupt: &Interrupt,
        emit: &mut Emit<'_>,
    ) -> Result<Self, TestbedError> {
        let mut progress = |what: &str| emit(Event::Preparing { what: what.to_owned() });
        let is_interrupted = || interrupt.ending().is_some();
        let mut waiting = Waiting { progress: &mut progress, is_interrupted: &is_interrupted };
        let connected = Self::of(plan, lab, program, servers, &mut waiting)
            .and_then(|mut hosts| hosts.connect(lab, interrupt, emit).map(|()| hosts));
        match connected {
            Ok(hosts) => Ok(hosts),
            Err(TrialError::Interrupted) => Ok(Self::default()),
            Err(TrialError::Fatal(error)) => Err(error),
            Err(TrialError::Void(reason)) => {
                Err(TestbedError { message: reason.to_string(), exit_code: ExitCode::HostResource })
            }
        }
    }

    /// The hosts of the plan, not connected yet. `servers` are at URLs.
    fn of(
        plan: &Plan,
        lab: &Lab,
        program: &Path,
        servers: &[Endpoint],
        waiting: &mut Waiting<'_>,
    ) -> Result<Self, TrialError> {
        if plan.load_hosts.is_empty() && plan.server_host.is_none() {
            return Ok(Self::default());
        }
        let bootstrap = Bootstrap::of(program).map_err(fatal)?;
        let context = TransportContext { program, bootstrap: &bootstrap, ledger: lab.scratch().ledger() };
        let load = match plan.load_hosts.as_slice() {
            [] => None,
            hosts => {
                let transports = transport::transports(hosts, &context, waiting).map_err(fatal)?;
                Some(Fleet::new(transports, bootstrap.clone()).map_err(fatal)?)
            }
        };
        let server = plan
            .server_host
            .as_ref()
            .map(|host| ServerMeter::new(transport::transport_of_server(host, &context), bootstrap.clone()));
        let server_port = servers.iter().find_map(port_of);
        Ok(Self { load, server: server.transpose().map_err(fatal)?, server_port })
    }

    /// Whether clients run on load hosts.
    pub(crate) fn have_clients(&self) -> bool {
        self.load.is_some()
    }

    /// The reader of the CPU of the server at `endpoint`.
    pub(crate) fn server_elsewhere(&mut self, endpoint: &Endpoint) -> Option<ServerElsewhere<'_>> {
        Some(ServerElsewhere { meter: self.server.as_mut()?, port: port_of(endpoint)? })
    }

    /// Both at once.
    pub(crate) fn parts(&mut self, endpoint: &Endpoint) -> (Option<&mut Fleet>, Option<ServerElsewhere<'_>>) {
        let server = self.server.as_mut().zip(port_of(endpoint));
        (self.load.as_mut(), server.map(|(meter, port)| ServerElsewhere { meter, port }))
    }

    /// Machines of hosts on which the server may run.
    pub(crate) fn server_boot_id(&self) -> Option<String> {
        Some(self.server.as_ref()?.facts()?.hello.boot_id.clone())
    }

    /// Connects every host that is not connected, and tells which.
    pub(crate) fn connect(
        &mut self,
        lab: &Lab,
        interrupt: &Interrupt,
        emit: &mut Emit<'_>,
    ) -> Result<(), TrialError> {
        let is_interrupted = || interrupt.ending().is_some();
        if let Some(fleet) = &mut self.load {
            let connected = fleet.connect(&is_interrupted).map_err(fatal)?;
            let connected = connected.ok_or(TrialError::Interrupted)?;
            note(lab, fleet.pids())?;
            for facts in &connected {
                let accounting = ciphertoll_host::accounting::CPU_ACCOUNTING.to_owned();
                emit(Event::HostConnected { host: connected_host(facts, HostRole::Load, accounting) });
            }
        }
        if let Some(meter) = &mut self.server {
            let connected = meter.connect(&is_interrupted).map_err(fatal)?;
            let connected = connected.ok_or(TrialError::Interrupted)?;
            note(lab, meter.pids())?;
            for facts in &connected {
                let accounting = match self.server_port {
                    Some(port) => meter.source(port).map_err(fatal)?,
                    None => String::new(),
                };
                emit(Event::HostConnected { host: connected_host(facts, HostRole::Server, accounting) });
            }
        }
        Ok(())
    }
}

fn port_of(endpoint: &Endpoint) -> Option<u16> {
    match endpoint {
        Endpoint::Host { port, .. } => Some(*port),
        Endpoint::Tcp(address) => Some(address.port()),
        Endpoint::Unix(_) => None,
    }
}

fn connected_host(facts: &HostFacts, role: HostRole, cpu_accounting: String) -> ConnectedHost {
    let HostFacts { name, node, hello, .. } = facts.clone();
    ConnectedHost {
        name,
        node,
        role,
        tool_version: hello.tool_version,
        architecture: hello.architecture,
        kernel: hello.kernel,
        cpu_model: hello.cpu_model,
        processors: hello.processors,
        tls_library: hello.tls_library,
        cpu_accounting,
    }
}

/// The connections end with this process, because their stdin does. The ledger is for one that does not.
fn note<'a>(lab: &Lab, pids: impl Iterator<Item = (&'a str, u32)>) -> Result<(), TrialError> {
    for (host, pid) in pids {
        let Ok(identity) = ProcessIdentity::of(pid.cast_signed()) else { continue };
        let (what, program) = (format!("connection to {host}"), Path::new(host).to_owned());
        let noted = lab.scratch().ledger().note(&Effect::Process { identity, what, program });
        noted.map_err(|error| crate::failure::fatal(error.into()))?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
pub(crate) fn unusable(error: HostError) -> TestbedError {
    TestbedError { message: error.to_string(), exit_code: error.exit_code() }
}

pub(crate) fn fatal(error: HostError) -> TrialError {
    match error {
        HostError::Interrupted => TrialError::Interrupted,
        error => TrialError::Fatal(unusable(error)),
    }
}
