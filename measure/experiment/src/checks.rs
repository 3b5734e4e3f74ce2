//! Checks and words that several gates share.

use ciphertoll_model::{ErrorCount, LatencySummary, StealLimit, VoidReason};

/// Steal is counted in ticks of 10 ms: less than this is the clock's resolution, which can exceed the allowed share of a short
/// window.
pub(crate) const MIN_STEAL_NS: u64 = 30_000_000;
/// `TIME_WAIT` beyond this share of the usable ports voids the trial.
pub(crate) const MAX_PORTS_IN_TIME_WAIT: f64 = 0.80;
/// The schedule lag may reach this share of the median latency …
const MAX_LAG_SHARE: f64 = 0.10;
/// … or this, the wake-up delay of a process on a shared machine.
const MAX_LAG_NS: u64 = 2_000_000;

pub(crate) const NO_TLS: &str = "no TLS";

pub(crate) fn negotiated(planned: impl Into<String>, observed: impl Into<String>) -> VoidReason {
    VoidReason::Negotiated { planned: planned.into(), observed: observed.into() }
}

pub(crate) fn check_errors(errors: &[ErrorCount]) -> Result<(), VoidReason> {
    let Some(worst) = errors.iter().max_by_key(|error| error.count) else { return Ok(()) };
    let count = errors.iter().map(|error| error.count).sum();
    Err(VoidReason::OperationErrors { count, message: worst.message.clone() })
}

/// How well load processes kept the schedule of an open loop.
pub(crate) struct ScheduleKept {
    pub(crate) unfinished: u64,
    pub(crate) latency: LatencySummary,
    pub(crate) service: Option<LatencySummary>,
    pub(crate) lag: Option<LatencySummary>,
}

/// An open loop that falls behind its schedule, or starts operations late with idle clients, measures itself.
pub(crate) fn check_schedule(kept: &ScheduleKept) -> Result<(), VoidReason> {
    if kept.unfinished > 0 {
        return Err(VoidReason::Overload { unfinished: kept.unfinished });
    }
    let (Some(lag), Some(service)) = (&kept.lag, &kept.service) else { return Ok(()) };
    let tolerated = (kept.latency.p50_ns as f64 * MAX_LAG_SHARE).max(MAX_LAG_NS as f64);
    if lag.p99_ns as f64 > tolerated {
        return Err(VoidReason::ScheduleLag { lag_ns_p99: lag.p99_ns, service_ns_p50: service.p50_ns });
    }
    Ok(())
}

/// CPU time that the hypervisor takes biases trials unevenly.
pub(crate) fn check_steal(steal_ns: u64, busy_ns: u64, max_steal: StealLimit) -> Result<(), VoidReason> {
    let steal = ratio(steal_ns, busy_ns + steal_ns);
    if steal > max_steal.fraction() && steal_ns > MIN_STEAL_NS {
        return Err(VoidReason::Steal { percent: steal * 100.0 });
    }
    Ok(())
}

/// Ports in `TIME_WAIT` are not free for new connections.
pub(crate) fn check_ports(in_time_wait: u64, usable: Option<u64>) -> Result<(), VoidReason> {
    let ports = usable.map_or(0.0, |usable| ratio(in_time_wait, usable));
    if ports > MAX_PORTS_IN_TIME_WAIT {
        return Err(VoidReason::PortsExhausted { percent: ports * 100.0 });
    }
    Ok(())
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
