//! From what a trial measured to what may be believed: gates void a trial that did not do what its
//! name says, flags mark one that needs a second look. Pure.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Auth, Cell, ConnectionUse, Engine, Flag, Leg, LegCount, Link, Metric, Observation, TrialResult,
    VoidReason,
};

use crate::bench::Measured;

/// Steal beyond this share of the CPU time spent voids the trial.
const MAX_STEAL: f64 = 0.03;
/// Steal is counted in ticks of 10 ms: less than this is the clock's grain, which in a short window
/// is more than the share above.
const MIN_STEAL_NS: u64 = 30_000_000;
/// `TIME_WAIT` beyond this share of the usable ports voids the trial.
const MAX_PORTS_IN_TIME_WAIT: f64 = 0.80;
/// CPU that no role accounts for, beyond this share of the machine's busy time, is flagged.
const MAX_CPU_ELSEWHERE: f64 = 0.05;
/// Halves of a window may differ by this share, or by what counting alone explains.
const STEADY_TOLERANCE: f64 = 0.10;
/// Standard errors of a count's noise that halves may differ by.
const STEADY_SIGMAS: f64 = 3.0;
/// A median here on a local path is Nagle waiting for a delayed ACK, not a server.
const DELAYED_ACK_NS: std::ops::RangeInclusive<u64> = 38_000_000..=46_000_000;
/// Pages from disk beyond this share of the operations void a trial on cached rows; a few are the
/// server's own housekeeping.
const MAX_BUFFER_MISSES: f64 = 0.001;
/// Fewer samples than this do not carry a 95th percentile.
const MIN_SAMPLES_P95: u64 = 200;
/// Fewer samples than this do not carry a 99th percentile.
const MIN_SAMPLES_P99: u64 = 1_000;
/// Less CPU than this is too close to the clock's grain and to other processes' crumbs.
const MIN_CPU_NS: u64 = 200_000_000;

/// The observation that a trial yields, or why it is void.
pub fn judge(cell: &Cell, measured: &Measured) -> Result<Observation, VoidReason> {
    pass_gates(cell, measured)?;
    Ok(Observation {
        metrics: metrics(measured),
        operations: measured.load.operations,
        window_ns: measured.load.window_ns,
        legs: measured.load.legs.clone(),
        flags: flags(cell, measured),
    })
}

fn pass_gates(cell: &Cell, measured: &Measured) -> Result<(), VoidReason> {
    let Measured { load, server, machine } = measured;
    if let Some(worst) = load.errors.iter().max_by_key(|error| error.count) {
        let count = load.errors.iter().map(|error| error.count).sum();
        return Err(VoidReason::OperationErrors { count, message: worst.message.clone() });
    }
    if load.operations == 0 {
        return Err(VoidReason::NoOperations);
    }
    for LegCount { leg, .. } in &load.legs {
        negotiated_as_planned(cell, leg)?;
        authenticated_as_planned(cell, leg)?;
    }
    let pooled = cell.workload.connection_use() == ConnectionUse::Pooled;
    if pooled && ratio(server.buffer_misses, load.operations) > MAX_BUFFER_MISSES {
        return Err(VoidReason::BufferMisses { count: server.buffer_misses });
    }
    let steal = ratio(machine.steal_ns, machine.busy_ns + machine.steal_ns);
    if steal > MAX_STEAL && machine.steal_ns > MIN_STEAL_NS {
        return Err(VoidReason::Steal { percent: steal * 100.0 });
    }
    let ports = load.usable_ports.map_or(0.0, |usable| ratio(machine.time_wait_sockets, usable));
    if ports > MAX_PORTS_IN_TIME_WAIT {
        return Err(VoidReason::PortsExhausted { percent: ports * 100.0 });
    }
    Ok(())
}

/// The level says what must have been negotiated; what was observed on every connection decides.
fn negotiated_as_planned(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let planned = match cell.treatment.path.as_tls() {
        None => "no TLS".to_owned(),
        Some(tls) => format!("{} {} full", tls.version.label(), tls.key.label()),
    };
    let observed = match (&leg.tls_version, &leg.key, leg.resumed) {
        (None, ..) => "no TLS".to_owned(),
        (Some(version), key, resumed) => format!(
            "{version} {} {}",
            key.as_deref().unwrap_or("no key"),
            if resumed == Some(true) { "resumed" } else { "full" }
        ),
    };
    if planned == observed { Ok(()) } else { Err(VoidReason::Negotiated { planned, observed }) }
}

/// What the server really asked for, on every connection. A driver that cannot tell says nothing.
fn authenticated_as_planned(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let planned = match (cell.treatment.server.engine, cell.treatment.auth) {
        // There, trust is an account whose password is empty.
        (Engine::MariaDb, Auth::Trust) => "empty".to_owned(),
        (_, auth) => auth.to_string(),
    };
    match &leg.auth {
        Some(observed) if *observed != planned => {
            Err(VoidReason::Authenticated { planned, observed: observed.clone() })
        }
        _ => Ok(()),
    }
}

fn flags(cell: &Cell, measured: &Measured) -> Vec<Flag> {
    let mut flags = Vec::new();
    flags.extend(unsteady(&measured.load));
    let busy = measured.machine.busy_ns;
    let roles = measured.load.client_cpu_ns + measured.server.cpu_ns;
    let elsewhere = (busy as f64 - roles as f64) / (busy as f64).max(1.0);
    if busy > 0 && elsewhere.abs() > MAX_CPU_ELSEWHERE {
        flags.push(Flag::CpuElsewhere { share: elsewhere });
    }
    if cell.treatment.link == Link::Local && DELAYED_ACK_NS.contains(&measured.load.latency.p50_ns) {
        flags.push(Flag::DelayedAck);
    }
    flags
}

/// A window whose halves disagree was not in a steady state.
fn unsteady(load: &TrialResult) -> Option<Flag> {
    let [first, second] = load.operations_by_half.map(|count| count as f64);
    if first + second == 0.0 {
        return None;
    }
    let counting_noise = STEADY_SIGMAS * 2.0 / (first + second).sqrt();
    let ratio = second / first.max(1.0);
    ((ratio - 1.0).abs() > STEADY_TOLERANCE.max(counting_noise))
        .then_some(Flag::Unsteady { second_half_ratio: ratio })
}

fn metrics(measured: &Measured) -> BTreeMap<Metric, f64> {
    let Measured { load, server, .. } = measured;
    let operations = load.operations as f64;
    let mut metrics = BTreeMap::from([
        (Metric::RatePerS, operations / (load.window_ns as f64 * 1e-9)),
        (Metric::LatencyNsMean, load.latency.sum_ns as f64 / operations),
        (Metric::LatencyNsP50, load.latency.p50_ns as f64),
        (Metric::RssBytesClient, load.client_rss_peak_bytes as f64),
    ]);
    if load.latency.count >= MIN_SAMPLES_P95 {
        metrics.insert(Metric::LatencyNsP95, load.latency.p95_ns as f64);
    }
    if load.latency.count >= MIN_SAMPLES_P99 {
        metrics.insert(Metric::LatencyNsP99, load.latency.p99_ns as f64);
    }
    let cpu = [
        (Metric::CpuUsPerOpClient, load.client_cpu_ns),
        (Metric::CpuUsPerOpServer, server.cpu_ns),
        (Metric::CpuUsPerOpTotal, load.client_cpu_ns + server.cpu_ns),
    ];
    for (metric, used_ns) in cpu {
        if used_ns >= MIN_CPU_NS {
            metrics.insert(metric, used_ns as f64 * 1e-3 / operations);
        }
    }
    if let Some(bytes) = server.rss_peak_bytes {
        metrics.insert(Metric::RssBytesServer, bytes as f64);
    }
    for (phase, sum_ns) in &load.phase_sums_ns {
        metrics.insert(Metric::of_phase(*phase), *sum_ns as f64 / operations);
    }
    metrics
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
