//! Clients on load hosts, and the CPU of a server elsewhere. Each host is judged for itself, and a reason names it.

use ciphertoll_hosts::{HostResult, WindowOverlap};
use ciphertoll_lab::Remote;
use ciphertoll_model::{Cell, Endpoint, HostUse, HostsUse, Plan, StealLimit, TrialSpec, VoidReason};

use crate::checks::{ScheduleKept, check_errors, check_ports, check_schedule, check_steal, ratio};
use crate::layer::{Layer, Route, Uses};
use crate::layers::server::ServerUse;
use crate::surroundings::hosts::Hosts;
use crate::trial::{Emit, TestbedError, TrialError, TrialRequest};

/// The windows of all hosts must have this share in common.
const MIN_OVERLAP: f64 = 0.98;
/// Other processes may use this share of the processors of a load host's machine. Where clients share a machine with
/// an operating system and its services, they never use none.
const MAX_BUSY_ELSEWHERE: f64 = 0.10;
/// Machines count their busy time in ticks of 10 ms: less than this is the clock's resolution.
const MIN_BUSY_ELSEWHERE_NS: u64 = 50_000_000;

/// The measurements of each load host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostsMeasured {
    pub overlap: WindowOverlap,
    pub hosts: Vec<HostResult>,
    /// Machines that also run the server or the coordinator, whose CPU time is not foreign there.
    pub shared_boot_ids: Vec<String>,
}

/// The load hosts, and the host of a server at a URL.
#[derive(Default)]
pub(crate) struct LoadHostsLayer {
    /// The server at a URL whose CPU is read on its machine during the trial.
    server: Option<Endpoint>,
}

impl<M: Uses<ServerUse>> Layer<M> for LoadHostsLayer {
    fn prepare(&mut self, plan: &Plan, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        if route.last_failure.is_some() && route.has_no_server() {
            return Ok(());
        }
        let servers: Vec<Endpoint> = route.remotes.iter().map(Remote::endpoint).collect();
        let site = &route.site;
        route.hosts = Hosts::connected(plan, &site.lab, &site.program, &servers, &site.interrupt, emit)?;
        Ok(())
    }

    /// Connects hosts that were lost.
    fn up(&mut self, _: &Cell, route: &mut Route, emit: &mut Emit<'_>) -> Result<(), TrialError> {
        route.hosts.connect(&route.site.lab, &route.site.interrupt, emit)
    }

    fn before(
        &mut self,
        request: &TrialRequest<'_>,
        _: &mut TrialSpec,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let here = !route.hosts.have_clients();
        self.server = route.remote(request.cell).filter(|_| here).map(Remote::endpoint);
        Ok(())
    }

    fn window_opens(&mut self, route: &mut Route) {
        self.ask(route);
    }

    fn window_closes(&mut self, route: &mut Route) {
        self.ask(route);
    }

    fn after(
        &mut self,
        _: &TrialRequest<'_>,
        trial: Option<&mut M>,
        route: &mut Route,
    ) -> Result<(), TrialError> {
        let server = self.server.as_ref().and_then(|server| route.hosts.server_elsewhere(server));
        let Some((server, trial)) = server.zip(trial) else { return Ok(()) };
        let cpu_ns = server.cpu_ns(trial.load().window_ns)?;
        *trial.slot() = Some(ServerUse { cpu_ns, ..ServerUse::default() });
        Ok(())
    }

    fn down(&mut self, route: &mut Route) -> Result<(), TestbedError> {
        route.hosts = Hosts::default();
        Ok(())
    }
}

impl LoadHostsLayer {
    fn ask(&self, route: &mut Route) {
        if let Some(mut server) = self.server.as_ref().and_then(|server| route.hosts.server_elsewhere(server))
        {
            server.ask();
        }
    }
}

/// Judges the load hosts of a trial, if it has any.
pub(crate) fn check(used: Option<&HostsMeasured>, max_steal: StealLimit) -> Result<(), VoidReason> {
    let Some(used) = used else { return Ok(()) };
    for host in &used.hosts {
        check_host(used, host, max_steal)
            .map_err(|reason| VoidReason::OnHost { host: host.host.clone(), reason: Box::new(reason) })?;
    }
    if used.overlap.share < MIN_OVERLAP {
        let [percent, uncertainty_percent] =
            [used.overlap.share, used.overlap.uncertainty].map(|share| share * 100.0);
        return Err(VoidReason::WindowsApart { percent, uncertainty_percent });
    }
    Ok(())
}

fn check_host(used: &HostsMeasured, host: &HostResult, max_steal: StealLimit) -> Result<(), VoidReason> {
    check_errors(&host.errors)?;
    check_schedule(&ScheduleKept {
        unfinished: host.unfinished,
        latency: host.latency,
        service: host.service,
        lag: host.schedule_lag,
    })?;
    let machine = &host.machine;
    check_steal(machine.steal_ns, machine.busy_ns, max_steal)?;
    let elsewhere_ns = busy_elsewhere_ns(used, host);
    let capacity_ns = machine.elapsed_ns * u64::from(machine.processors.max(1));
    let elsewhere = ratio(elsewhere_ns, capacity_ns);
    if elsewhere > MAX_BUSY_ELSEWHERE && elsewhere_ns > MIN_BUSY_ELSEWHERE_NS {
        return Err(VoidReason::HostBusy { percent: elsewhere * 100.0 });
    }
    check_ports(machine.time_wait_sockets.into(), host.usable_ports)
}

/// CPU time that neither clients nor agents used on the host's machine, without that of interrupts: packets of the
/// clients cause them. 0 where the server or the coordinator may have used it.
fn busy_elsewhere_ns(used: &HostsMeasured, host: &HostResult) -> u64 {
    if used.shared_boot_ids.contains(&host.boot_id) {
        return 0;
    }
    let on_machine = used.hosts.iter().filter(|other| other.boot_id == host.boot_id);
    let ours_ns: u64 = on_machine.map(|other| other.client_cpu_ns + other.machine.agent_cpu_ns).sum();
    host.machine.busy_ns.saturating_sub(host.machine.interrupts_ns).saturating_sub(ours_ns)
}

impl HostsMeasured {
    /// What the record keeps.
    pub(crate) fn of_record(&self) -> HostsUse {
        let use_of = |host: &HostResult| HostUse {
            host: host.host.clone(),
            clients: host.clients,
            operations: host.operations,
            client_cpu_ns: host.client_cpu_ns,
            client_rss_peak_bytes: host.client_rss_peak_bytes,
            schedule_lag_ns_p99: host.schedule_lag.map(|lag| lag.p99_ns),
            machine_busy_ns: host.machine.busy_ns,
            machine_steal_ns: host.machine.steal_ns,
            processors: host.processors,
            clock_ahead_ns: host.offset.ahead_ns,
            clock_uncertainty_ns: host.offset.uncertainty_ns,
            opened_after_ns: host.opened_after_ns,
        };
        HostsUse {
            overlap: self.overlap.share,
            overlap_uncertainty: self.overlap.uncertainty,
            hosts: self.hosts.iter().map(use_of).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
