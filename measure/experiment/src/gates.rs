//! Gates and flags: gates void a trial that did not do what its cell says, flags mark a trial with a caveat. Pure.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Auth, Cell, ChainLength, Compressor, ConnectionUse, Driver, Engine, ErrorCount, Flag, Group, Iterations,
    LatencySummary, LatenessLimit, Leg, LegCount, Link, LinkKind, LinkShape, Metric, NoiseLimits,
    Observation, Path, Proxy, ProxyFront, Resumption, ServerKey, Settings, StealLimit, TlsLibrary,
    TlsVersion, Treatment, TrialResult, VoidReason, Workload,
};

use crate::absent::{MIN_CPU_NS, MIN_SAMPLES_P95, MIN_SAMPLES_P99, absences, knows_middle, roles};
use crate::bench::{LinkUse, Measured, ProxyUse, ServerUse, TunnelUse};
use crate::host_gates::{check_hosts, hosts_use};

/// Steal is counted in ticks of 10 ms: less than this is the clock's resolution, which can exceed the allowed share of a short
/// window.
pub(crate) const MIN_STEAL_NS: u64 = 30_000_000;
/// `TIME_WAIT` beyond this share of the usable ports voids the trial.
pub(crate) const MAX_PORTS_IN_TIME_WAIT: f64 = 0.80;
/// Unattributed CPU time beyond this share of the machine's busy time is flagged.
const MAX_CPU_ELSEWHERE: f64 = 0.05;
/// The machine's busy time is counted in ticks of 10 ms: less than this is the clock's resolution, which over a long link can
/// exceed the share above.
const MIN_CPU_ELSEWHERE_NS: f64 = 30e6;
/// Halves of a window may differ by this share or by counting noise.
const STEADY_TOLERANCE: f64 = 0.10;
/// Standard errors of counting noise that halves may differ by.
const STEADY_SIGMAS: f64 = 3.0;
/// A median in this range on a local path is Nagle's algorithm waiting for a delayed ACK.
const DELAYED_ACK_NS: std::ops::RangeInclusive<u64> = 38_000_000..=46_000_000;
/// Pages from disk beyond this share of the operations void a trial on cached rows. A few are the server's housekeeping.
const MAX_BUFFER_MISSES: f64 = 0.001;
/// The same for loads that write: tables grow, and written pages may be read back. Rows that are not cached cost every
/// operation a page.
const MAX_BUFFER_MISSES_WRITING: f64 = 0.05;
/// So few pages void no trial with writes, however short.
const FEW_PAGES: u64 = 64;
/// The schedule lag may reach this share of the median latency …
const MAX_LAG_SHARE: f64 = 0.10;
/// … or this, the wake-up delay of a process on a shared machine.
const MAX_LAG_NS: u64 = 2_000_000;
/// If the clients' processors are busier than `SATURATED` and the server's less than `WITH_TIME_TO_SPARE`, the trial measures
/// the clients.
const SATURATED: f64 = 0.80;
const WITH_TIME_TO_SPARE: f64 = 0.60;
/// Packets may be late on average by the plan's share of the round trip or by this, the wake-up delay of a thread on a shared
/// machine.
const MAX_LATE_NS: u64 = 500_000;
/// The median TCP connect may deviate from the round trip by this multiple of the allowed share …
const CONNECTS_PER_PACKETS: f64 = 10.0;
/// … or by this, because both ends must wake up.
const MAX_CONNECT_OFF_NS: u64 = 1_000_000;
/// On shorter links the machine's own part of a connect is too large.
const SHORTEST_RTT_NS: u64 = 5_000_000;
/// A proxy does not pool if it opens more server connections than this share of the clients' connections …
const MAX_UNPOOLED: f64 = 0.10;
/// … and more than its pool size plus these replacements.
const FEW_CONNECTIONS: u64 = 8;

/// The observation of a trial, or the reason why it is void.
pub fn judge(
    cell: &Cell,
    measured: &Measured,
    noise: NoiseLimits,
    settings: &Settings,
) -> Result<Observation, VoidReason> {
    // Before the sum of all: its reasons name the host.
    check_hosts(measured, noise.steal)?;
    pass_gates(cell, measured, settings)?;
    check_link(measured, noise.lateness)?;
    check_connect_time(cell, measured, noise.lateness)?;
    check_steal(measured, noise.steal)?;
    let metrics = metrics(measured);
    Ok(Observation {
        absent: absences(measured, &metrics),
        metrics,
        operations: measured.load.operations,
        window_ns: measured.load.window_ns,
        legs: legs(measured),
        flags: flags(cell, measured),
        hosts: hosts_use(measured),
    })
}

fn pass_gates(cell: &Cell, measured: &Measured, settings: &Settings) -> Result<(), VoidReason> {
    let Measured { load, server, machine, .. } = measured;
    check_errors(&load.errors)?;
    if load.operations == 0 {
        return Err(VoidReason::NoOperations);
    }
    check_tunnel(cell, measured)?;
    if let Some(proxy) = cell.treatment.path.as_proxy() {
        check_proxy(cell, proxy, measured)?;
    }
    check_schedule(&ScheduleKept {
        unfinished: load.unfinished,
        latency: load.latency,
        service: load.service,
        lag: load.schedule_lag,
    })?;
    check_client_saturation(measured)?;
    for LegCount { leg, .. } in &load.legs {
        check_negotiated(cell, leg)?;
        check_compression(cell, leg)?;
        check_authentication(cell, leg)?;
    }
    if let Some(server) = server.as_ref().filter(|_| cell.is_meant_to_be_cached(settings)) {
        check_buffer_misses(cell, server, load.operations)?;
    }
    let ports = load.usable_ports.map_or(0.0, |usable| ratio(machine.time_wait_sockets, usable));
    if ports > MAX_PORTS_IN_TIME_WAIT {
        return Err(VoidReason::PortsExhausted { percent: ports * 100.0 });
    }
    Ok(())
}

pub(crate) fn check_errors(errors: &[ErrorCount]) -> Result<(), VoidReason> {
    let Some(worst) = errors.iter().max_by_key(|error| error.count) else { return Ok(()) };
    let count = errors.iter().map(|error| error.count).sum();
    Err(VoidReason::OperationErrors { count, message: worst.message.clone() })
}

/// CPU time that the hypervisor takes biases trials unevenly.
fn check_steal(measured: &Measured, max_steal: StealLimit) -> Result<(), VoidReason> {
    let machine = &measured.machine;
    let steal = ratio(machine.steal_ns, machine.busy_ns + machine.steal_ns);
    if steal > max_steal.fraction() && machine.steal_ns > MIN_STEAL_NS {
        return Err(VoidReason::Steal { percent: steal * 100.0 });
    }
    Ok(())
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
        pair(Some(tls.version.label()), Some(leg.tls_version.as_deref().unwrap_or(NO_TLS)), NO_TLS),
        pair(tls.key.map(ServerKey::label), leg.key.as_deref(), "no key"),
        (handshake(resumes), handshake(leg.resumed == Some(true))),
    ];
    // Other keys leave the scheme open, and so its label.
    let scheme = tls.key.filter(|key| key.is_ml_dsa() && !resumes).map(ServerKey::label);
    pairs.extend(scheme.map(|scheme| pair(Some(scheme), leg.signature.as_deref(), "no signature")));
    pairs.extend(tls.suite.map(|suite| pair(Some(suite.iana()), leg.suite.as_deref(), "no suite")));
    // Before TLS 1.3 a resumed session exchanges no keys.
    let exchanges_keys = !resumes || tls.version == TlsVersion::Tls13;
    pairs.extend(
        tls.group
            .map(|group| pair(exchanges_keys.then_some(group.label()), leg.group.as_deref(), "no group")),
    );
    // A resumed session sends no certificate, and not every driver reports the chain.
    let chains = tls.chain.map(ChainLength::count).zip(leg.chain);
    pairs.extend(
        chains.map(|(planned, observed)| (format!("chain of {planned}"), format!("chain of {observed}"))),
    );
    let library = pair(Some(tls.library.label()), leg.library.as_deref().filter(|_| native), "no library");
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

fn negotiated(planned: impl Into<String>, observed: impl Into<String>) -> VoidReason {
    VoidReason::Negotiated { planned: planned.into(), observed: observed.into() }
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

const NO_TLS: &str = "no TLS";

/// Cached rows must not be read from disk.
fn check_buffer_misses(cell: &Cell, server: &ServerUse, operations: u64) -> Result<(), VoidReason> {
    // Servers that do not count them pass.
    let Some(count) = server.counted.buffer_misses else { return Ok(()) };
    let share = ratio(count, operations);
    let void = match cell.workload.connection_use() {
        ConnectionUse::PerOperation => false,
        ConnectionUse::Pooled if cell.workload.writes() => {
            count > FEW_PAGES && share > MAX_BUFFER_MISSES_WRITING
        }
        ConnectionUse::Pooled => share > MAX_BUFFER_MISSES,
    };
    if void { Err(VoidReason::BufferMisses { count }) } else { Ok(()) }
}

/// A link without enough CPU is longer than configured.
fn check_link(measured: &Measured, max_lateness: LatenessLimit) -> Result<(), VoidReason> {
    let Some(LinkUse { rtt_ns, packets, dropped, late_ns_mean, .. }) = measured.link else { return Ok(()) };
    let tolerated_ns = (rtt_ns as f64 * max_lateness.fraction()).max(MAX_LATE_NS as f64);
    let message = if packets == 0 {
        "it carried no packet".to_owned()
    } else if dropped > 0 {
        format!("it dropped {dropped} packets because its buffer was full")
    } else if late_ns_mean as f64 > tolerated_ns {
        format!("its packets were {:.2} ms late on average", late_ns_mean as f64 * 1e-6)
    } else {
        return Ok(());
    };
    Err(VoidReason::Link { message })
}

/// TCP's handshake must take one round trip of the link. Not checked for links without a single round-trip time, nor if the
/// handshake ends on this machine.
fn check_connect_time(
    cell: &Cell,
    measured: &Measured,
    max_lateness: LatenessLimit,
) -> Result<(), VoidReason> {
    let (Some(used), Some(took_ns)) = (measured.link, measured.load.tcp_connect_ns_p50) else {
        return Ok(());
    };
    let crosses = match cell.treatment.path {
        Path::Plain | Path::Compressed(_) | Path::Tls(_) => used.by != LinkKind::Relay,
        Path::Unix | Path::Tunnel(_) | Path::Proxy(_) => false,
    };
    let is_one_number =
        cell.treatment.link.shape() == Some(LinkShape::of_rtt_us((used.rtt_ns / 1_000) as u32));
    if !crosses || !is_one_number || used.rtt_ns < SHORTEST_RTT_NS {
        return Ok(());
    }
    let share = (max_lateness.fraction() * CONNECTS_PER_PACKETS).min(1.0);
    let tolerated_ns = ((used.rtt_ns as f64 * share) as u64).max(MAX_CONNECT_OFF_NS);
    if took_ns.abs_diff(used.rtt_ns) <= tolerated_ns {
        return Ok(());
    }
    let [connect, round_trip] = [took_ns, used.rtt_ns].map(|ns| format!("{:.1} ms", ns as f64 * 1e-6));
    let message = format!("the median TCP connect took {connect}, but its round trip is {round_trip}");
    Err(VoidReason::Link { message })
}

/// The tunnel must have the planned cipher and carry all operations.
fn check_tunnel(cell: &Cell, measured: &Measured) -> Result<(), VoidReason> {
    let Some(tunnel) = cell.treatment.path.as_tunnel() else { return Ok(()) };
    let Some(TunnelUse { leg, sent_bytes, .. }) = &measured.tunnel else {
        return Err(VoidReason::Tunnel { message: "there was none".to_owned() });
    };
    let observed = leg.suite.as_deref().unwrap_or("no reported cipher");
    if let Some(planned) = tunnel.cipher().filter(|planned| *planned != observed) {
        return Err(negotiated(planned, observed));
    }
    // Every operation sends at least one byte.
    if *sent_bytes < measured.load.operations {
        let message = format!("it carried {sent_bytes} bytes for {} operations", measured.load.operations);
        return Err(VoidReason::Tunnel { message });
    }
    Ok(())
}

/// A proxy must pool and encrypt its server connections, as the server reports.
fn check_proxy(cell: &Cell, proxy: Proxy, measured: &Measured) -> Result<(), VoidReason> {
    let void = |message: String| Err(VoidReason::Proxy { message });
    let Some(used) = &measured.proxy else { return void("there was none".to_owned()) };
    if let Some(count) = used.in_the_clear.filter(|count| *count > 0) {
        return void(format!("{count} of its connections to the server were not encrypted"));
    }
    if used.legs.is_empty() {
        return void("the server reports no connection from it".to_owned());
    }
    let behind = proxy.upstream_tls();
    let words = |version: Option<&str>, key: Option<&str>, group: Option<&str>| {
        // If the level leaves the group open, any group is as planned.
        let group = match behind.group {
            Some(_) => format!(" {}", group.unwrap_or("no reported group")),
            None => String::new(),
        };
        let (version, key) = (version.unwrap_or(NO_TLS), key.unwrap_or("no key"));
        format!("{version} {key}{group} between proxy and server")
    };
    let [key, group] = [behind.key.map(ServerKey::label), behind.group.map(Group::label)];
    let planned = words(Some(behind.version.label()), key, group);
    for LegCount { leg, .. } in &used.legs {
        let observed = words(leg.tls_version.as_deref(), leg.key.as_deref(), leg.group.as_deref());
        if observed != planned {
            return Err(negotiated(planned, observed));
        }
    }
    check_pooling(cell, used, measured)
}

fn check_pooling(cell: &Cell, used: &ProxyUse, measured: &Measured) -> Result<(), VoidReason> {
    let operations = measured.load.operations;
    let per_operation = cell.workload.connection_use() == ConnectionUse::PerOperation;
    // A driver that does not count its connections has made at least one per operation.
    let seen = measured.load.legs.iter().map(|leg| leg.connections).sum::<u64>();
    let made = seen.max(if per_operation { operations } else { 0 });
    let tolerated = ((made as f64 * MAX_UNPOOLED) as u64).max(used.pool_size + FEW_CONNECTIONS);
    if let Some(count) = used.connections.filter(|count| *count > tolerated) {
        let message =
            format!("it does not pool: the server counted {count} connections for {made} client connections");
        return Err(VoidReason::Proxy { message });
    }
    // Clients that only connect send no request to a server that is already connected.
    let says_something = cell.workload != Workload::Connect;
    if let Some(count) = used.requests.filter(|count| says_something && *count < operations) {
        let message = format!("the server counted {count} requests for {operations} operations");
        return Err(VoidReason::Proxy { message });
    }
    Ok(())
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

/// With separate processors, the server must be the limit, not the clients.
fn check_client_saturation(measured: &Measured) -> Result<(), VoidReason> {
    let (Some(apart), Some(server)) = (measured.apart, &measured.server) else { return Ok(()) };
    let window_ns = measured.load.window_ns as f64;
    let busy = |cpu_ns: u64, processors: usize| cpu_ns as f64 / (window_ns * processors as f64);
    let client = busy(measured.load.client_cpu_ns, apart.client);
    let server = busy(server.cpu_ns, apart.server);
    if client > SATURATED && server < WITH_TIME_TO_SPARE {
        let (client_percent, server_percent) = (client * 100.0, server * 100.0);
        return Err(VoidReason::ClientSaturated { client_percent, server_percent });
    }
    Ok(())
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
    if cell.treatment.link == Link::Local && DELAYED_ACK_NS.contains(&measured.load.latency.p50_ns) {
        flags.push(Flag::DelayedAck);
    }
    flags
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
    metrics.extend(server.iter().flat_map(|server| counted(server, load.operations_in_all)));
    for (phase, sum_ns) in &load.phase_sums_ns {
        metrics.insert(Metric::of_phase(*phase), *sum_ns as f64 / operations);
    }
    metrics
}

/// The server's counts per operation over the whole trial, and the sync latency before it.
fn counted(server: &ServerUse, operations: Option<u64>) -> impl Iterator<Item = (Metric, f64)> {
    let ServerUse { counted, syncs, .. } = *server;
    let crossings = counted.pages_read.zip(counted.pages_written).map(|(read, written)| read + written);
    let per_operation = [
        (Metric::PagesReadPerOperation, counted.pages_read),
        (Metric::PagesWrittenPerOperation, counted.pages_written),
        (Metric::PageCrossingsPerOperation, crossings),
        (Metric::WalBytesPerOperation, counted.wal_bytes),
        (Metric::FullPageImagesPerOperation, counted.full_page_images),
        (Metric::WalSyncsPerOperation, counted.wal_syncs),
    ];
    let as_they_are = [
        (Metric::CheckpointsBegun, counted.checkpoints_begun),
        (Metric::CheckpointsCompleted, counted.checkpoints_completed),
        (Metric::CheckpointAgeBytes, counted.checkpoint_age_bytes),
        (Metric::FsyncNsP50, syncs.map(|syncs| syncs.p50_ns)),
        (Metric::FsyncNsP99, syncs.and_then(|syncs| syncs.p99_ns)),
    ];
    let operations = operations.filter(|operations| *operations > 0);
    let per_operation = per_operation
        .into_iter()
        .filter_map(move |(metric, count)| Some((metric, count? as f64 / operations? as f64)));
    per_operation.chain(as_they_are.into_iter().filter_map(|(metric, count)| Some((metric, count? as f64))))
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

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
