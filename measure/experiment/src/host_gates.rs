//! Gates of load hosts: each host is judged for itself, and a reason names it. Pure.

use ciphertoll_hosts::HostResult;
use ciphertoll_model::{HostUse, HostsUse, StealLimit, VoidReason};

use crate::bench::{HostsMeasured, Measured};
use crate::gates::{MAX_PORTS_IN_TIME_WAIT, MIN_STEAL_NS, ScheduleKept, check_errors, check_schedule, ratio};

/// The windows of all hosts must have this share in common.
const MIN_OVERLAP: f64 = 0.98;
/// Other processes may use this share of the processors of a load host's machine. Where clients share a machine with
/// an operating system and its services, they never use none.
const MAX_BUSY_ELSEWHERE: f64 = 0.10;
/// Machines count their busy time in ticks of 10 ms: less than this is the clock's resolution.
const MIN_BUSY_ELSEWHERE_NS: u64 = 50_000_000;

/// Judges the load hosts of a trial, if it has any.
pub(crate) fn check_hosts(measured: &Measured, max_steal: StealLimit) -> Result<(), VoidReason> {
    let Some(used) = &measured.hosts else { return Ok(()) };
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
    let steal = ratio(machine.steal_ns, machine.busy_ns + machine.steal_ns);
    if steal > max_steal.fraction() && machine.steal_ns > MIN_STEAL_NS {
        return Err(VoidReason::Steal { percent: steal * 100.0 });
    }
    let elsewhere_ns = busy_elsewhere_ns(used, host);
    let capacity_ns = machine.elapsed_ns * u64::from(machine.processors.max(1));
    let elsewhere = ratio(elsewhere_ns, capacity_ns);
    if elsewhere > MAX_BUSY_ELSEWHERE && elsewhere_ns > MIN_BUSY_ELSEWHERE_NS {
        return Err(VoidReason::HostBusy { percent: elsewhere * 100.0 });
    }
    let time_wait = u64::from(machine.time_wait_sockets);
    let ports = host.usable_ports.map_or(0.0, |usable| ratio(time_wait, usable));
    if ports > MAX_PORTS_IN_TIME_WAIT {
        return Err(VoidReason::PortsExhausted { percent: ports * 100.0 });
    }
    Ok(())
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

/// What the record keeps of the load hosts.
pub(crate) fn hosts_use(measured: &Measured) -> Option<Box<HostsUse>> {
    let used = measured.hosts.as_ref()?;
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
    Some(Box::new(HostsUse {
        overlap: used.overlap.share,
        overlap_uncertainty: used.overlap.uncertainty,
        hosts: used.hosts.iter().map(use_of).collect(),
    }))
}

#[cfg(test)]
mod tests;
