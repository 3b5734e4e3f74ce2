//! Each rule of docs/measure/advise.md, flipped by the data that it depends on.

use std::collections::BTreeMap;

use ciphertoll_model::{
    Auth, CellId, Environment, Event, Grid, Group, Legacy, Metric, Observation, Path, Plan, Resumption,
    ServerKey, Size, Spec, Suite, TimestampedEvent, TlsVersion, Workload,
};
use ciphertoll_stats::RunFacts;
use ciphertoll_stats::advice::{
    Advice, Need, Optimize, Question, Rank, Today, TransportToday, Worth, advise, settings,
};
use ciphertoll_stats::cost::{BreakEven, Cores, CostModel, Load, MissingTerm, Role, SessionQueries, Side};
use proptest::prelude::*;

const CPUS: f64 = 2.0;

/// CPU time of a connect and of a query, µs, by path.
type Costs<'a> = &'a [(&'a str, f64, f64)];

#[test]
fn todays_connections_are_compared_with_others_of_the_same_login() {
    let scram: Auth = "scram-4096".parse().unwrap();
    let model = model(RESUMABLE, &[Auth::Trust, scram], 0.01);
    let today = Today::of(&model, &"postgres".parse().unwrap(), &[(TransportToday::Plain, 7)]).unwrap();
    for path in ["plain", "proxy"] {
        let found = today.find(|found| found.to_string() == path).unwrap();
        assert_eq!(found.treatment.auth, scram, "{path}");
    }
}

/// A run over these paths. Trials of one cell differ by ±`scatter` in turn.
fn model(costs: Costs<'_>, auths: &[Auth], scatter: f64) -> CostModel {
    model_after(u32::MAX, costs, auths, scatter)
}

/// Of the same run, interrupted after this many blocks.
fn model_after(blocks: u32, costs: Costs<'_>, auths: &[Auth], scatter: f64) -> CostModel {
    let grid = Grid {
        path: costs.iter().map(|(path, ..)| path.parse().expect("valid")).collect(),
        server: vec!["postgres".parse().expect("valid")],
        auth: (!auths.is_empty()).then(|| auths.to_vec()),
        workload: vec![Workload::Connect, Workload::PointSelect],
        ..Grid::default()
    };
    let spec = Spec { name: "test".to_owned(), size: Size::Small, grids: vec![grid], ..Spec::quick(&[]) };
    let plan = Plan::new(&spec, 1).expect("valid");
    let stamped = |event| TimestampedEvent { at_unix_ms: 0, event };
    let mut events = vec![stamped(Event::EnvironmentSeen { environment: environment() })];
    for block in plan.blocks.iter().take_while(|block| block.number <= blocks) {
        events.push(stamped(Event::BlockStarted { block: block.number }));
        for visit in &block.visits {
            let cell = &plan.cells[visit.cell];
            let path = cell.treatment.path.to_string();
            let (_, connect, query) = costs.iter().find(|(name, ..)| *name == path).expect("valid");
            let sign = if block.number.is_multiple_of(2) { 1.0 } else { -1.0 };
            let cost =
                if cell.workload == Workload::Connect { connect } else { query } * (1.0 + sign * scatter);
            // A login without a password is cheaper.
            let cost = if cell.treatment.auth == Auth::Trust { cost * 0.5 } else { cost };
            events.push(stamped(finished(block.number, cell.id(), visit.arm, cost)));
        }
        events.push(stamped(Event::BlockFinished { block: block.number }));
    }
    CostModel::fit(&plan, &RunFacts::of(&plan, &events))
}

fn finished(block: u32, cell: CellId, arm: ciphertoll_model::Arm, cost_us: f64) -> Event {
    let metrics = BTreeMap::from([
        (Metric::CpuUsPerOpTotal, cost_us),
        (Metric::LatencyNsMean, cost_us * 1e3),
        (Metric::RatePerS, 1e6 / cost_us),
    ]);
    let observation = Observation {
        metrics,
        operations: 1_000,
        window_ns: 2_000_000_000,
        legs: Vec::new(),
        flags: Vec::new(),
        absent: BTreeMap::new(),
        hosts: None,
    };
    Event::TrialFinished { block, cell, arm, observation: Box::new(observation) }
}

fn environment() -> Environment {
    Environment {
        cpu_model: "CPU".to_owned(),
        cpus: CPUS as u16,
        crypto_instructions: Vec::new(),
        memory_bytes: 1 << 34,
        kernel: "Linux".to_owned(),
        os: "Debian".to_owned(),
        tls_library: "OpenSSL".to_owned(),
        cpu_accounting: "cgroup".to_owned(),
    }
}

fn load(queries_per_connection: f64) -> Load {
    Load { queries: SessionQueries::of_mean(queries_per_connection), ..Load::simple(Cores::Shared(CPUS)) }
}

fn first(model: &CostModel, needs: &[Need], queries: f64) -> Option<String> {
    let server = "postgres".parse().expect("valid");
    let advice =
        advise(model, &server, &Question { needs, ..Question::about(&load(queries)) }).expect("valid");
    advice.choices.first().map(|choice| choice.profile.treatment.path.to_string())
}

/// The sidecar: cheap connects, expensive queries.
const COSTS: Costs<'_> = &[
    ("plain", 200.0, 30.0),
    ("tls1.3-p256", 1_200.0, 32.0),
    ("proxy", 100.0, 62.0),
    ("tls1.2-p256", 900.0, 32.0),
];

#[test]
fn an_unencrypted_configuration_is_never_advised() {
    let model = model(&[("plain", 1.0, 1.0), ("unix", 1.0, 1.0), ("tls1.3-p256", 1e6, 1e6)], &[], 0.01);
    assert_eq!(first(&model, &[], 1.0).as_deref(), Some("tls1.3-p256"));
    let without = model_of_plain();
    assert_eq!(first(&without, &[], 1.0), None);
}

fn model_of_plain() -> CostModel {
    model(&[("plain", 1.0, 1.0), ("unix", 1.0, 1.0)], &[], 0.01)
}

/// Any path with up to two modifiers.
fn any_path() -> impl Strategy<Value = String> {
    let suite = prop::sample::select(Suite::ALL.map(|suite| format!("suite={suite}")).to_vec());
    let group = prop::sample::select(Group::ALL.map(|group| format!("group={group}")).to_vec());
    let others = ["resume", "direct", "mode=transaction", "tls=1.2-rsa1024", "tls=1.1-rsa2048"];
    let other = prop::sample::select(others.map(ToOwned::to_owned).to_vec());
    // The plan completes a path without a key.
    let is_whole = |path: &Path| path.as_tls().is_none_or(|tls| tls.key.is_some());
    let path = prop::sample::select(Path::all().into_iter().filter(is_whole).collect::<Vec<_>>());
    (path, prop::collection::vec(prop_oneof![3 => suite, 1 => group, 2 => other], 0..3)).prop_map(
        |(path, modifiers)| {
            let modified = |so_far: String, modifier: &String| {
                format!("{so_far}+{modifier}").parse::<Path>().map_or(so_far, |path| path.to_string())
            };
            modifiers.iter().fold(path.to_string(), modified)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Whatever is cheapest.
    #[test]
    fn legacy_cryptography_is_never_a_choice(
        costs in prop::collection::btree_map(any_path(), (1.0..1e4_f64, 1.0..1e3_f64), 1..8),
        queries in 0.0..1e4_f64,
    ) {
        let all = costs.iter().filter(|(path, _)| *path != "plain");
        let all = all.map(|(path, (connect, query))| (path.as_str(), *connect, *query));
        let costs: Vec<_> = [("plain", 200.0, 30.0)].into_iter().chain(all).collect();
        let model = model(&costs, &[], 0.01);
        let server = "postgres".parse().expect("valid");
        let advice = advise(&model, &server, &Question::about(&load(queries)));
        for choice in advice.iter().flat_map(|advice| &advice.choices) {
            prop_assert_eq!(choice.profile.treatment.path.legacy(), None);
            let suites = Suite::ALL.into_iter().filter(|suite| suite.is_legacy());
            let suites = suites.map(|suite| format!("suite={suite}"));
            let others = ["tls1.0", "tls1.1", "TLSv1.0", "TLSv1.1", "rsa1024", "aes256-cbc"];
            let settings = settings(&choice.profile.treatment, None);
            for legacy in suites.chain(others.map(ToOwned::to_owned)) {
                prop_assert!(!settings.iter().any(|file| file.text.contains(&legacy)), "{} {:?}", legacy, settings);
            }
        }
    }
}

/// A server that is not ours chooses what it knows.
#[test]
fn a_configuration_that_negotiated_something_legacy_is_no_choice() {
    let mut model = model(COSTS, &[], 0.01);
    for profile in &mut model.profiles {
        if profile.treatment.path.to_string() == "tls1.3-p256" {
            profile.negotiated_legacy = Some(Legacy::Key);
        }
    }
    // The newest version that may be advised.
    assert_eq!(first(&model, &[Need::EndToEnd], 1.0).as_deref(), Some("tls1.2-p256"));
}

#[test]
fn the_lowest_cost_of_the_load_decides() {
    let model = model(COSTS, &[], 0.01);
    assert_eq!(first(&model, &[Need::Verify], 1.0).as_deref(), Some("proxy"));
    assert_eq!(first(&model, &[Need::Verify], 1_000.0).as_deref(), Some("tls1.3-p256"));
}

#[test]
fn a_need_excludes_the_cheapest() {
    let model = model(COSTS, &[], 0.01);
    for need in [Need::EndToEnd, Need::NoNewProcess] {
        assert_eq!(first(&model, &[need], 1.0).as_deref(), Some("tls1.3-p256"), "{need:?}");
    }
    assert_eq!(first(&model, &[Need::NoDriverChange], 1.0).as_deref(), Some("proxy"));
    assert_eq!(first(&model, &[Need::AtRest], 1.0), None, "no file was encrypted");
}

#[test]
fn an_older_protocol_is_no_choice_if_a_newer_one_was_measured() {
    let model = model(COSTS, &[], 0.01);
    assert_eq!(first(&model, &[Need::EndToEnd], 1.0).as_deref(), Some("tls1.3-p256"));
    let alone = self::model(&COSTS[3..], &[], 0.01);
    assert_eq!(first(&alone, &[Need::EndToEnd], 1.0).as_deref(), Some("tls1.2-p256"));
}

#[test]
fn simplicity_decides_between_costs_that_cannot_be_told_apart() {
    let paths = |proxy| [("tls1.3-p256", 1_000.0, 30.0), ("proxy", proxy, 30.0)];
    let costs = paths(900.0);
    let noisy = model(&costs, &[], 0.2);
    assert_eq!(first(&noisy, &[], 1.0).as_deref(), Some("tls1.3-p256"));
    let precise = model(&costs, &[], 0.001);
    assert_eq!(first(&precise, &[], 1.0).as_deref(), Some("proxy"));
    let server = "postgres".parse().unwrap();
    let advice = advise(&noisy, &server, &Question::about(&load(1.0))).unwrap();
    assert!(advice.choices.iter().all(|choice| choice.rank == Rank::AsCheap));
}

#[test]
fn the_choice_changes_at_the_break_even() {
    let model = model(COSTS, &[], 0.01);
    let server = "postgres".parse().unwrap();
    let advice: Advice<'_> = advise(&model, &server, &Question::about(&load(1.0))).unwrap();
    let Some(BreakEven::At { queries, interval, below: Side::First }) = advice.choices[1].break_even else {
        panic!("{:?}", advice.choices[1].break_even);
    };
    let interval = interval.unwrap();
    assert!((queries - 1_100.0 / 30.0).abs() < 0.1, "{queries}");
    assert_eq!(first(&model, &[Need::Verify], interval.low * 0.95).as_deref(), Some("proxy"));
    assert_eq!(first(&model, &[Need::Verify], interval.high * 1.05).as_deref(), Some("tls1.3-p256"));
}

#[test]
fn a_login_without_a_password_does_not_win() {
    let auth: Auth = "scram-4096".parse().unwrap();
    let model = model(COSTS, &[Auth::Trust, auth], 0.01);
    let server = "postgres".parse().unwrap();
    let advice = advise(&model, &server, &Question::about(&load(1.0))).unwrap();
    assert!(advice.choices.iter().all(|choice| choice.profile.treatment.auth == auth));
    let trusting = self::model(COSTS, &[Auth::Trust], 0.01);
    assert_eq!(first(&trusting, &[Need::Verify], 1.0).as_deref(), Some("proxy"));
}

#[test]
fn a_run_without_queries_gives_no_advice_for_them() {
    let model = model(COSTS, &[], 0.01);
    let server = "postgres".parse().unwrap();
    let rows = Load { row_bytes: 64 << 10, ..load(1.0) };
    assert_eq!(advise(&model, &server, &Question::about(&rows)).unwrap_err(), MissingTerm::Rows);
}

#[test]
fn a_run_of_too_few_blocks_gives_no_advice() {
    let server = "postgres".parse().unwrap();
    let advised = |blocks| {
        let model = model_after(blocks, COSTS, &[], 0.01);
        advise(&model, &server, &Question::about(&load(1.0))).map(|advice| advice.choices.len())
    };
    assert_eq!(advised(3), Err(MissingTerm::Intervals));
    assert_eq!(advised(4), Ok(2));
}

/// The same CPU time and time as [`model`], except that a connect takes `times` ns.
fn model_with_times(costs: Costs<'_>, times: &[(&str, f64)]) -> CostModel {
    let mut model = model(costs, &[], 0.01);
    let CostModel { profiles, means, .. } = &mut model;
    for profile in profiles {
        let path = profile.treatment.path.to_string();
        let Some((_, time)) = times.iter().find(|(name, _)| *name == path) else { continue };
        let connect = profile.latency.connect.at(1.0).expect("measured");
        let factor = time / means.value(&connect).value;
        profile.latency.connect.0[0].1 = connect * factor;
    }
    model
}

fn chosen(model: &CostModel, question: &Question<'_>) -> String {
    let advice = advise(model, &"postgres".parse().expect("valid"), question).expect("known costs");
    advice.choices[0].profile.treatment.path.to_string()
}

#[test]
fn a_saving_below_the_threshold_is_not_worth_a_change() {
    let model = model(COSTS, &[], 0.01);
    let at = |rate: f64| Load { connects_per_s: Some(rate), ..load(1.0) };
    // It saves 1.07 ms of CPU time per session. Times differ by less than 1 ms only with a higher threshold.
    let worth = |cores| Worth { cores, time_ns: 5e6 };
    let choice = |rate, worth| chosen(&model, &Question { worth, ..Question::about(&at(rate)) });
    assert_eq!(choice(3.4, worth(0.1)), "tls1.3-p256");
    assert_eq!(choice(3.4, worth(0.003)), "proxy");
    assert_eq!(choice(200.0, worth(0.1)), "proxy");
    let server = "postgres".parse().unwrap();
    let load = at(3.4);
    let advice = advise(&model, &server, &Question { worth: worth(0.1), ..Question::about(&load) }).unwrap();
    assert_eq!(advice.choices[1].rank, Rank::NotWorthIt);
    assert!((advice.choices[1].saving.unwrap().cores.unwrap() + 0.003_638).abs() < 1e-5);
    // Its time is worth it: 1.1 ms.
    assert_eq!(chosen(&model, &Question::about(&load)), "proxy");
}

#[test]
fn time_and_cpu_time_are_weighed_by_the_larger_ratio() {
    // The proxy costs twice the CPU time and connects in half of the time, or in 80 %.
    let costs = [("tls1.3-p256", 1_000.0, 30.0), ("proxy", 2_000.0, 30.0)];
    let load = Load { connects_per_s: Some(200.0), ..load(0.0) };
    for (proxy_ns, optimize, expected) in [
        (20e6, Optimize::Both, "proxy"),
        (80e6, Optimize::Both, "tls1.3-p256"),
        (80e6, Optimize::Latency, "proxy"),
        (20e6, Optimize::Cpu, "tls1.3-p256"),
    ] {
        let model = model_with_times(&costs, &[("tls1.3-p256", 100e6), ("proxy", proxy_ns)]);
        let question = Question { optimize, ..Question::about(&load) };
        assert_eq!(chosen(&model, &question), expected, "{proxy_ns} {optimize:?}");
    }
}

#[test]
fn a_load_that_no_choice_can_serve_is_told_apart_from_one_that_some_can() {
    let model = model(COSTS, &[], 0.01);
    let server = "postgres".parse().unwrap();
    let at = |rate: f64| Load { connects_per_s: Some(rate), ..load(1.0) };
    let of_load = |load: &Load| advise(&model, &server, &Question::about(load)).unwrap();
    // Two cores serve 1,600 sessions of TLS 1.3 per second, and 12,000 of the proxy.
    let possible = at(5_000.0);
    let advice = of_load(&possible);
    assert!(advice.overload.is_none() && advice.choices.len() == 1, "{advice:?}");
    assert!(advice.excluded.iter().any(|excluded| excluded.reason == "it cannot serve this load"));
    let load = at(1e6);
    let advice = of_load(&load);
    let (profile, most) = advice.overload.unwrap();
    assert_eq!((profile.treatment.path.to_string().as_str(), advice.choices.len()), ("proxy", 2));
    assert!(most.sessions_per_s.value < 2e4);
}

/// As of a server elsewhere, whose CPU time is not measured.
#[test]
fn what_the_run_lacks_does_not_decide() {
    let load = Load { connects_per_s: Some(200.0), ..load(1.0) };
    let mut model = model_with_times(COSTS, &[("tls1.3-p256", 5e6), ("proxy", 1e6)]);
    model.profiles.iter_mut().for_each(|profile| profile.cpu.clear());
    assert_eq!(chosen(&model, &Question::about(&load)), "proxy");
    let server = "postgres".parse().unwrap();
    let cpu = Question { optimize: Optimize::Cpu, ..Question::about(&load) };
    assert_eq!(advise(&model, &server, &cpu).unwrap_err(), MissingTerm::ConnectCpu);
    // Over another link than its own.
    let far = Load { rtt_ns: 45e6, ..load };
    assert_eq!(advise(&model, &server, &Question::about(&far)).unwrap_err(), MissingTerm::RoundTrips);
    // Over a link that was not measured, CPU time decides.
    let model = self::model(COSTS, &[], 0.01);
    assert_eq!(chosen(&model, &Question::about(&far)), "proxy");
    let latency = Question { optimize: Optimize::Latency, ..Question::about(&far) };
    assert_eq!(advise(&model, &server, &latency).unwrap_err(), MissingTerm::RoundTrips);
}

const RESUMABLE: Costs<'_> = &[
    ("plain", 100.0, 50.0),
    ("tls1.2-rsa2048", 1_400.0, 55.0),
    ("tls1.3-p256", 1_000.0, 55.0),
    ("tls1.3-p256+resume", 400.0, 55.0),
    ("proxy", 80.0, 60.0),
];

#[test]
fn todays_connections_cost_what_the_nearest_configurations_cost() {
    let model = model(RESUMABLE, &[], 0.01);
    let server = "postgres".parse().unwrap();
    let full = |version, key| TransportToday::Tls { version, key, resumption: Resumption::Never };
    let resumed =
        TransportToday::Tls { version: TlsVersion::Tls13, key: None, resumption: Resumption::Always };
    let seen = [
        (TransportToday::Plain, 10),
        (full(TlsVersion::Tls13, None), 40),
        (resumed, 30),
        // The run has another key only.
        (full(TlsVersion::Tls12, Some(ServerKey::Rsa4096)), 10),
        // And neither of these.
        (full(TlsVersion::Tls11, None), 5),
        (TransportToday::Other, 5),
    ];
    let today = Today::of(&model, &server, &seen).unwrap();
    let paths: Vec<String> =
        today.parts().iter().map(|(profile, _)| profile.treatment.path.to_string()).collect();
    assert_eq!(paths[..2], ["tls1.3-p256", "tls1.3-p256+resume"]);
    assert_eq!(paths.len(), 4);
    assert!((today.unknown_share() - 0.1).abs() < 1e-9);
    let load = Load { connects_per_s: Some(1_000.0), ..load(0.0) };
    let cpu = model.means.value(&today.session_cpu(&model, Role::Total, &load).unwrap()).value;
    let expected = (10.0 * 100.0 + 40.0 * 1_000.0 + 30.0 * 400.0 + 10.0 * 1_400.0) / 90.0;
    assert!((cpu / expected - 1.0).abs() < 0.01, "{cpu} {expected}");
    let proxy = model.profiles.iter().find(|profile| profile.treatment.path.as_proxy().is_some()).unwrap();
    let predicted = today.cores_saved_by(proxy, &model, &load).unwrap().unwrap();
    let (cores, interval) = (predicted.value, predicted.interval().unwrap());
    assert!((cores / ((expected - 80.0) * 1e-3) - 1.0).abs() < 0.02, "{cores}");
    let now = today.cores(&model, &load).unwrap().unwrap();
    assert!((now.value / (expected * 1e-3) - 1.0).abs() < 0.02, "{now:?}");
    // The model's own error is that of both costs: at least 6 % of the larger one, as a standard deviation.
    assert!(interval.high - cores > 1.9 * 0.06 * now.value, "{interval:?} {now:?}");
    // What is plain already saves nothing by being plain, and that is certain.
    let plain = today.find(|path| path == Path::Plain).unwrap();
    let all_plain = Today::of(&model, &server, &[(TransportToday::Plain, 7)]).unwrap();
    let nothing = all_plain.cores_saved_by(plain, &model, &load).unwrap().unwrap();
    assert_eq!((nothing.value, nothing.low(), nothing.high()), (0.0, 0.0, 0.0));
    assert!(Today::of(&model, &server, &[(TransportToday::Other, 7)]).is_none());
    assert!(Today::of(&model, &"mariadb".parse().unwrap(), &seen).is_none());
}
