//! Which metrics of a trial are absent, and why. Pure.

use std::collections::BTreeMap;

use ciphertoll_model::{Absence, Metric};

use crate::layers::tunnel::TunnelCpu;
use crate::measured::Measured;

/// Fewer samples are too few for a 95th percentile.
pub(crate) const MIN_SAMPLES_P95: u64 = 200;
/// Fewer samples are too few for a 99th percentile.
pub(crate) const MIN_SAMPLES_P99: u64 = 1_000;
/// Less CPU time is too close to the clock's resolution and the noise of other processes.
pub(crate) const MIN_CPU_NS: u64 = 200_000_000;

/// CPU time by role, for all roles with a known time.
pub(crate) fn roles(measured: &Measured) -> impl Iterator<Item = (Metric, u64)> {
    let Measured { load, server, .. } = measured;
    let here = server.as_ref().map(|server| (Metric::CpuUsPerOpServer, server.cpu_ns));
    let total = here.filter(|_| knows_middle(measured)).map(|(_, server_cpu_ns)| {
        (Metric::CpuUsPerOpTotal, load.client_cpu_ns + measured.middle_cpu_ns + server_cpu_ns)
    });
    let client = (Metric::CpuUsPerOpClient, load.client_cpu_ns);
    let middle = Some((Metric::CpuUsPerOpMiddle, measured.middle_cpu_ns)).filter(|(_, used_ns)| *used_ns > 0);
    here.into_iter().chain(total).chain([client]).chain(middle)
}

/// Whether the CPU time between client and server is known. That of a tunnel in the kernel is not.
pub(crate) fn knows_middle(measured: &Measured) -> bool {
    measured.tunnel.as_ref().is_none_or(|used| used.cpu == TunnelCpu::OfEnds)
}

/// Why applicable metrics are not among `metrics`.
pub(crate) fn absences(measured: &Measured, metrics: &BTreeMap<Metric, f64>) -> BTreeMap<Metric, Absence> {
    let all = too_few_samples(measured).chain(too_little_cpu(measured)).chain(unknown_cpu(measured));
    all.filter(|(metric, _)| !metrics.contains_key(metric)).collect()
}

fn too_few_samples(measured: &Measured) -> impl Iterator<Item = (Metric, Absence)> {
    let load = &measured.load;
    let (latency, service) = (load.latency.count, load.service.map(|service| service.count));
    let percentiles = [
        (Metric::LatencyNsP95, Some(latency), MIN_SAMPLES_P95),
        (Metric::LatencyNsP99, Some(latency), MIN_SAMPLES_P99),
        (Metric::ServiceNsP95, service, MIN_SAMPLES_P95),
        (Metric::ServiceNsP99, service, MIN_SAMPLES_P99),
        (Metric::ScheduleLagNsP99, load.schedule_lag.map(|lag| lag.count), MIN_SAMPLES_P99),
    ];
    percentiles.into_iter().filter_map(move |(metric, samples, needed)| {
        let samples = samples.filter(|samples| *samples < needed)?;
        Some((metric, Absence::TooFewSamples { samples, needed, window_ns: load.window_ns }))
    })
}

fn too_little_cpu(measured: &Measured) -> impl Iterator<Item = (Metric, Absence)> {
    let (needed_ns, window_ns) = (MIN_CPU_NS, measured.load.window_ns);
    let little = roles(measured).filter(|(_, cpu_ns)| *cpu_ns < MIN_CPU_NS);
    little.map(move |(metric, cpu_ns)| (metric, Absence::TooLittleCpu { cpu_ns, needed_ns, window_ns }))
}

fn unknown_cpu(measured: &Measured) -> impl Iterator<Item = (Metric, Absence)> {
    let (server, total) = (Metric::CpuUsPerOpServer, Metric::CpuUsPerOpTotal);
    let elsewhere = measured.server.is_none();
    let unknown: Vec<(Metric, Absence)> = if elsewhere {
        vec![(server, Absence::ServerElsewhere), (total, Absence::ServerElsewhere)]
    } else if knows_middle(measured) {
        Vec::new()
    } else {
        vec![(Metric::CpuUsPerOpMiddle, Absence::InTheKernel), (total, Absence::InTheKernel)]
    };
    unknown.into_iter()
}
