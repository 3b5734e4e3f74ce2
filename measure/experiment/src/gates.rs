//! Gates and flags: gates void a trial that did not do what its cell says, flags mark a trial with a caveat. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;

use ciphertoll_model::{
    Auth, Cell, ChainLength, Compressor, Driver, Engine, Flag, Iterations, LatencySummary, Leg, LegCount,
    Link, Metric, NoiseLimits, Observation, ProxyFront, Resumption, SAFE_OPERATIONS_PER_S, ServerKey,
    Settings, TlsLibrary, TlsVersion, Treatment, TrialResult, VoidReason,
};

use crate::absent::{MIN_CPU_NS, MIN_SAMPLES_P95, MIN_SAMPLES_P99, absences, knows_middle, roles};
use crate::checks::{
    NO_TLS, ScheduleKept, check_errors, check_ports, check_schedule, check_steal, negotiated,
};
use crate::layers::{link, load_hosts, proxy, server, tunnel};
use crate::measured::{MachineUse, Measured};

/// Unattributed CPU time beyond this share of the machine's busy time is flagged.
const MAX_CPU_ELSEWHERE: f64 = 0.05;
/// A machine with less idle time than the rest has none to spare.
const SATURATED: f64 = 0.9;
/// How far a rate may exceed its limit by chance.
const MOST_EXPECTED_RATE: f64 = 1.1;
/// The machine's busy time is counted in ticks of 10 ms: less than this is the clock's resolution, which over a long link can
/// exceed the share above.
const MIN_CPU_ELSEWHERE_NS: f64 = 30e6;
/// Halves of a window may differ by this share or by counting noise.
const STEADY_TOLERANCE: f64 = 0.10;
/// Standard errors of counting noise that halves may differ by.
const STEADY_SIGMAS: f64 = 3.0;
/// A median in this range on a local path is Nagle's algorithm waiting for a delayed ACK.
const DELAYED_ACK_NS: std::ops::RangeInclusive<u64> = 38_000_000..=46_000_000;

/// The observation of a trial, or the reason why it is void.
pub fn judge(
    cell: &Cell,
    measured: &Measured,
    noise: NoiseLimits,
    settings: &Settings,
) -> Result<Observation, VoidReason> {
    // Before the sum of all: its reasons name the host.
    load_hosts::check(measured.hosts.as_ref(), noise.steal)?;
    pass_gates(cell, measured, settings)?;
    link::check_lateness(measured.link, noise.lateness)?;
    link::check_connect_time(cell, measured.link, measured.load.tcp_connect_ns_p50, noise.lateness)?;
    let MachineUse { busy_ns, steal_ns, .. } = measured.machine;
    check_steal(steal_ns, busy_ns, noise.steal)?;
    let metrics = metrics(measured);
    Ok(Observation {
        absent: absences(measured, &metrics),
        metrics,
        operations: measured.load.operations,
        window_ns: measured.load.window_ns,
        legs: legs(measured),
        flags: flags(cell, measured),
        hosts: measured.hosts.as_ref().map(|used| Box::new(used.of_record())),
    })
}

fn pass_gates(cell: &Cell, measured: &Measured, settings: &Settings) -> Result<(), VoidReason> {
    let Measured { load, server, machine, .. } = measured;
    check_errors(&load.errors)?;
    if load.operations == 0 {
        return Err(VoidReason::NoOperations);
    }
    tunnel::check(cell, measured.tunnel.as_ref(), load.operations)?;
    proxy::check(cell, measured.proxy.as_ref(), load)?;
    check_schedule(&ScheduleKept {
        unfinished: load.unfinished,
        latency: load.latency,
        service: load.service,
        lag: load.schedule_lag,
    })?;
    server::check_client_saturation(server.as_ref(), measured.apart, load)?;
    for LegCount { leg, .. } in &load.legs {
        check_negotiated(cell, leg)?;
        check_compression(cell, leg)?;
        check_authentication(cell, leg)?;
    }
    if let Some(server) = server.as_ref().filter(|_| cell.is_meant_to_be_cached(settings)) {
        server::check_buffer_misses(cell, server, load.operations)?;
    }
    check_ports(machine.time_wait_sockets, load.usable_ports)
}

/// The parameters observed on every connection must be those of the cell.
fn check_negotiated(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let Some(tls) = cell.treatment.path.as_tls() else {
        return leg.tls_version.as_deref().map_or(Ok(()), |version| Err(negotiated(NO_TLS, version)));
    };
    let resumes = tls.resumption != Resumption::Never;
    // The native client reports everything, foreign drivers may not. Parameters that the path leaves open match anything.
    let native = cell.treatment.driver == Driver::Native;
    let pair = |planned: Option<&str>, observed: Option<&str>, absent: &str| {
        let untold = if native { absent } else { planned.unwrap_or(absent) };
        let observed = observed.unwrap_or(untold).to_owned();
        (planned.map_or_else(|| observed.clone(), ToOwned::to_owned), observed)
    };
    let handshake = |resumed: bool| if resumed { "resumed" } else { "full" }.to_owned();
    let mut pairs = vec![
        pair(
            Some(tls.parameters.version.label()),
            Some(leg.tls_version.as_deref().unwrap_or(NO_TLS)),
            NO_TLS,
        ),
        pair(tls.key.map(ServerKey::label), leg.key.as_deref(), "no key"),
        (handshake(resumes), handshake(leg.resumed == Some(true))),
    ];
    // Other keys leave the scheme open, and so its label.
    let scheme = tls.key.filter(|key| key.is_ml_dsa() && !resumes).map(ServerKey::label);
    pairs.extend(scheme.map(|scheme| pair(Some(scheme), leg.signature.as_deref(), "no signature")));
    pairs
        .extend(tls.parameters.suite.map(|suite| pair(Some(suite.iana()), leg.suite.as_deref(), "no suite")));
    // Before TLS 1.3 a resumed session exchanges no keys.
    let exchanges_keys = !resumes || tls.parameters.version == TlsVersion::Tls13;
    pairs.extend(
        tls.parameters
            .group
            .map(|group| pair(exchanges_keys.then_some(group.label()), leg.group.as_deref(), "no group")),
    );
    // A resumed session sends no certificate, and not every driver reports the chain.
    let chains = tls.chain.map(ChainLength::count).zip(leg.chain);
    pairs.extend(
        chains.map(|(planned, observed)| (format!("chain of {planned}"), format!("chain of {observed}"))),
    );
    let library =
        pair(Some(tls.parameters.library.label()), leg.library.as_deref().filter(|_| native), "no library");
    let by = |library: String| {
        if library == TlsLibrary::OpenSsl.label() { String::new() } else { format!("by {library}") }
    };
    pairs.push((by(library.0), by(library.1)));
    let (planned, mut observed): (Vec<String>, Vec<String>) = pairs.into_iter().unzip();
    if planned == observed {
        return Ok(());
    }
    if leg.tls_version.is_none() {
        observed.truncate(1);
    }
    let [planned, observed] = [planned, observed].map(|words| words.join(" ").trim_end().to_owned());
    Err(negotiated(planned, observed))
}

/// The compressor must be the planned one.
fn check_compression(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let planned = cell.treatment.path.compressor().map(Compressor::label);
    if planned == leg.compressor.as_deref() {
        return Ok(());
    }
    let told = |compressor: Option<&str>| {
        compressor.map_or_else(|| "no compression".to_owned(), |name| format!("compressed by {name}"))
    };
    Err(negotiated(told(planned), told(leg.compressor.as_deref())))
}

/// The server must have requested the planned authentication on every connection. Drivers that do not report it pass.
fn check_authentication(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let (Some(planned), Some(observed)) = (requested_authentication(cell), &leg.auth) else { return Ok(()) };
    // The server chooses the number of iterations unless the level does.
    let is_as_planned = match cell.treatment.auth {
        Auth::ScramSha1 => observed.strip_prefix(&planned).is_some_and(|rest| rest.starts_with('-')),
        _ => *observed == planned,
    };
    let observed = observed.clone();
    if is_as_planned { Ok(()) } else { Err(VoidReason::Authenticated { planned, observed }) }
}

/// What is requested from the client; `None` if anything may be. Between client and proxy, `PostgreSQL` proxies request
/// nothing on a unix socket and a password over TCP. The server's rule for the account ensures the planned authentication of
/// the proxy. Proxies for MySQL's protocol are not checked, and no proxy supports document databases.
fn requested_authentication(cell: &Cell) -> Option<String> {
    let Treatment { server, auth, path, .. } = &cell.treatment;
    let requested = match (server.engine, path.as_proxy().map(|proxy| proxy.front), *auth) {
        (_, None, Auth::AsAsked)
        | (Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb, Some(_), _) => return None,
        // Here trust is an account with an empty password. After a client certificate nothing more is requested; the
        // server's rule for the account requires the certificate.
        (Engine::MariaDb | Engine::MySql, None, Auth::Trust | Auth::Cert) => return Some("empty".to_owned()),
        (Engine::Postgres, Some(ProxyFront::Unix), _)
        | (Engine::Postgres, Some(ProxyFront::Tcp), Auth::Trust)
        | (Engine::Postgres, None, Auth::Cert) => Auth::Trust,
        (Engine::Postgres, Some(ProxyFront::Tcp), _) => Auth::scram(Iterations::POSTGRES_DEFAULT),
        (_, None, auth) => auth,
    };
    Some(requested.to_string())
}

/// The legs that clients observed, and those of the tunnel or proxy.
fn legs(measured: &Measured) -> Vec<LegCount> {
    let tunnel = measured.tunnel.iter().map(|used| LegCount {
        leg: used.leg.clone(),
        connections: 1,
        handshake: None,
    });
    let proxy = measured.proxy.iter().flat_map(|used| used.legs.iter().cloned());
    measured.load.legs.iter().cloned().chain(tunnel).chain(proxy).collect()
}

fn flags(cell: &Cell, measured: &Measured) -> Vec<Flag> {
    let mut flags = Vec::new();
    flags.extend(unsteady(&measured.load));
    let busy = measured.machine.busy_ns;
    let link_cpu_ns = measured.link.map_or(Some(0), |link| link.cpu_ns);
    // The CPU time of an external server is unknown, or that of another machine.
    let is_here = measured.hosts.is_none() && !measured.server_is_elsewhere;
    let knows_all = is_here && knows_middle(measured);
    if let (Some(server), Some(link_cpu_ns), true) = (&measured.server, link_cpu_ns, knows_all) {
        let roles = measured.load.client_cpu_ns + measured.middle_cpu_ns + server.cpu_ns + link_cpu_ns;
        let elsewhere_ns = busy as f64 - roles as f64;
        let elsewhere = elsewhere_ns / (busy as f64).max(1.0);
        if busy > 0 && elsewhere.abs() > MAX_CPU_ELSEWHERE && elsewhere_ns.abs() > MIN_CPU_ELSEWHERE_NS {
            let share = elsewhere.abs();
            let is_elsewhere = elsewhere > 0.0;
            flags.push(if is_elsewhere { Flag::CpuElsewhere { share } } else { Flag::CpuOverlap { share } });
        }
    }
    flags.extend(busy_beside_clients(cell, measured));
    if cell.treatment.link == Link::Local && DELAYED_ACK_NS.contains(&measured.load.latency.p50_ns) {
        flags.push(Flag::DelayedAck);
    }
    flags
}

/// Other processes on the clients' machine while they use a server at a URL. If the server may be on this machine, it is
/// one of them: then only a machine without idle time is flagged, at a rate that does not explain it.
fn busy_beside_clients(cell: &Cell, measured: &Measured) -> Option<Flag> {
    let url = cell.treatment.server.url.as_ref()?;
    let is_here = url.host().is_none_or(|host| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    let is_known = measured.server.is_some() && !measured.server_is_elsewhere;
    if measured.hosts.is_some() || is_known || !knows_middle(measured) {
        return None;
    }
    let link_cpu_ns = measured.link.map_or(Some(0), |link| link.cpu_ns)?;
    let MachineUse { busy_ns, .. } = measured.machine;
    let load = &measured.load;
    let ours_ns = load.client_cpu_ns + measured.middle_cpu_ns + link_cpu_ns;
    let elsewhere_ns = busy_ns.saturating_sub(ours_ns) as f64;
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get) as f64;
    let capacity_ns = load.window_ns as f64 * processors;
    let rate = load.operations as f64 / (load.window_ns as f64 * 1e-9);
    let is_disturbed = if is_here {
        busy_ns as f64 > SATURATED * capacity_ns
            && rate <= MOST_EXPECTED_RATE * f64::from(SAFE_OPERATIONS_PER_S)
    } else {
        elsewhere_ns > MAX_CPU_ELSEWHERE * capacity_ns
    };
    (is_disturbed && elsewhere_ns > MIN_CPU_ELSEWHERE_NS)
        .then(|| Flag::CpuElsewhere { share: elsewhere_ns / busy_ns as f64 })
}

/// A window with different halves was not in a steady state.
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
        (Metric::RssBytesClient, load.client_rss_peak_bytes as f64),
    ]);
    metrics.extend(times(&load.latency, LATENCY));
    metrics.extend(load.service.iter().flat_map(|service| times(service, SERVICE)));
    if let Some(lag) = load.schedule_lag.filter(|lag| lag.count >= MIN_SAMPLES_P99) {
        metrics.insert(Metric::ScheduleLagNsP99, lag.p99_ns as f64);
    }
    if let Some(statements) = load.statements {
        metrics.insert(Metric::StatementsPerS, statements as f64 / (load.window_ns as f64 * 1e-9));
    }
    let Measured { tunnel, proxy, .. } = measured;
    let set_up_ns = tunnel.as_ref().map(|used| used.set_up_ns).or(proxy.as_ref().map(|used| used.set_up_ns));
    metrics.extend(set_up_ns.map(|set_up_ns| (Metric::SetUpNs, set_up_ns as f64)));
    metrics.extend(measured.middle_rss_peak_bytes.map(|bytes| (Metric::RssBytesMiddle, bytes as f64)));
    for (metric, used_ns) in roles(measured) {
        if used_ns >= MIN_CPU_NS {
            metrics.insert(metric, used_ns as f64 * 1e-3 / operations);
        }
    }
    if let Some(bytes) = server.as_ref().and_then(|server| server.rss_peak_bytes) {
        metrics.insert(Metric::RssBytesServer, bytes as f64);
    }
    metrics.extend(server.iter().flat_map(|server| server.metrics(load.operations_in_all)));
    for (phase, sum_ns) in &load.phase_sums_ns {
        metrics.insert(Metric::of_phase(*phase), *sum_ns as f64 / operations);
    }
    metrics
}

/// Mean, median, 95th and 99th percentile, each with its minimum number of samples.
type SummaryMetrics = [(Metric, u64, fn(&LatencySummary) -> f64); 4];

const LATENCY: SummaryMetrics =
    of_summary([Metric::LatencyNsMean, Metric::LatencyNsP50, Metric::LatencyNsP95, Metric::LatencyNsP99]);
const SERVICE: SummaryMetrics =
    of_summary([Metric::ServiceNsMean, Metric::ServiceNsP50, Metric::ServiceNsP95, Metric::ServiceNsP99]);

const fn of_summary([mean, p50, p95, p99]: [Metric; 4]) -> SummaryMetrics {
    [
        (mean, 1, |summary| summary.sum_ns as f64 / summary.count as f64),
        (p50, 1, |summary| summary.p50_ns as f64),
        (p95, MIN_SAMPLES_P95, |summary| summary.p95_ns as f64),
        (p99, MIN_SAMPLES_P99, |summary| summary.p99_ns as f64),
    ]
}

/// The metrics of a summary; 0 means unknown to the driver.
fn times(summary: &LatencySummary, of: SummaryMetrics) -> impl Iterator<Item = (Metric, f64)> {
    of.into_iter()
        .filter(|(_, samples, _)| summary.count >= *samples)
        .map(|(metric, _, value)| (metric, value(summary)))
        .filter(|(_, value)| *value > 0.0)
}
