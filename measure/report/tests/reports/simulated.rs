//! A run as events, so that there are blocks to look at: known ratios under a noise that is the same in
//! every test.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Arm, Cell, Ending, Event, LegCount, Metric, Observation, Path, Phase, Plan, Spec, TlsVersion, Workload,
};

use crate::fixture::{Run, leg, primitives, prologue};

/// Plain, TLS 1.3 and TLS 1.2 under connects at one client and selects at 1, 8 and 32.
pub(crate) fn simulated() -> Run {
    let spec = "[[grid]]\npath = [\"plain\", \"tls1.3-p256\", \"tls1.2-p256\"]\nworkload = [\"connect\"]\n\
                clients = [1]\n\
                [[grid]]\npath = [\"plain\", \"tls1.3-p256\", \"tls1.2-p256\"]\nworkload = \
                [\"point-select\"]\nclients = [1, 8, 32]\n";
    let plan = Plan::new(&Spec::from_toml(spec).unwrap(), 42).unwrap();
    let mut run = Run { events: Vec::new(), analysis: ciphertoll_stats::analyse(&plan, &[]), plan };
    prologue(&mut run);
    run.push(primitives());
    let mut noise = Noise(7);
    for block in run.plan.blocks.clone() {
        run.push(Event::BlockStarted { block: block.number });
        for visit in block.visits {
            let cell = run.plan.cells[visit.cell].clone();
            // The connects of TLS 1.3 become slower over the run: a drift to be seen.
            let drifts = cell.workload == Workload::Connect && is_tls13(&cell) && visit.arm == Arm::Main;
            let drift = if drifts { 1.0 + 0.015 * f64::from(block.number) } else { 1.0 };
            let observation = Box::new(observation(&cell, drift, &mut noise));
            let cell = cell.id();
            run.push(Event::TrialFinished { block: block.number, cell, arm: visit.arm, observation });
        }
        run.push(Event::BlockFinished { block: block.number });
    }
    run.end(Ending::Complete);
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    run
}

/// A linear congruential generator: its quality is that it never changes.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A factor within ±3 % of 1.
    pub(crate) fn factor(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + 0.06 * ((self.0 >> 40) as f64 / f64::from(1 << 24) - 0.5)
    }
}

fn is_tls13(cell: &Cell) -> bool {
    version(cell) == Some(TlsVersion::Tls13)
}

fn version(cell: &Cell) -> Option<TlsVersion> {
    cell.treatment.path.as_tls().map(|tls| tls.parameters.version)
}

fn observation(cell: &Cell, drift: f64, noise: &mut Noise) -> Observation {
    let metrics = match cell.workload {
        Workload::Connect => connect(cell, drift, noise),
        _ => select(cell, noise),
    };
    let connections = if cell.workload == Workload::Connect { 1_000 } else { 8 };
    Observation {
        operations: metrics[&Metric::RatePerS] as u64,
        metrics,
        window_ns: 1_000_000_000,
        legs: vec![LegCount { connections, ..leg(cell.treatment.path, connections) }],
        flags: Vec::new(),
        absent: BTreeMap::new(),
        hosts: None,
    }
}

fn connect(cell: &Cell, drift: f64, noise: &mut Noise) -> BTreeMap<Metric, f64> {
    let tls = |share: f64| if cell.treatment.path == Path::Plain { 0.0 } else { share };
    let phases = [
        (Phase::TcpConnect, 41e3),
        (Phase::ServerGreeting, 38e3),
        (Phase::TlsContext, tls(182e3)),
        (Phase::TlsRequest, tls(4e3)),
        (Phase::TlsHandshake, tls(if is_tls13(cell) { 224e3 } else { 178e3 })),
        (Phase::Auth, 106e3),
        (Phase::Close, 12e3),
    ];
    let mut metrics = BTreeMap::new();
    let mut total = 0.0;
    for (phase, mean) in phases.into_iter().filter(|(_, mean)| *mean > 0.0) {
        let spent = mean * drift * noise.factor();
        total += spent;
        metrics.insert(Metric::of_phase(phase), spent);
    }
    tail(&mut metrics, total, noise);
    metrics.insert(Metric::RatePerS, 1e9 / total);
    cpu(&mut metrics, total / 1e3 * 0.6, total / 1e3 * 0.3, noise);
    metrics
}

fn select(cell: &Cell, noise: &mut Noise) -> BTreeMap<Metric, f64> {
    let clients = f64::from(cell.clients.count());
    let slower = version(cell).map_or(1.0, |_| 1.13) * noise.factor();
    let rate = 12_000.0 * clients / (1.0 + clients / 4.0) / slower;
    let mut metrics = BTreeMap::from([(Metric::RatePerS, rate)]);
    tail(&mut metrics, clients / rate * 1e9, noise);
    cpu(&mut metrics, 8.0 * slower, 47.0 * slower, noise);
    metrics
}

fn tail(metrics: &mut BTreeMap<Metric, f64>, mean: f64, noise: &mut Noise) {
    metrics.insert(Metric::LatencyNsMean, mean);
    for (metric, times) in
        [(Metric::LatencyNsP50, 0.95), (Metric::LatencyNsP95, 1.6), (Metric::LatencyNsP99, 2.3)]
    {
        metrics.insert(metric, mean * times * noise.factor());
    }
}

fn cpu(metrics: &mut BTreeMap<Metric, f64>, client: f64, server: f64, noise: &mut Noise) {
    let (client, server) = (client * noise.factor(), server * noise.factor());
    metrics.insert(Metric::CpuUsPerOpClient, client);
    metrics.insert(Metric::CpuUsPerOpServer, server);
    metrics.insert(Metric::CpuUsPerOpTotal, client + server);
}
