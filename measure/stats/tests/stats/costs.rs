//! The cost model finds the costs that synthetic runs were made of, and says what a run lacks.

use std::num::NonZeroU32;

use ciphertoll_model::{
    Auth, Bytes, Clients, Environment, Event, Grid, Link, LinkShape, Metric, Path, Plan, Queries, Size, Spec,
    TimestampedEvent, Workload,
};
use ciphertoll_stats::cost::{
    BreakEven, Cores, CostModel, Limit, Load, MissingTerm, Profile, Role, SessionQueries, Side, Term,
};
use ciphertoll_stats::{Estimate, RunFacts};

use crate::fixture::{Metrics, Trial, run, scatter, stamped};

const CPUS: u16 = 2;
const RTTS_MS: [u32; 2] = [10, 45];
const SEVERAL: u16 = 20;

/// The true costs of a path: CPU time of client and server, µs, and round trips.
struct Truth {
    connect: [f64; 2],
    first_query: [f64; 2],
    query: [f64; 2],
    per_kib: f64,
    connect_trips: f64,
}

fn truth(path: &str) -> Truth {
    match path {
        "plain" => Truth {
            connect: [40.0, 160.0],
            first_query: [15.0, 30.0],
            query: [10.0, 20.0],
            per_kib: 0.2,
            connect_trips: 3.0,
        },
        "tls1.3-p256" => Truth {
            connect: [700.0, 500.0],
            first_query: [16.0, 31.0],
            query: [11.0, 21.0],
            per_kib: 0.5,
            connect_trips: 5.0,
        },
        // The sidecar: cheap connects, expensive queries.
        _ => Truth {
            connect: [40.0, 60.0],
            first_query: [20.0, 40.0],
            query: [20.0, 42.0],
            per_kib: 1.0,
            connect_trips: 0.0,
        },
    }
}

const PATHS: [&str; 3] = ["plain", "tls1.3-p256", "proxy"];

fn paths() -> Vec<Path> {
    PATHS.iter().map(|path| path.parse().expect("valid")).collect()
}

fn grid(workload: Vec<Workload>, clients: &[u16]) -> Grid {
    Grid {
        path: paths(),
        workload,
        clients: clients.iter().filter_map(|count| Clients::new(*count)).collect(),
        ..Grid::default()
    }
}

/// Every term.
fn whole() -> Vec<Grid> {
    let links: Vec<Link> =
        RTTS_MS.iter().map(|ms| Link::Emulated(LinkShape::of_rtt_us(ms * 1_000))).collect();
    let rows = [1 << 10, 16 << 10, 256 << 10]
        .map(|bytes| Workload::BulkRead { bytes: Bytes::new(bytes).expect("valid") });
    let several = Workload::ConnectQuery { queries: Queries::new(SEVERAL).expect("valid") };
    vec![
        grid(vec![Workload::Connect, several, Workload::PointSelect], &[1, 8]),
        grid(vec![Workload::CONNECT_QUERY], &[1]),
        grid(rows.to_vec(), &[1]),
        Grid { link: links, ..grid(vec![Workload::CONNECT_QUERY, Workload::PointSelect], &[1]) },
        Grid {
            path: vec![Path::Plain],
            auth: Some(vec![Auth::Trust]),
            ..grid(vec![Workload::Connect], &[1])
        },
    ]
}

fn plan(grids: Vec<Grid>) -> Plan {
    let spec = Spec { name: "test".to_owned(), size: Size::Small, grids, ..Spec::quick(&[]) };
    Plan::new(&spec, 1).expect("valid")
}

/// The metrics that the truth gives, scattered by `spread`.
fn measured(plan: &Plan, trial: Trial, spread: f64) -> Metrics {
    let cell = &plan.cells[trial.cell];
    let truth = truth(&cell.treatment.path.to_string());
    let kib_records = |bytes: u32| f64::from(bytes) / 1024.0;
    let rtt_ns = cell.treatment.link.shape().map_or(0.0, |shape| shape.rtt_ns() as f64);
    // A trusted connect costs the server 50 less.
    let unchecked = if cell.treatment.auth == Auth::Trust { 50.0 } else { 0.0 };
    let sum = |factor: [f64; 3]| {
        [0, 1].map(|side| {
            factor[0] * truth.connect[side]
                + factor[1] * truth.first_query[side]
                + factor[2] * truth.query[side]
        })
    };
    let (mut cpu, trips) = match cell.workload {
        Workload::Connect => (sum([1.0, 0.0, 0.0]), truth.connect_trips),
        Workload::ConnectQuery { queries } => {
            let more = f64::from(queries.count() - 1);
            (sum([1.0, 1.0, more]), truth.connect_trips + 1.0 + more)
        }
        Workload::BulkRead { bytes } => {
            let mut cpu = sum([0.0, 0.0, 1.0]);
            cpu[1] += truth.per_kib * kib_records(bytes.number());
            (cpu, 1.0)
        }
        _ => (sum([0.0, 0.0, 1.0]), 1.0),
    };
    cpu[1] -= unchecked;
    let total = cpu[0] + cpu[1];
    let scatter = (spread * scatter(trial)).exp();
    let clients = f64::from(cell.clients.count());
    // One client waits a tenth of the time; many saturate nine tenths of the processors.
    let alone_ns = total * 1_100.0 + trips * rtt_ns;
    let rate = (clients * 1e9 / alone_ns).min(0.9 * f64::from(CPUS) * 1e6 / total);
    Metrics::from([
        (Metric::CpuUsPerOpClient, cpu[0] * scatter),
        (Metric::CpuUsPerOpServer, cpu[1] * scatter),
        (Metric::CpuUsPerOpTotal, total * scatter),
        (Metric::LatencyNsMean, clients * 1e9 / rate * scatter),
        (Metric::RatePerS, rate / scatter),
        (Metric::RssBytesServer, 1e8 + 2e5 * clients),
    ])
}

fn environment() -> TimestampedEvent {
    stamped(Event::EnvironmentSeen {
        environment: Environment {
            cpu_model: "CPU".to_owned(),
            cpus: CPUS,
            crypto_instructions: Vec::new(),
            memory_bytes: 1 << 34,
            kernel: "Linux".to_owned(),
            os: "Debian".to_owned(),
            tls_library: "OpenSSL".to_owned(),
            cpu_accounting: "cgroup".to_owned(),
        },
    })
}

fn model_of(plan: &Plan, spread: f64) -> CostModel {
    let mut events = vec![environment()];
    events.extend(run(plan, |trial| measured(plan, trial, spread)));
    CostModel::fit(plan, &RunFacts::of(plan, &events))
}

fn profile<'a>(model: &'a CostModel, path: &str) -> &'a Profile {
    let is_it = |profile: &&Profile| {
        profile.treatment.path.to_string() == path && profile.treatment.auth != Auth::Trust
    };
    model.profiles.iter().find(is_it).expect("valid")
}

fn load() -> Load {
    Load::simple(Cores::Shared(f64::from(CPUS)))
}

fn assert_close(found: &Estimate, expected: f64) {
    assert!((found.value / expected - 1.0).abs() < 1e-6, "{found:?}, expected {expected}");
}

#[test]
fn a_load_that_was_not_measured_costs_what_its_parts_cost() {
    let plan = plan(whole());
    let model = model_of(&plan, 0.0);
    for path in PATHS {
        let truth = truth(path);
        let load = Load {
            connects_per_s: Some(500.0),
            queries: SessionQueries::of_mean(7.0),
            rtt_ns: 170e6,
            row_bytes: 4 << 10,
            ..load()
        };
        let predicted = model.predict(profile(&model, path), &load);
        let of = |side: usize| {
            let rows = if side == 1 { 7.0 * 3.0 * truth.per_kib } else { 0.0 };
            truth.connect[side] + truth.first_query[side] + 6.0 * truth.query[side] + rows
        };
        let cpu = |role| predicted.cpu_us.iter().find(|(of, _)| *of == role).unwrap().1.unwrap();
        assert_close(&cpu(Role::Client), of(0));
        assert_close(&cpu(Role::Server), of(1));
        let cores = predicted.cores.iter().find(|(of, _)| *of == Role::Total).unwrap().1.unwrap();
        assert_close(&cores, (of(0) + of(1)) * 500e-6);
        let connect_ns = (truth.connect[0] + truth.connect[1]) * 1_100.0 + truth.connect_trips * 170e6;
        assert_close(&predicted.connect_ns.unwrap(), connect_ns);
        assert_close(
            &predicted.session_ns.unwrap(),
            (of(0) + of(1)) * 1_100.0 + (truth.connect_trips + 7.0) * 170e6,
        );
    }
}

#[test]
fn the_lowest_limit_is_the_throughput() {
    let plan = plan(whole());
    let model = model_of(&plan, 0.0);
    let tls = profile(&model, "tls1.3-p256");
    let truth = truth("tls1.3-p256");
    let server_us = truth.connect[1] + truth.first_query[1];
    let total_us = server_us + truth.connect[0] + truth.first_query[0];
    let most = |load: &Load| model.predict(tls, load).throughput.unwrap();
    let shared = most(&load());
    assert_eq!(shared.limit, Limit::SharedCores);
    assert_close(&shared.sessions_per_s, 0.9 * 2e6 / total_us);
    let apart = most(&Load { cores: Cores::Separate { server: 8.0, clients: None }, ..load() });
    assert_eq!(apart.limit, Limit::ServerCores);
    assert_close(&apart.sessions_per_s, 0.9 * 8e6 / server_us);
    let few = most(&Load { clients: NonZeroU32::new(2), rtt_ns: 45e6, ..load() });
    assert_eq!(few.limit, Limit::Clients);
    assert_close(&few.sessions_per_s, 2e9 / (total_us * 1_100.0 + 6.0 * 45e6));
    let cores = Cores::Separate { server: 8.0, clients: Some(1.0) };
    assert_eq!(most(&Load { cores, ..load() }).limit, Limit::ClientCores);
}

#[test]
fn terms_are_named_and_memory_grows_with_connections() {
    let plan = plan(whole());
    let model = model_of(&plan, 0.0);
    let terms = model.terms();
    let term = |path: &str, term: Term, role: Role| {
        let found = terms.iter().find(|found| {
            found.term == term
                && found.treatment.path.to_string() == path
                && found.treatment.auth != Auth::Trust
        });
        found.unwrap().by_role.iter().find(|(of, _)| *of == role).unwrap().1
    };
    assert_close(&term("tls1.3-p256", Term::FullHandshake, Role::Client), 660.0);
    assert_close(&term("tls1.3-p256", Term::FullHandshake, Role::Server), 340.0);
    assert_close(&term("plain", Term::Authentication, Role::Server), 50.0);
    assert_close(&term("plain", Term::ConnectRoundTrips, Role::Total), 3.0);
    assert_close(&term("proxy", Term::QueryRoundTrips, Role::Total), 1.0);
    assert_close(&term("plain", Term::Kibibyte, Role::Server), 0.2);
    assert_close(&term("plain", Term::ConnectionMemory, Role::Server), 2e5);
    let many = Load { clients: NonZeroU32::new(1_000), ..load() };
    let memory = model.predict(profile(&model, "plain"), &many).memory_bytes;
    assert_close(
        &memory.iter().find(|(role, _)| *role == Role::Server).unwrap().1.unwrap(),
        1e8 + 2e5 * 1_000.0,
    );
}

#[test]
fn the_break_even_is_where_both_cost_the_same() {
    let plan = plan(whole());
    let model = model_of(&plan, 0.02);
    let (proxy, tls) = (profile(&model, "proxy"), profile(&model, "tls1.3-p256"));
    // 100 + 60 + 62 (q − 1) = 1200 + 47 + 32 (q − 1).
    let expected = 1.0 + (1_247.0 - 160.0) / 30.0;
    let BreakEven::At { queries, interval, below } = model.break_even(proxy, tls, &load()).unwrap() else {
        panic!("no break-even");
    };
    let interval = interval.unwrap();
    assert_eq!(below, Side::First);
    assert!(interval.low < expected && expected < interval.high, "{interval:?} {queries} {expected}");
    let mirrored = model.break_even(tls, proxy, &load()).unwrap();
    assert!(matches!(mirrored, BreakEven::At { below: Side::Second, .. }), "{mirrored:?}");
    let unencrypted = profile(&model, "plain");
    assert_eq!(model.break_even(unencrypted, tls, &load()), Ok(BreakEven::Always(Side::First)));
    assert_eq!(model.break_even(unencrypted, unencrypted, &load()), Ok(BreakEven::Unknown));
}

#[test]
fn what_a_run_lacks_is_named() {
    let lacking = |grids: Vec<Grid>, load: &Load| {
        let plan = plan(grids);
        let model = model_of(&plan, 0.0);
        model.predict(profile(&model, "plain"), load)
    };
    let over_link = Load { rtt_ns: 45e6, ..load() };
    let long_rows = Load { row_bytes: 64 << 10, ..load() };
    let connects = || vec![grid(vec![Workload::Connect], &[1])];
    assert_eq!(lacking(connects(), &load()).session_ns, Err(MissingTerm::QueryTime));
    assert_eq!(lacking(connects(), &over_link).connect_ns, Err(MissingTerm::RoundTrips));
    let connects_only = Load { queries: SessionQueries::of_mean(0.0), ..load() };
    assert!(lacking(connects(), &connects_only).session_ns.is_ok());
    let quick = || vec![grid(vec![Workload::Connect], &[1]), grid(vec![Workload::PointSelect], &[8])];
    let predicted = lacking(quick(), &load());
    assert_eq!(predicted.query_ns, Err(MissingTerm::QueryTime), "8 clients wait for processors");
    assert!(predicted.cpu_us.iter().all(|(_, cpu)| cpu.is_ok()));
    assert_eq!(lacking(quick(), &long_rows).cpu_us[0].1, Err(MissingTerm::Rows));
    let both = Load { row_bytes: 64 << 10, rtt_ns: 45e6, ..load() };
    let predicted = lacking(whole(), &both);
    assert_eq!(predicted.query_ns, Err(MissingTerm::RowsOverLink));
    assert!(predicted.cpu_us.iter().all(|(_, cpu)| cpu.is_ok()), "CPU time does not wait");
    let reads = lacking(vec![grid(vec![Workload::PointSelect], &[1])], &load());
    assert_eq!(reads.connect_ns, Err(MissingTerm::ConnectTime));
    assert_eq!(reads.throughput.unwrap_err(), MissingTerm::Connect);
    let mut at_url = model_of(&plan(connects()), 0.0);
    at_url.profiles[0].cpu.retain(|role, _| *role == Role::Client);
    let whole = at_url.session_cpu(&at_url.profiles[0], Role::Total, &connects_only);
    assert_eq!(whole.unwrap_err(), MissingTerm::ServerCpu);
}

#[test]
fn resumption_shares_the_costs_of_established_connections() {
    let resumed: Path = "tls1.3-p256+resume".parse().unwrap();
    let mut grids = whole();
    grids.push(Grid { path: vec![resumed], ..grid(vec![Workload::Connect, Workload::CONNECT_QUERY], &[1]) });
    let plan = plan(grids);
    let model = model_of(&plan, 0.0);
    let load = Load { queries: SessionQueries::of_mean(10.0), row_bytes: 64 << 10, ..load() };
    let predicted = model.predict(profile(&model, "tls1.3-p256+resume"), &load);
    assert!(predicted.cpu_us.iter().all(|(_, cpu)| cpu.is_ok()), "{:?}", predicted.cpu_us);
}

#[test]
fn a_cost_below_its_noise_is_not_predicted() {
    let plan = plan(whole());
    let mut events = vec![environment()];
    events.extend(run(&plan, |trial| {
        let mut metrics = measured(&plan, trial, 0.0);
        // More queries take less time: noise.
        if matches!(plan.cells[trial.cell].workload, Workload::ConnectQuery { queries } if queries.count() > 1) {
            metrics.insert(Metric::LatencyNsMean, 1.0);
        }
        metrics
    }));
    let model = CostModel::fit(&plan, &RunFacts::of(&plan, &events));
    let predicted = model.predict(profile(&model, "plain"), &load());
    assert_eq!(predicted.query_ns, Err(MissingTerm::Precision));
    assert!(predicted.connect_ns.is_ok());
}
