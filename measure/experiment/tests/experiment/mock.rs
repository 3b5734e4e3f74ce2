//! A simulated testbed with known ratios, noise and drift. Tests run the whole pipeline (plan, gates, record, verdicts) on it
//! without a server.

use std::collections::BTreeMap;

use ciphertoll_experiment::{
    Emit, MachineUse, Measured, ProxyUse, ReadyTestbed, ServerUse, Testbed, TestbedError, TrialError,
    TrialRequest, TunnelCpu, TunnelUse,
};
use ciphertoll_lab::Counters;
use ciphertoll_model::{
    Cell, ChainLength, ConnectionUse, CpuPart, Environment, Event, KeyExchangeTime, LatencySummary, Leg,
    LegCount, Phase, Plan, Profile, ProfiledRole, Proxy, Resumption, SignatureTime, TrialPace, TrialResult,
    Tunnel, VoidReason,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Mean latency of a plain operation.
const PLAIN_OPERATION_NS: f64 = 200_000.0;
/// CPU time of client and server as shares of the latency.
const CLIENT_CPU_SHARE: f64 = 0.45;
const SERVER_CPU_SHARE: f64 = 0.55;

/// Decides which trials fail, and how.
pub(crate) type Fault<'a> = Box<dyn FnMut(&TrialRequest<'_>) -> Option<VoidReason> + 'a>;

/// What the mock does instead of measuring.
pub(crate) struct MockTestbed<'a> {
    /// The true ratio of an operation's latency to that of a plain one.
    pub(crate) factor: Box<dyn Fn(&TrialRequest<'_>) -> f64 + 'a>,
    /// Fails a trial.
    pub(crate) fault: Fault<'a>,
    /// Called before each trial, to count or interrupt.
    pub(crate) before: Box<dyn FnMut(&TrialRequest<'_>) + 'a>,
    /// Standard deviation of a trial's log-noise.
    pub(crate) noise: f64,
    /// Standard deviation of the machine's drift from trial to trial, log scale.
    pub(crate) drift: f64,
    speed: f64,
    random: Pcg64Mcg,
    /// Every call in order.
    pub(crate) log: Vec<String>,
}

impl<'a> MockTestbed<'a> {
    /// A mock on which every operation takes `factor` times the latency of a plain one.
    pub(crate) fn new(seed: u64, factor: impl Fn(&TrialRequest<'_>) -> f64 + 'a) -> Self {
        Self {
            factor: Box::new(factor),
            fault: Box::new(|_| None),
            before: Box::new(|_| ()),
            noise: 0.01,
            drift: 0.01,
            speed: 0.0,
            random: Pcg64Mcg::seed_from_u64(seed),
            log: Vec::new(),
        }
    }

    /// Approximately standard normal: the sum of twelve uniforms.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0
    }

    fn measure(&mut self, request: &TrialRequest<'_>) -> Measured {
        self.speed += self.drift * self.normal();
        let log_noise = self.speed + self.noise * self.normal();
        let operation_ns = PLAIN_OPERATION_NS * (self.factor)(request) * log_noise.exp();
        let window_ns = request.timing.window.duration().as_nanos() as u64;
        let clients = f64::from(request.cell.clients.count());
        let capacity = clients * window_ns as f64 / operation_ns;
        let operations = match request.pace {
            TrialPace::Closed => capacity as u64,
            TrialPace::Open { per_s } => capacity.min(per_s * window_ns as f64 * 1e-9) as u64,
        };
        let path = request.cell.treatment.path;
        let sum_ns = (operations as f64 * operation_ns) as u64;
        let busy = operations as f64 * operation_ns;
        Measured {
            load: TrialResult {
                operations,
                operations_by_half: [operations.div_ceil(2), operations / 2],
                window_ns,
                latency: summary(operations, sum_ns, operation_ns),
                phase_sums_ns: phases(request.cell, sum_ns),
                legs: vec![LegCount {
                    leg: leg(request.cell),
                    connections: operations.max(1),
                    handshake: None,
                }],
                client_cpu_ns: (busy * CLIENT_CPU_SHARE) as u64,
                client_rss_peak_bytes: 8 << 20,
                usable_ports: Some(28_232 * 64),
                ..TrialResult::default()
            },
            server: Some(ServerUse {
                cpu_ns: (busy * SERVER_CPU_SHARE) as u64,
                rss_peak_bytes: Some(120 << 20),
                counted: Counters { buffer_misses: Some(0), ..Counters::default() },
                syncs: None,
            }),
            machine: MachineUse { busy_ns: busy as u64, steal_ns: 0, time_wait_sockets: 0 },
            middle_cpu_ns: 0,
            middle_rss_peak_bytes: None,
            tunnel: path.as_tunnel().map(|tunnel| tunnel_use(tunnel, operations)),
            proxy: path.as_proxy().map(|proxy| proxy_use(proxy, request.cell, operations)),
            apart: None,
            link: None,
            hosts: None,
            server_is_elsewhere: false,
        }
    }
}

impl Testbed for MockTestbed<'_> {
    type Ready<'r>
        = &'r mut Self
    where
        Self: 'r;

    fn sweep(&mut self, _: &mut Emit<'_>) -> Result<(), TestbedError> {
        self.log.push("sweep".to_owned());
        Ok(())
    }

    fn prepare(&mut self, plan: &Plan, emit: &mut Emit<'_>) -> Result<&mut Self, TestbedError> {
        self.log.push("prepare".to_owned());
        for server in plan.servers() {
            emit(Event::ServerReady {
                server: server.short_name(),
                version: "10.11.0-mock".to_owned(),
                tls_library: Some("OpenSSL 3.0.0 (mock)".to_owned()),
                settings: BTreeMap::new(),
                elapsed_ms: 1,
            });
        }
        Ok(self)
    }
}

impl ReadyTestbed for MockTestbed<'_> {
    fn environment(&self) -> Environment {
        Environment {
            cpu_model: "Mock CPU".to_owned(),
            cpus: 2,
            crypto_instructions: Vec::new(),
            memory_bytes: 8 << 30,
            kernel: "6.0.0-mock".to_owned(),
            os: "Mock OS".to_owned(),
            tls_library: "OpenSSL 3.0.0 (mock)".to_owned(),
            cpu_accounting: "mock".to_owned(),
        }
    }

    fn time_primitives(&mut self, _: &[&Cell], emit: &mut Emit<'_>) -> Result<(), TestbedError> {
        self.log.push("time primitives".to_owned());
        let signature = SignatureTime { sign_ns: 20_000, verify_ns: 60_000 };
        emit(Event::PrimitivesMeasured {
            signatures: [("p256".to_owned(), signature)].into(),
            key_exchanges: [("x25519".to_owned(), KeyExchangeTime { agree_ns: 60_000 })].into(),
        });
        Ok(())
    }

    fn begin_block(&mut self, _: &mut Emit<'_>) -> Result<(), TestbedError> {
        self.log.push("begin block".to_owned());
        Ok(())
    }

    fn up(&mut self, cell: &Cell, _: &mut Emit<'_>) -> Result<(), TrialError> {
        self.log.push(format!("up {}", cell.treatment.path));
        Ok(())
    }

    fn trial(&mut self, request: &TrialRequest<'_>) -> Result<Measured, TrialError> {
        self.log.push(format!("trial {} {:?}", request.cell.treatment.path, request.arm));
        (self.before)(request);
        match (self.fault)(request) {
            Some(reason) => Err(TrialError::Void(reason)),
            None => Ok(self.measure(request)),
        }
    }

    fn can_profile(&self) -> bool {
        true
    }

    fn profile(&mut self, request: &TrialRequest<'_>) -> Result<Result<Profile, String>, TrialError> {
        self.trial(request)?;
        let parts = [(CpuPart::Signature, 30), (CpuPart::Other, 70)].into();
        Ok(Ok(Profile { samples_per_s: 499, roles: [(ProfiledRole::Server, parts)].into() }))
    }

    fn down(&mut self) -> Result<(), TestbedError> {
        self.log.push("down".to_owned());
        Ok(())
    }
}

fn summary(count: u64, sum_ns: u64, operation_ns: f64) -> LatencySummary {
    LatencySummary {
        count,
        sum_ns,
        p50_ns: operation_ns as u64,
        p95_ns: (operation_ns * 1.3) as u64,
        p99_ns: (operation_ns * 1.8) as u64,
        max_ns: (operation_ns * 4.0) as u64,
    }
}

/// Phases that add up to the whole.
fn phases(cell: &Cell, sum_ns: u64) -> BTreeMap<Phase, u64> {
    if cell.workload.connection_use() == ConnectionUse::Pooled {
        return BTreeMap::new();
    }
    let of_tls: &[Phase] = match cell.treatment.path.as_tls() {
        None => &[],
        Some(_) => &[Phase::TlsContext, Phase::TlsRequest, Phase::TlsHandshake],
    };
    let names = [&[Phase::TcpConnect, Phase::ServerGreeting, Phase::Auth, Phase::Close], of_tls].concat();
    let share = sum_ns / names.len() as u64;
    let mut phases: BTreeMap<Phase, u64> = names.iter().map(|phase| (*phase, share)).collect();
    phases.insert(Phase::Close, sum_ns - share * (names.len() as u64 - 1));
    phases
}

fn tunnel_use(tunnel: Tunnel, operations: u64) -> TunnelUse {
    const SET_UP_NS: u64 = 200_000_000;
    const BYTES_PER_OPERATION: u64 = 400;
    let leg = Leg { suite: tunnel.cipher().map(str::to_owned), ..Leg::default() };
    TunnelUse {
        leg,
        set_up_ns: SET_UP_NS,
        cpu: TunnelCpu::OfEnds,
        sent_bytes: operations * BYTES_PER_OPERATION,
    }
}

fn proxy_use(proxy: Proxy, cell: &Cell, operations: u64) -> ProxyUse {
    const SET_UP_NS: u64 = 30_000_000;
    let (behind, clients) = (proxy.upstream_tls(), u64::from(cell.clients.count()));
    let leg = Leg {
        from: proxy.program.label().to_owned(),
        to: "server".to_owned(),
        tls_version: Some(behind.parameters.version.label().to_owned()),
        suite: Some("TLS_AES_256_GCM_SHA384".to_owned()),
        key: behind.key.map(|key| key.label().to_owned()),
        group: behind.parameters.group.map(|group| group.label().to_owned()),
        ..Leg::default()
    };
    ProxyUse {
        legs: vec![LegCount { leg, connections: clients, handshake: None }],
        set_up_ns: SET_UP_NS,
        connections: Some(clients),
        in_the_clear: Some(0),
        requests: Some(operations),
        pool_size: 2 * clients,
    }
}

/// Exactly the cell's parameters, so that it passes the gates.
fn leg(cell: &Cell) -> Leg {
    let tls = cell.treatment.path.as_tls();
    Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: tls.map(|tls| tls.parameters.version.label().to_owned()),
        suite: tls.map(|_| "TLS_AES_256_GCM_SHA384".to_owned()),
        group: tls.map(|_| "x25519".to_owned()),
        key: tls.and_then(|tls| tls.key).map(|key| key.label().to_owned()),
        resumed: tls.map(|tls| tls.resumption != Resumption::Never),
        chain: tls.and_then(|tls| tls.chain).map(ChainLength::count),
        hello_retry: tls.map(|_| false),
        auth: None,
        library: tls.map(|_| "openssl".to_owned()),
        compressor: cell.treatment.path.compressor().map(|compressor| compressor.label().to_owned()),
        signature: tls
            .filter(|tls| tls.resumption == Resumption::Never)
            .and_then(|tls| tls.key)
            .filter(|key| key.is_ml_dsa())
            .map(|key| key.label().to_owned()),
        library_version: None,
        unused_shares: Vec::new(),
    }
}
