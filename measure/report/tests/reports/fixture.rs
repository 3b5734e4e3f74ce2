//! Hand-made runs: a plan as the model lays it out, numbers as the statistics would find them.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Arm, Cell, CellId, CryptoInstruction, Ending, Engine, Environment, Event, Flag, HandshakeSize,
    KeyExchangeTime, KeyShare, Leg, LegCount, Metric, Path, Plan, ServerKey, ServerLevel, SignatureTime,
    Size, Skipped, Spec, Stratum, TimestampedEvent, TlsVersion, VoidReason, Workload,
};
use ciphertoll_report::RunReport;
use ciphertoll_stats::{
    Analysis, CellAnalysis, CellRole, Comparison, Doubt, Estimate, PairedRatio, RunFacts, StratumAnalysis,
    UnevenCheckpoints, Verdict, VoidedTrial,
};

pub(crate) const TLS13: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);
pub(crate) const TLS12: Path = Path::tls(TlsVersion::Tls12, ServerKey::P256);

/// A run that owns what a report borrows.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) events: Vec<TimestampedEvent>,
    pub(crate) analysis: Analysis,
}

impl Run {
    pub(crate) fn report(&self) -> RunReport<'_> {
        RunReport {
            run: "20261121T0930-quick-7f3a",
            plan: &self.plan,
            facts: RunFacts::of(&self.plan, &self.events),
            analysis: &self.analysis,
            core_price: None,
        }
    }

    /// The comparison of a path with the baseline path.
    pub(crate) fn comparison(&mut self, workload: Workload, path: Path) -> &mut Comparison {
        let is_wanted = |comparison: &&mut Comparison| {
            let Cell { treatment, workload: of, .. } = &comparison.cell.cell;
            (*of, treatment.path) == (workload, path)
        };
        self.own_comparisons().find(is_wanted).unwrap()
    }

    /// The cell of [`Run::comparison`].
    pub(crate) fn cell(&mut self, workload: Workload, path: Path) -> &mut CellAnalysis {
        &mut self.comparison(workload, path).cell
    }

    /// The comparisons with the run's own baseline.
    pub(crate) fn own_comparisons(&mut self) -> impl Iterator<Item = &mut Comparison> {
        let Self { plan, analysis, .. } = self;
        let is_own = |comparison: &&mut Comparison| {
            comparison.arm == Arm::Main && plan.strata[comparison.stratum].factor.is_none()
        };
        analysis.comparisons.iter_mut().filter(is_own)
    }

    /// Every cell in every stratum.
    pub(crate) fn cells(&mut self) -> impl Iterator<Item = &mut CellAnalysis> {
        let Analysis { strata, comparisons, .. } = &mut self.analysis;
        let baselines = strata.iter_mut().map(|stratum| &mut stratum.baseline);
        baselines.chain(comparisons.iter_mut().map(|comparison| &mut comparison.cell))
    }

    /// The A/A comparison of a stratum.
    pub(crate) fn repeat(&mut self, stratum: usize) -> &mut Comparison {
        let is_repeat = |found: &&mut Comparison| found.stratum == stratum && found.arm == Arm::Repeat;
        self.analysis.comparisons.iter_mut().find(is_repeat).unwrap()
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(TimestampedEvent { at_unix_ms: 1_795_253_400_000, event });
    }

    pub(crate) fn end(&mut self, ending: Ending) {
        self.push(Event::Finished { ending });
    }
}

/// Six blocks of the quick run with every kind of verdict, without its end.
pub(crate) fn quick() -> Run {
    let mut run = measured(&Spec::quick(&[ServerLevel::of(Engine::MariaDb)]), 6);
    let connect = run.comparison(Workload::Connect, TLS13);
    ratio_of(connect, Metric::LatencyNsMean, 3.106, 0.059, Some(Verdict::Differs));
    ratio_of(connect, Metric::CpuUsPerOpTotal, 2.402, 0.037, Some(Verdict::Differs));
    let connect = run.comparison(Workload::Connect, TLS12);
    ratio_of(connect, Metric::LatencyNsMean, 2.874, 0.061, Some(Verdict::Differs));
    ratio_of(connect, Metric::CpuUsPerOpTotal, 2.311, 0.035, Some(Verdict::Differs));
    let select = run.comparison(Workload::PointSelect, TLS13);
    ratio_of(select, Metric::RatePerS, 0.881, 0.021, Some(Verdict::Differs));
    ratio_of(select, Metric::LatencyNsP95, 1.048, 0.12, Some(too_few(0.14, Some(22))));
    ratio_of(
        select,
        Metric::CpuUsPerOpTotal,
        1.021,
        0.004,
        Some(Verdict::RealButNegligible { margin: 0.03 }),
    );
    let select = run.comparison(Workload::PointSelect, TLS12);
    let noise = Verdict::Inconclusive {
        smallest_detectable_difference: 0.018,
        blocks_needed: Some(6),
        why: Doubt::BelowNoiseFloor,
    };
    ratio_of(select, Metric::RatePerS, 0.991, 0.012, Some(Verdict::SameWithin { margin: 0.03 }));
    ratio_of(select, Metric::LatencyNsP95, 1.032, 0.031, Some(Verdict::SameWithin { margin: 0.1 }));
    ratio_of(select, Metric::CpuUsPerOpTotal, 1.014, 0.006, Some(noise));
    run
}

/// Connects with several keys and versions, on a machine whose primitives were timed.
pub(crate) fn keys() -> Run {
    let spec = "[[grid]]\npath = [\"plain\", \"tls1.3-p256\", \"tls1.3-rsa2048\", \"tls1.3-rsa4096\", \
                \"tls1.2-p256\"]\nworkload = [\"connect\"]\nclients = [\"1\"]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    for cell in run.cells() {
        let key = cell.cell.treatment.path.as_tls().and_then(|tls| tls.key);
        let more_ns = match key {
            Some(ServerKey::Rsa2048) => 762_000.0,
            Some(ServerKey::Rsa4096) => 5_432_000.0,
            _ => continue,
        };
        for metric in [Metric::PhaseNsTlsHandshake, Metric::LatencyNsMean] {
            let value = cell.metrics[&metric].value + more_ns;
            cell.metrics.insert(metric, estimate(value, 0.018));
        }
        for count in &mut cell.legs {
            count.leg.key = key.map(|key| key.label().to_owned());
        }
    }
    run.push(primitives());
    run.end(Ending::Complete);
    run
}

/// What was timed on the machine of [`keys`].
pub(crate) fn primitives() -> Event {
    let signature =
        |key: ServerKey, sign_ns, verify_ns| (key.label().to_owned(), SignatureTime { sign_ns, verify_ns });
    let exchange = |group: &str, agree_ns| (group.to_owned(), KeyExchangeTime { agree_ns });
    Event::PrimitivesMeasured {
        signatures: BTreeMap::from([
            signature(ServerKey::P256, 14_000, 38_000),
            signature(ServerKey::Rsa2048, 790_000, 24_000),
            signature(ServerKey::Rsa4096, 5_400_000, 84_000),
        ]),
        key_exchanges: BTreeMap::from([exchange("x25519", 28_000), exchange("p256", 57_000)]),
    }
}

/// Two blocks: numbers without verdicts.
pub(crate) fn smoke() -> Run {
    let mut spec = Spec::quick(&[ServerLevel::of(Engine::MariaDb)]);
    spec.size = Size::Smoke;
    "smoke".clone_into(&mut spec.name);
    let mut run = measured(&spec, 2);
    for stratum in &mut run.analysis.strata {
        stratum.noise_floor.clear();
    }
    for path in [TLS13, TLS12] {
        let connect = run.comparison(Workload::Connect, path);
        ratio_of(connect, Metric::LatencyNsMean, 3.106, 0.9, None);
        ratio_of(connect, Metric::CpuUsPerOpTotal, 2.402, 0.6, None);
        ratio_of(run.comparison(Workload::PointSelect, path), Metric::RatePerS, 0.881, 0.7, None);
    }
    let few = |value: &mut Estimate| *value = without_interval(value.value);
    for cell in run.cells() {
        cell.metrics.values_mut().for_each(few);
    }
    for comparison in &mut run.analysis.comparisons {
        comparison.ratios.values_mut().for_each(|ratio| few(&mut ratio.ratio));
        comparison.levels.values_mut().flatten().for_each(few);
    }
    run.end(Ending::Complete);
    run
}

/// Of two blocks.
fn without_interval(value: f64) -> Estimate {
    Estimate { value, ci_low: None, ci_high: None, blocks: 2 }
}

/// Something else than the path compared: every treatment slower.
pub(crate) fn against(baseline: &str, levels: &str) -> Run {
    let text = format!(
        "baseline = \"{baseline}\"\n[[grid]]\npath = [\"tls1.3-p256\"]\n{levels}\n\
         workload = [\"connect\", \"point-select\"]\nclients = [\"1\"]\n"
    );
    let mut run = measured(&Spec::from_toml(&text).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::LatencyNsMean, 1.31, 0.03, Some(Verdict::Differs));
        ratio_of(comparison, Metric::RatePerS, 1.12, 0.03, Some(Verdict::Differs));
        ratio_of(comparison, Metric::CpuUsPerOpTotal, 0.82, 0.03, Some(Verdict::Differs));
    }
    run.end(Ending::Complete);
    run
}

/// Two ways to build the context, so that rows need more than the path.
pub(crate) fn contexts() -> Run {
    let grid = "[[grid]]\npath = [\"plain\", \"tls1.3-p256\"]\nctx = [\"per-connect\", \"shared\"]\n\
                workload = [\"connect\", \"point-select\"]\nclients = [\"8\"]\n";
    let mut run = measured(&Spec::from_toml(grid).unwrap(), 10);
    for comparison in run.own_comparisons() {
        ratio_of(comparison, Metric::RatePerS, 0.45, 0.03, Some(Verdict::Differs));
        ratio_of(comparison, Metric::CpuUsPerOpTotal, 1.9, 0.03, Some(Verdict::Differs));
    }
    run.end(Ending::Complete);
    run
}

/// A path that cannot run, one that failed its gate too often, a flag and a hostile message.
pub(crate) fn troubled() -> Run {
    let mut run = quick();
    let id = run.cell(Workload::Connect, TLS12).id.clone();
    for workload in [Workload::Connect, Workload::PointSelect] {
        let Comparison { cell, ratios, .. } = run.comparison(workload, TLS12);
        cell.blocks_used = 0;
        ratios.clear();
        (cell.metrics, cell.legs) = (BTreeMap::new(), Vec::new());
    }
    let reason = "this build of MariaDB refuses TLS 1.2".to_owned();
    run.push(Event::CellSkipped { skipped: Skipped { id: id.0, server: None, reason } });
    let negotiated = VoidReason::Negotiated { planned: "tls1.2".to_owned(), observed: "tls1.3".to_owned() };
    run.cell(Workload::PointSelect, TLS12).voided = voided(&[1, 2, 3, 4, 5, 6], &negotiated);
    let select = run.comparison(Workload::PointSelect, TLS13);
    let hostile =
        VoidReason::OperationErrors { count: 3, message: "\u{1b}[2Jserver has gone away\n".to_owned() };
    select.cell.voided = voided(&[2, 5], &hostile);
    select.cell.blocks_used = 4;
    let doubt = Verdict::Inconclusive {
        smallest_detectable_difference: 0.1,
        blocks_needed: None,
        why: Doubt::TooManyVoided,
    };
    ratio_of(select, Metric::RatePerS, 0.881, 0.021, Some(doubt));
    let connect = run.comparison(Workload::Connect, TLS13);
    connect.cell.flags =
        vec![(2, Flag::Unsteady { second_half_ratio: 0.83 }), (1, Flag::CpuElsewhere { share: 0.12 })];
    let seen = &mut connect.cell.legs[0];
    seen.leg.hello_retry = Some(true);
    seen.leg.signature = Some("ecdsa_secp256r1_sha256".to_owned());
    seen.leg.unused_shares = vec![KeyShare { group: "x25519mlkem768".to_owned(), bytes: 1_216 }];
    seen.handshake = Some(HandshakeSize {
        read_bytes: 14_702,
        written_bytes: 1_874,
        first_flight_bytes: 14_603,
        segments: Some(1),
    });
    if let Some(time) = connect.ratios.get_mut(&Metric::LatencyNsMean) {
        time.hodges_lehmann = 2.2;
    }
    let itself = PairedRatio {
        ratio: estimate(1.047, 0.011),
        hodges_lehmann: 1.046,
        pairs: 6,
        p_adjusted: Some(0.002),
        verdict: Some(Verdict::Differs),
    };
    run.repeat(0).ratios.insert(Metric::LatencyNsMean, itself);
    run.analysis.strata[0].noise_floor.insert(Metric::LatencyNsMean, 0.059);
    run.push(Event::Warned { message: "CPU frequency scaling is on: powersave".to_owned() });
    run.end(Ending::Complete);
    run
}

/// One block: nothing has an interval.
pub(crate) fn one_block() -> Run {
    let mut run = quick();
    run.analysis.blocks_completed = 1;
    let endless =
        |estimate: &mut Estimate| (estimate.ci_low, estimate.ci_high) = (Some(0.0), Some(f64::INFINITY));
    for cell in run.cells() {
        cell.blocks_used = 1;
        cell.metrics.values_mut().for_each(endless);
    }
    for comparison in &mut run.analysis.comparisons {
        comparison.ratios.values_mut().for_each(|ratio| endless(&mut ratio.ratio));
    }
    for stratum in &mut run.analysis.strata {
        stratum.noise_floor.values_mut().for_each(|floor| *floor = f64::INFINITY);
    }
    run.end(Ending::Interrupted);
    run
}

pub(crate) fn grid(text: &str) -> Plan {
    Plan::new(&Spec::from_toml(text).unwrap(), 42).unwrap()
}

fn voided(blocks: &[u32], reason: &VoidReason) -> Vec<VoidedTrial> {
    blocks.iter().map(|&block| VoidedTrial { block, reason: reason.clone() }).collect()
}

fn too_few(smallest_detectable_difference: f64, blocks_needed: Option<u32>) -> Verdict {
    Verdict::Inconclusive { smallest_detectable_difference, blocks_needed, why: Doubt::TooFewBlocks }
}

/// Every cell with plausible levels; no ratios with the run's own baseline yet.
pub(crate) fn measured(spec: &Spec, blocks: u32) -> Run {
    measured_as(Plan::new(spec, 42).unwrap(), blocks)
}

/// The same of a plan that was made otherwise.
pub(crate) fn measured_as(plan: Plan, blocks: u32) -> Run {
    let cell = |index: usize, role: CellRole| {
        let cell = &plan.cells[index];
        CellAnalysis {
            index,
            id: cell.id(),
            cell: cell.clone(),
            role,
            blocks_planned: plan.counted_blocks(),
            blocks_used: blocks,
            voided: Vec::new(),
            flags: Vec::new(),
            legs: vec![leg(
                cell.treatment.path,
                if cell.workload == Workload::PointSelect { 48 } else { 9_120 },
            )],
            metrics: levels(cell.treatment.path, cell.workload),
            absent: BTreeMap::new(),
            checkpoints: UnevenCheckpoints::default(),
        }
    };
    let stratum = |stratum: &Stratum| StratumAnalysis {
        baseline: cell(stratum.baseline, CellRole::Baseline),
        noise_floor: [
            (Metric::RatePerS, 0.018),
            (Metric::LatencyNsMean, 0.018),
            (Metric::LatencyNsP95, 0.041),
            (Metric::CpuUsPerOpTotal, 0.012),
        ]
        .into(),
    };
    let comparisons = |(number, stratum): (usize, &Stratum)| {
        let comparison = |arm, cell: CellAnalysis| {
            let baseline = &plan.cells[stratum.baseline];
            let baseline = levels(baseline.treatment.path, baseline.workload);
            let own = cell.metrics.iter();
            let levels = own.filter_map(|(metric, own)| Some((*metric, [*own, *baseline.get(metric)?])));
            Comparison { stratum: number, arm, levels: levels.collect(), cell, ratios: BTreeMap::new() }
        };
        let treatment = |&index: &usize| {
            let mut comparison = comparison(Arm::Main, cell(index, CellRole::Treatment));
            if stratum.factor.is_some() {
                ratio_of(&mut comparison, Metric::LatencyNsMean, 1.214, 0.021, Some(Verdict::Differs));
                ratio_of(&mut comparison, Metric::CpuUsPerOpTotal, 1.182, 0.018, Some(Verdict::Differs));
            }
            comparison
        };
        let repeat = comparison(Arm::Repeat, cell(stratum.baseline, CellRole::Baseline));
        stratum.treatments.iter().map(treatment).chain([repeat]).collect::<Vec<_>>()
    };
    let analysis = Analysis {
        confidence_level: 0.95,
        blocks_completed: blocks,
        strata: plan.strata.iter().map(stratum).collect(),
        comparisons: plan.strata.iter().enumerate().flat_map(comparisons).collect(),
    };
    let mut run = Run { events: Vec::new(), analysis, plan };
    prologue(&mut run);
    run
}

/// What every run begins with.
pub(crate) fn prologue(run: &mut Run) {
    run.push(Event::RunStarted { schema_version: 1, tool_version: "0.1.0".to_owned() });
    run.push(Event::EnvironmentSeen { environment: environment() });
    run.push(Event::ServerReady {
        server: "mariadb".to_owned(),
        version: "10.11.14".to_owned(),
        tls_library: Some("OpenSSL 3.0.16".to_owned()),
        settings: BTreeMap::new(),
        elapsed_ms: 900,
    });
}

fn levels(path: Path, workload: Workload) -> BTreeMap<Metric, Estimate> {
    let pick = |plain: f64, tls13: f64, tls12: f64| match path.as_tls().map(|tls| tls.parameters.version) {
        None => plain,
        Some(TlsVersion::Tls13) => tls13,
        Some(_) => tls12,
    };
    let mut levels = BTreeMap::new();
    let mut set = |metric, value, share| levels.insert(metric, estimate(value, share));
    if workload == Workload::PointSelect {
        set(Metric::CpuUsPerOpClient, pick(8.12, 8.31, 8.24), 0.008);
        set(Metric::CpuUsPerOpServer, pick(46.8, 47.8, 47.4), 0.009);
        set(Metric::CpuUsPerOpTotal, pick(54.9, 56.1, 55.7), 0.007);
        set(Metric::RatePerS, pick(36_412.0, 32_080.0, 36_084.0), 0.012);
        set(Metric::LatencyNsMean, pick(219_000.0, 248_000.0, 221_000.0), 0.012);
        set(Metric::LatencyNsP95, pick(402_000.0, 421_000.0, 415_000.0), 0.034);
        return levels;
    }
    set(Metric::CpuUsPerOpClient, pick(82.1, 311.0, 298.0), 0.008);
    set(Metric::CpuUsPerOpServer, pick(118.0, 170.0, 164.0), 0.009);
    set(Metric::CpuUsPerOpTotal, pick(200.1, 481.0, 462.0), 0.007);
    set(Metric::RatePerS, pick(5_076.0, 1_634.0, 1_767.0), 0.018);
    set(Metric::LatencyNsMean, pick(197_000.0, 612_000.0, 566_000.0), 0.018);
    set(Metric::LatencyNsP95, pick(241_000.0, 702_000.0, 655_000.0), 0.031);
    set(Metric::PhaseNsTcpConnect, 41_000.0, 0.02);
    set(Metric::PhaseNsServerGreeting, 38_000.0, 0.02);
    if path.as_tls().is_some() {
        set(Metric::PhaseNsTlsContext, 182_000.0, 0.011);
        set(Metric::PhaseNsTlsRequest, 4_100.0, 0.04);
        set(Metric::PhaseNsTlsHandshake, pick(0.0, 224_000.0, 178_000.0), 0.017);
    }
    set(Metric::PhaseNsAuth, pick(106_000.0, 110_900.0, 110_900.0), 0.02);
    set(Metric::PhaseNsClose, 12_000.0, 0.05);
    levels
}

pub(crate) fn ratio_of(
    comparison: &mut Comparison,
    metric: Metric,
    ratio: f64,
    share: f64,
    verdict: Option<Verdict>,
) {
    if let Some([own, baseline]) = comparison.levels.get_mut(&metric) {
        let factor = baseline.value * ratio / own.value;
        for value in [Some(&mut own.value), own.ci_low.as_mut(), own.ci_high.as_mut()].into_iter().flatten() {
            *value *= factor;
        }
    }
    let ratio = PairedRatio {
        ratio: estimate(ratio, share),
        hodges_lehmann: ratio,
        pairs: comparison.cell.blocks_used,
        p_adjusted: verdict.map(|_| 0.01),
        verdict,
    };
    comparison.ratios.insert(metric, ratio);
}

/// An interval that is symmetric in the logarithm, as Student t on log-ratios gives it.
pub(crate) fn estimate(value: f64, share: f64) -> Estimate {
    let [low, high] = [value / (1.0 + share), value * (1.0 + share)];
    Estimate { value, ci_low: Some(low), ci_high: Some(high), blocks: 6 }
}

pub(crate) fn leg(path: Path, connections: u64) -> LegCount {
    let some = |text: &str| path.as_tls().map(|_| text.to_owned());
    let version = path.as_tls().map(|tls| tls.parameters.version.label().to_owned());
    let suite = match path.as_tls().map(|tls| tls.parameters.version) {
        Some(TlsVersion::Tls12) => some("ECDHE-ECDSA-AES256-GCM-SHA384"),
        _ => some("TLS_AES_256_GCM_SHA384"),
    };
    let leg = Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: version,
        suite,
        group: some("X25519"),
        key: some("p256"),
        resumed: path.as_tls().map(|_| false),
        chain: None,
        hello_retry: path.as_tls().map(|_| false),
        auth: None,
        library: some("OpenSSL 3.0.16"),
        compressor: None,
        signature: None,
        library_version: None,
        unused_shares: Vec::new(),
    };
    LegCount { leg, connections, handshake: None }
}

fn environment() -> Environment {
    Environment {
        cpu_model: "AMD EPYC 7B13".to_owned(),
        cpus: 2,
        crypto_instructions: vec![
            CryptoInstruction::Aes,
            CryptoInstruction::Vaes,
            CryptoInstruction::Pclmulqdq,
            CryptoInstruction::Adx,
        ],
        memory_bytes: 8 << 30,
        kernel: "6.1.0-41-amd64".to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        tls_library: "OpenSSL 3.0.16".to_owned(),
        cpu_accounting: "cgroup v2".to_owned(),
    }
}

/// A run in which everything that others write tries to be markup.
pub(crate) fn hostile() -> Run {
    const MARKUP: &str = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)> @everyone |\u{1b}[2J";
    let mut run = troubled();
    for event in &mut run.events {
        match &mut event.event {
            Event::ServerReady { version, tls_library, settings, .. } => {
                MARKUP.clone_into(version);
                *tls_library = Some(MARKUP.to_owned());
                settings.insert(MARKUP.to_owned(), MARKUP.to_owned());
            }
            Event::EnvironmentSeen { environment } => {
                MARKUP.clone_into(&mut environment.cpu_model);
                MARKUP.clone_into(&mut environment.kernel);
            }
            Event::CellSkipped { skipped } => MARKUP.clone_into(&mut skipped.reason),
            Event::Warned { message } => MARKUP.clone_into(message),
            _ => {}
        }
    }
    for cell in run.cells() {
        for trial in &mut cell.voided {
            trial.reason = VoidReason::OperationErrors { count: 1, message: MARKUP.to_owned() };
        }
        for count in &mut cell.legs {
            count.leg.suite = Some(MARKUP.to_owned());
        }
    }
    MARKUP.clone_into(&mut run.plan.name);
    run
}

/// The id of a cell, for tests that name one.
pub(crate) fn id(text: &str) -> CellId {
    CellId(text.to_owned())
}

/// A noisy machine: nothing can be told of the pooled load, and only the time of TLS 1.2's connects.
pub(crate) fn noisy() -> Run {
    let mut run = quick();
    for path in [TLS13, TLS12] {
        let select = run.comparison(Workload::PointSelect, path);
        ratio_of(select, Metric::RatePerS, 0.91, 0.08, Some(too_few(0.2, Some(22))));
        ratio_of(select, Metric::LatencyNsP95, 0.96, 0.16, Some(too_few(0.41, Some(14))));
        ratio_of(select, Metric::CpuUsPerOpTotal, 1.11, 0.07, Some(too_few(0.19, Some(18))));
    }
    let select = run.comparison(Workload::PointSelect, TLS12);
    ratio_of(select, Metric::RatePerS, 0.81, 0.02, Some(Verdict::Differs));
    ratio_of(select, Metric::LatencyNsP95, 1.24, 0.2, Some(too_few(0.43, None)));
    run.end(Ending::Complete);
    run
}
