//! From what a trial measured to what may be believed: gates void a trial that did not do what its
//! name says, flags mark one that needs a second look. Pure.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Auth, Cell, Compressor, ConnectionUse, Driver, Engine, Flag, Group, Iterations, LatencySummary,
    LatenessLimit, Leg, LegCount, Link, LinkKind, LinkShape, Metric, NoiseLimits, Observation, Path, Proxy,
    ProxyFront, Resumption, ServerKey, Settings, StealLimit, Suite, TlsLibrary, TlsPath, TlsVersion,
    Treatment, TrialResult, VoidReason, Workload,
};

use crate::absent::{MIN_CPU_NS, MIN_SAMPLES_P95, MIN_SAMPLES_P99, absences, knows_middle, roles};
use crate::bench::{LinkUse, Measured, ProxyUse, ServerUse, TunnelUse};

/// Steal is counted in ticks of 10 ms: less than this is the clock's grain, which in a short window
/// is more than the share that a plan allows.
const MIN_STEAL_NS: u64 = 30_000_000;
/// `TIME_WAIT` beyond this share of the usable ports voids the trial.
const MAX_PORTS_IN_TIME_WAIT: f64 = 0.80;
/// CPU that no role accounts for, beyond this share of the machine's busy time, is flagged.
const MAX_CPU_ELSEWHERE: f64 = 0.05;
/// The machine's busy time is counted in ticks of 10 ms: over a long link, where all wait, less than this is the clock's
/// grain, and more than the share above.
const MIN_CPU_ELSEWHERE_NS: f64 = 30e6;
/// Halves of a window may differ by this share, or by what counting alone explains.
const STEADY_TOLERANCE: f64 = 0.10;
/// Standard errors of a count's noise that halves may differ by.
const STEADY_SIGMAS: f64 = 3.0;
/// A median here on a local path is Nagle waiting for a delayed ACK, not a server.
const DELAYED_ACK_NS: std::ops::RangeInclusive<u64> = 38_000_000..=46_000_000;
/// Pages from disk beyond this share of the operations void a trial on cached rows; a few are the
/// server's own housekeeping.
const MAX_BUFFER_MISSES: f64 = 0.001;
/// The same where rows are written: tables grow, and what is written out may be read back. Rows that
/// are not cached cost every operation a page.
const MAX_BUFFER_MISSES_WRITING: f64 = 0.05;
/// So few pages void no trial with writes, be it ever so short.
const FEW_PAGES: u64 = 64;
/// The schedule's lag may reach this share of the median time …
const MAX_LAG_SHARE: f64 = 0.10;
/// … or this, which is how late a shared machine wakes a process.
const MAX_LAG_NS: u64 = 2_000_000;
/// Processors of the clients' own that are busier than this, while the server's are less busy than
/// that, measure the clients.
const SATURATED: f64 = 0.80;
const WITH_TIME_TO_SPARE: f64 = 0.60;
/// Packets may be late by the share of the round trip that the plan allows, on average, or by this, which is how late a
/// shared machine wakes a thread.
const MAX_LATE_NS: u64 = 500_000;
/// The median TCP connect may be off the round trip by so many times the share that packets may be late by on average …
const CONNECTS_PER_PACKETS: f64 = 10.0;
/// … or by this: on a shared machine, both ends have to be woken.
const MAX_CONNECT_OFF_NS: u64 = 1_000_000;
/// On shorter links this machine's own part of a connect is too large a share.
const SHORTEST_RTT_NS: u64 = 5_000_000;
/// New server connections beyond this share of the clients' own void a trial through a proxy: it does not pool …
const MAX_UNPOOLED: f64 = 0.10;
/// … unless they are no more than its pool holds, and these few that replace what broke.
const FEW_CONNECTIONS: u64 = 8;
/// The observation that a trial yields, or why it is void.
pub fn judge(
    cell: &Cell,
    measured: &Measured,
    noise: NoiseLimits,
    settings: &Settings,
) -> Result<Observation, VoidReason> {
    pass_gates(cell, measured, settings)?;
    is_as_long_as_it_should_be(measured, noise.lateness)?;
    takes_a_round_trip_to_connect(cell, measured, noise.lateness)?;
    had_its_processors(measured, noise.steal)?;
    let metrics = metrics(measured);
    Ok(Observation {
        absent: absences(measured, &metrics),
        metrics,
        operations: measured.load.operations,
        window_ns: measured.load.window_ns,
        legs: legs(measured),
        flags: flags(cell, measured),
    })
}

fn pass_gates(cell: &Cell, measured: &Measured, settings: &Settings) -> Result<(), VoidReason> {
    let Measured { load, server, machine, .. } = measured;
    if let Some(worst) = load.errors.iter().max_by_key(|error| error.count) {
        let count = load.errors.iter().map(|error| error.count).sum();
        return Err(VoidReason::OperationErrors { count, message: worst.message.clone() });
    }
    if load.operations == 0 {
        return Err(VoidReason::NoOperations);
    }
    went_through_the_tunnel(cell, measured)?;
    if let Some(proxy) = cell.treatment.path.as_proxy() {
        was_pooled(cell, proxy, measured)?;
    }
    keeps_its_schedule(load)?;
    is_not_the_limit(measured)?;
    for LegCount { leg, .. } in &load.legs {
        negotiated_as_planned(cell, leg)?;
        compressed_as_planned(cell, leg)?;
        authenticated_as_planned(cell, leg)?;
    }
    if let Some(server) = server.as_ref().filter(|_| cell.is_meant_to_be_cached(settings)) {
        finds_its_pages(cell, server, load.operations)?;
    }
    let ports = load.usable_ports.map_or(0.0, |usable| ratio(machine.time_wait_sockets, usable));
    if ports > MAX_PORTS_IN_TIME_WAIT {
        return Err(VoidReason::PortsExhausted { percent: ports * 100.0 });
    }
    Ok(())
}

/// What a hypervisor takes is missing unevenly.
fn had_its_processors(measured: &Measured, max_steal: StealLimit) -> Result<(), VoidReason> {
    let machine = &measured.machine;
    let steal = ratio(machine.steal_ns, machine.busy_ns + machine.steal_ns);
    if steal > max_steal.fraction() && machine.steal_ns > MIN_STEAL_NS {
        return Err(VoidReason::Steal { percent: steal * 100.0 });
    }
    Ok(())
}

/// The level says what must have been negotiated; what was observed on every connection decides.
fn negotiated_as_planned(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let Some(tls) = cell.treatment.path.as_tls() else {
        return match &leg.tls_version {
            None => Ok(()),
            Some(version) => {
                let (planned, observed) = ("no TLS".to_owned(), version.clone());
                Err(VoidReason::Negotiated { planned, observed })
            }
        };
    };
    let resumes = tls.resumption != Resumption::Never;
    // Not every library tells everything; ours do. What is not for us to choose is as planned whatever it is.
    let native = cell.treatment.driver == Driver::Native;
    let told = |observed: Option<&str>, planned: Option<&str>, absent: &str| {
        let untold = if native { absent } else { planned.unwrap_or(absent) };
        observed.unwrap_or(untold).to_owned()
    };
    let seen = Words {
        version: leg.tls_version.clone().unwrap_or_else(|| NO_TLS.to_owned()),
        key: told(leg.key.as_deref(), tls.key.map(ServerKey::label), "no key"),
        handshake: if leg.resumed == Some(true) { "resumed" } else { "full" }.to_owned(),
        suite: told(leg.suite.as_deref(), tls.suite.map(Suite::iana), "no suite"),
        group: told(leg.group.as_deref(), tls.group.map(Group::label), "no group"),
        chain: leg.chain.map(|chain| chain.to_string()),
        library: told(leg.library.as_deref().filter(|_| native), Some(tls.library.label()), "no library"),
    };
    let or_seen = |planned: Option<&str>, seen: &str| planned.unwrap_or(seen).to_owned();
    let planned = Words {
        version: tls.version.label().to_owned(),
        key: or_seen(tls.key.map(ServerKey::label), &seen.key),
        handshake: if resumes { "resumed" } else { "full" }.to_owned(),
        suite: or_seen(tls.suite.map(Suite::iana), &seen.suite),
        // Before TLS 1.3 a resumed session exchanges no keys.
        group: or_seen(
            tls.group.map(Group::label).filter(|_| !resumes || tls.version == TlsVersion::Tls13),
            &seen.group,
        ),
        // No certificate is sent to whom resumes, and not every driver tells.
        chain: match (tls.chain, &seen.chain) {
            (Some(chain), Some(_)) => Some(chain.to_string()),
            _ => seen.chain.clone(),
        },
        library: tls.library.label().to_owned(),
    };
    if planned == seen {
        return Ok(());
    }
    let [planned, observed] = [planned, seen].map(|words| words.told(tls));
    Err(VoidReason::Negotiated { planned, observed })
}

/// A server that does not agree on the compressor is not measured without it.
fn compressed_as_planned(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    let planned = cell.treatment.path.compressor().map(Compressor::label);
    if planned == leg.compressor.as_deref() {
        return Ok(());
    }
    let told = |compressor: Option<&str>| {
        compressor.map_or_else(|| "no compression".to_owned(), |name| format!("compressed by {name}"))
    };
    let (planned, observed) = (told(planned), told(leg.compressor.as_deref()));
    Err(VoidReason::Negotiated { planned, observed })
}

const NO_TLS: &str = "no TLS";

/// What a connection has agreed on, or was to agree on.
#[derive(PartialEq)]
struct Words {
    version: String,
    key: String,
    handshake: String,
    suite: String,
    group: String,
    /// How many certificates were sent.
    chain: Option<String>,
    library: String,
}

impl Words {
    /// `tls1.3 p256 full`, with suite and group where they were asked for; OpenSSL goes without saying.
    fn told(self, asked: TlsPath) -> String {
        let Self { version, key, handshake, suite, group, chain, library } = self;
        if version == NO_TLS {
            return version;
        }
        let suite = asked.suite.map(|_| suite);
        let group = asked.group.map(|_| group);
        let chain = asked.chain.and(chain).map(|chain| format!("chain of {chain}"));
        let by = (library != TlsLibrary::OpenSsl.label()).then(|| format!("by {library}"));
        let more = [suite, group, chain, by].into_iter().flatten();
        [version, key, handshake].into_iter().chain(more).collect::<Vec<_>>().join(" ")
    }
}

/// Rows that are meant to be cached are not read from disk: all, unless smaller buffers were asked for.
fn finds_its_pages(cell: &Cell, server: &ServerUse, operations: u64) -> Result<(), VoidReason> {
    // One that does not count them is believed.
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

/// A link that is starved of CPU is longer than its name says.
fn is_as_long_as_it_should_be(measured: &Measured, max_lateness: LatenessLimit) -> Result<(), VoidReason> {
    let Some(LinkUse { rtt_ns, packets, dropped, late_ns_mean, .. }) = measured.link else { return Ok(()) };
    let tolerated_ns = (rtt_ns as f64 * max_lateness.fraction()).max(MAX_LATE_NS as f64);
    let message = if packets == 0 {
        "no packet went over it".to_owned()
    } else if dropped > 0 {
        format!("it dropped {dropped} packets for want of room")
    } else if late_ns_mean as f64 > tolerated_ns {
        format!("its packets were {:.2} ms late, on average", late_ns_mean as f64 * 1e-6)
    } else {
        return Ok(());
    };
    Err(VoidReason::Link { message })
}

/// TCP's handshake takes one round trip of the link, which is known: connects that took longer, or less, measured something
/// else beside it. Not asked of links whose round trip is not one number, nor where the handshake goes no further than this
/// machine.
fn takes_a_round_trip_to_connect(
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
    let message = format!("the median TCP connect took {connect} where its round trip is {round_trip}");
    Err(VoidReason::Link { message })
}

/// What the level says must have been agreed on by the tunnel's ends, and everything must have gone through it.
fn went_through_the_tunnel(cell: &Cell, measured: &Measured) -> Result<(), VoidReason> {
    let Some(tunnel) = cell.treatment.path.as_tunnel() else { return Ok(()) };
    let Some(TunnelUse { leg, sent_bytes, .. }) = &measured.tunnel else {
        return Err(VoidReason::Tunnel { message: "there was none".to_owned() });
    };
    let observed = leg.suite.as_deref().unwrap_or("no cipher that it tells of");
    if let Some(planned) = tunnel.cipher().filter(|planned| *planned != observed) {
        let (planned, observed) = (planned.to_owned(), observed.to_owned());
        return Err(VoidReason::Negotiated { planned, observed });
    }
    // An operation sends something, if only that it is over.
    if *sent_bytes < measured.load.operations {
        let message =
            format!("{sent_bytes} bytes went through it for {} operations", measured.load.operations);
        return Err(VoidReason::Tunnel { message });
    }
    Ok(())
}

/// A proxy must have pooled, and encrypted what it has pooled: both are told by the server.
fn was_pooled(cell: &Cell, proxy: Proxy, measured: &Measured) -> Result<(), VoidReason> {
    let void = |message: String| Err(VoidReason::Proxy { message });
    let Some(used) = &measured.proxy else { return void("there was none".to_owned()) };
    if let Some(count) = used.in_the_clear.filter(|count| *count > 0) {
        return void(format!("{count} of its connections to the server were not encrypted"));
    }
    if used.legs.is_empty() {
        return void("the server knows of no connection of its".to_owned());
    }
    let words = |version: Option<&str>, key: Option<&str>| {
        format!("{} {} behind the proxy", version.unwrap_or(NO_TLS), key.unwrap_or("no key"))
    };
    let behind = proxy.behind();
    let planned = words(Some(behind.version.label()), behind.key.map(ServerKey::label));
    for LegCount { leg, .. } in &used.legs {
        let observed = words(leg.tls_version.as_deref(), leg.key.as_deref());
        if observed != planned {
            return Err(VoidReason::Negotiated { planned, observed });
        }
    }
    pools(cell, used, measured)
}

fn pools(cell: &Cell, used: &ProxyUse, measured: &Measured) -> Result<(), VoidReason> {
    let operations = measured.load.operations;
    let per_operation = cell.workload.connection_use() == ConnectionUse::PerOperation;
    // Whoever cannot tell of its connections has made one for each operation at least.
    let seen = measured.load.legs.iter().map(|leg| leg.connections).sum::<u64>();
    let made = seen.max(if per_operation { operations } else { 0 });
    let tolerated = ((made as f64 * MAX_UNPOOLED) as u64).max(used.pool_size + FEW_CONNECTIONS);
    if let Some(count) = used.connections.filter(|count| *count > tolerated) {
        let message =
            format!("it does not pool: the server counted {count} connections where clients made {made}");
        return Err(VoidReason::Proxy { message });
    }
    // Who only connects has nothing to say to a server that is connected already.
    let says_something = cell.workload != Workload::Connect;
    if let Some(count) = used.requests.filter(|count| says_something && *count < operations) {
        let message = format!("{count} requests came to the server for {operations} operations");
        return Err(VoidReason::Proxy { message });
    }
    Ok(())
}

/// An open loop that falls behind, or starts late though clients are free, measures itself.
fn keeps_its_schedule(load: &TrialResult) -> Result<(), VoidReason> {
    if load.unfinished > 0 {
        return Err(VoidReason::Overload { unfinished: load.unfinished });
    }
    let (Some(lag), Some(service)) = (&load.schedule_lag, &load.service) else { return Ok(()) };
    let tolerated = (load.latency.p50_ns as f64 * MAX_LAG_SHARE).max(MAX_LAG_NS as f64);
    if lag.p99_ns as f64 > tolerated {
        return Err(VoidReason::ScheduleLag { lag_ns_p99: lag.p99_ns, service_ns_p50: service.p50_ns });
    }
    Ok(())
}

/// Where client and server have processors of their own, the server's are to be the limit.
fn is_not_the_limit(measured: &Measured) -> Result<(), VoidReason> {
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

/// What the server really asked for, on every connection. A driver that cannot tell says nothing.
fn authenticated_as_planned(cell: &Cell, leg: &Leg) -> Result<(), VoidReason> {
    if let Some(proxy) = cell.treatment.path.as_proxy() {
        return let_in_as_planned(cell, proxy, leg);
    }
    let planned = match (cell.treatment.server.engine, cell.treatment.auth) {
        (_, Auth::AsAsked) => return Ok(()),
        // There, trust is an account whose password is empty. Who has shown a certificate in the handshake is
        // asked for nothing after it; that there is no way around it, the server's rule for the account sees to.
        (Engine::MariaDb | Engine::MySql, Auth::Trust | Auth::Cert) => "empty".to_owned(),
        (Engine::Postgres, Auth::Cert) => Auth::Trust.to_string(),
        (_, auth) => auth.to_string(),
    };
    // Of how many iterations is for the server to say, where the level does not.
    let is_as_planned = |observed: &str| match cell.treatment.auth {
        Auth::ScramSha1 => observed.strip_prefix(&planned).is_some_and(|rest| rest.starts_with('-')),
        _ => observed == planned,
    };
    match &leg.auth {
        Some(observed) if !is_as_planned(observed) => {
            Err(VoidReason::Authenticated { observed: observed.clone(), planned })
        }
        _ => Ok(()),
    }
}

/// In front of a proxy: on a unix socket nobody is asked for anything, by TCP for the password. That the proxy itself logs
/// in to `PostgreSQL` as the level says, the server's rule for the account sees to. What happens in front of proxies for
/// MySQL's protocol is for each of them to say.
fn let_in_as_planned(cell: &Cell, proxy: Proxy, leg: &Leg) -> Result<(), VoidReason> {
    let Treatment { server, auth, .. } = &cell.treatment;
    let planned = match (server.engine, proxy.front, auth) {
        // No proxy speaks the protocol of documents.
        (Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb, _, _) => return Ok(()),
        (Engine::Postgres, ProxyFront::Unix, _) | (Engine::Postgres, ProxyFront::Tcp, Auth::Trust) => {
            Auth::Trust
        }
        (Engine::Postgres, ProxyFront::Tcp, _) => Auth::scram(Iterations::POSTGRES_DEFAULT),
    };
    let planned = planned.to_string();
    match &leg.auth {
        Some(observed) if *observed != planned => {
            Err(VoidReason::Authenticated { planned, observed: observed.clone() })
        }
        _ => Ok(()),
    }
}

/// What clients have seen, and what was seen of the tunnel between or of the proxy's connections.
fn legs(measured: &Measured) -> Vec<LegCount> {
    let tunnel = measured.tunnel.iter().map(|used| LegCount { leg: used.leg.clone(), connections: 1 });
    let proxy = measured.proxy.iter().flat_map(|used| used.legs.iter().cloned());
    measured.load.legs.iter().cloned().chain(tunnel).chain(proxy).collect()
}

fn flags(cell: &Cell, measured: &Measured) -> Vec<Flag> {
    let mut flags = Vec::new();
    flags.extend(unsteady(&measured.load));
    let busy = measured.machine.busy_ns;
    let link_cpu_ns = measured.link.map_or(Some(0), |link| link.cpu_ns);
    // A server that is not ours has no part in it, or an unknown one.
    if let (Some(server), Some(link_cpu_ns), true) = (&measured.server, link_cpu_ns, knows_middle(measured)) {
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

/// What the server counted in the whole trial, by the operations of the whole trial, and how long syncs took before.
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

/// Mean, median, 95th and 99th percentile, and from how many samples each is carried.
type Times = [(Metric, u64, fn(&LatencySummary) -> f64); 4];

const LATENCY: Times =
    of_summary([Metric::LatencyNsMean, Metric::LatencyNsP50, Metric::LatencyNsP95, Metric::LatencyNsP99]);
const SERVICE: Times =
    of_summary([Metric::ServiceNsMean, Metric::ServiceNsP50, Metric::ServiceNsP95, Metric::ServiceNsP99]);

const fn of_summary([mean, p50, p95, p99]: [Metric; 4]) -> Times {
    [
        (mean, 1, |summary| summary.sum_ns as f64 / summary.count as f64),
        (p50, 1, |summary| summary.p50_ns as f64),
        (p95, MIN_SAMPLES_P95, |summary| summary.p95_ns as f64),
        (p99, MIN_SAMPLES_P99, |summary| summary.p99_ns as f64),
    ]
}

/// What a summary says; zeros are what a driver does not know.
fn times(summary: &LatencySummary, of: Times) -> impl Iterator<Item = (Metric, f64)> {
    of.into_iter()
        .filter(|(_, samples, _)| summary.count >= *samples)
        .map(|(metric, _, value)| (metric, value(summary)))
        .filter(|(_, value)| *value > 0.0)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
