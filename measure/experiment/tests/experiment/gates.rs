//! Each gate lets a sound trial pass and voids what it is there for; each flag marks and voids nothing.

use ciphertoll_experiment::{
    LinkUse, Measured, ProcessorsApart, ReadyTestbed, ServerUse, TrialRequest, judge,
};
use ciphertoll_lab::{Counters, SyncTimes};
use ciphertoll_model::{
    Absence, Arm, Cell, Clients, Engine, ErrorCount, ErrorKind, Flag, Grid, LatencySummary, LinkKind, Metric,
    NoiseLimits, Observation, Path, Plan, ServerKey, ServerLevel, Setting, Settings, Size, Spec, TlsVersion,
    TrialPace, VoidReason, Workload,
};

use crate::mock::MockTestbed;

mod proxies;

const TLS13: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);

/// A cell, and what a sound trial of it measures.
fn sound(path: Path, workload: Workload) -> (Cell, Measured) {
    sound_on(Engine::MariaDb, path, workload)
}

fn sound_on(engine: Engine, path: Path, workload: Workload) -> (Cell, Measured) {
    let grid = Grid {
        server: vec![ServerLevel::of(engine)],
        path: vec![path],
        workload: vec![workload],
        clients: Clients::new(8).into_iter().collect(),
        ..Grid::default()
    };
    let spec = Spec { size: Size::Standard, grids: vec![grid], ..Spec::quick(&[]) };
    let plan = Plan::new(&spec, 1).expect("a plan");
    let cell = plan.cells[0].clone();
    let request = TrialRequest {
        cell: &cell,
        arm: Arm::Main,
        pace: TrialPace::Closed,
        timing: plan.timing,
        seed: 1,
        max_per_s: None,
        query: None,
    };
    let measured = MockTestbed::new(1, |_| 1.0).trial(&request).expect("a sound trial");
    (cell, measured)
}

fn server(measured: &mut Measured) -> &mut ServerUse {
    measured.server.as_mut().expect("the mock has one")
}

fn judged(cell: &Cell, measured: &Measured) -> Result<Observation, VoidReason> {
    judge(cell, measured, NoiseLimits::default(), &Settings::default())
}

#[track_caller]
fn void(cell: &Cell, measured: &Measured) -> VoidReason {
    judged(cell, measured).expect_err("a void trial")
}

#[test]
fn a_sound_trial_passes_without_a_flag() {
    for workload in [Workload::Connect, Workload::PointSelect] {
        for path in [Path::Plain, TLS13] {
            let (cell, measured) = sound(path, workload);
            let observation = judged(&cell, &measured).expect("passes");
            assert_eq!(observation.flags, [], "{cell}");
            assert!(observation.metrics[&Metric::RatePerS] > 0.0);
        }
    }
}

#[test]
fn a_connection_that_did_not_agree_on_the_compressor_is_void() {
    for (path, observed) in
        [("plain+compress=zlib", None), ("tls1.3-p256+compress=zlib", None), ("plain", Some("zlib"))]
    {
        let (cell, mut measured) =
            sound_on(Engine::MongoDb, path.parse().expect("a path"), Workload::FindOne);
        assert!(judged(&cell, &measured).is_ok(), "{path}");
        measured.load.legs[0].leg.compressor = observed.map(str::to_owned);
        let told = ["compressed by zlib", "no compression"].map(str::to_owned);
        let [planned, observed] = if observed.is_none() { told } else { [told[1].clone(), told[0].clone()] };
        assert_eq!(void(&cell, &measured), VoidReason::Negotiated { planned, observed });
    }
}

#[test]
fn another_version_or_key_or_a_resumed_session_is_void() {
    type Change = fn(&mut ciphertoll_model::Leg);
    let changes: [Change; 7] = [
        |leg| leg.library = Some("rustls".to_owned()),
        |leg| leg.key = None,
        |leg| leg.library = None,
        |leg| leg.tls_version = Some("tls1.2".to_owned()),
        |leg| leg.key = Some("rsa2048".to_owned()),
        |leg| leg.resumed = Some(true),
        |leg| leg.tls_version = None,
    ];
    for change in changes {
        let (cell, mut measured) = sound(TLS13, Workload::Connect);
        change(&mut measured.load.legs[0].leg);
        assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
    }
}

#[test]
fn a_session_that_is_not_taken_up_or_a_shorter_chain_is_void() {
    type Change = fn(&mut ciphertoll_model::Leg);
    let changes: [(&str, Change); 7] = [
        ("tls1.3-mldsa65", |leg| leg.key = Some("p256".to_owned())),
        ("tls1.3-mldsa65", |leg| leg.signature = Some("ecdsa_secp256r1_sha256".to_owned())),
        ("tls1.3-mldsa44", |leg| leg.signature = None),
        ("tls1.3-p256+resume", |leg| leg.resumed = Some(false)),
        ("tls1.2-p256+resume=id", |leg| leg.resumed = None),
        ("tls1.3-p256+chain=3", |leg| leg.chain = Some(2)),
        ("tls1.3-p256+group=x25519+resume", |leg| leg.group = Some("p256".to_owned())),
    ];
    for (path, change) in changes {
        let (cell, mut measured) = sound(path.parse().expect("a path"), Workload::Connect);
        assert!(judged(&cell, &measured).is_ok(), "{path}");
        change(&mut measured.load.legs[0].leg);
        assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }), "{path}");
    }
    // Before TLS 1.3 a resumed session exchanges no keys, and so has no group.
    let path = "tls1.2-p256+group=p256+resume".parse().expect("a path");
    let (cell, mut measured) = sound(path, Workload::Connect);
    measured.load.legs[0].leg.group = None;
    assert!(judged(&cell, &measured).is_ok());
}

#[test]
fn what_a_foreign_library_does_not_tell_is_taken_on_trust_what_it_tells_is_not() {
    let (mut cell, mut measured) = sound(TLS13, Workload::Connect);
    cell.treatment.driver = "libpq".parse().unwrap();
    let leg = &mut measured.load.legs[0].leg;
    (leg.key, leg.resumed, leg.library) = (None, None, None);
    assert!(judged(&cell, &measured).is_ok());
    measured.load.legs[0].leg.tls_version = Some("tls1.2".to_owned());
    assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
    measured.load.legs[0].leg.tls_version = None;
    assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
}

#[test]
fn an_open_loop_that_falls_behind_is_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::PointSelect);
    measured.load.unfinished = 3;
    assert_eq!(void(&cell, &measured), VoidReason::Overload { unfinished: 3 });
}

#[test]
fn a_schedule_that_is_not_kept_is_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::PointSelect);
    let lag = |p99_ns| LatencySummary { count: 5_000, p99_ns, ..measured.load.latency };
    let (late, in_time) = (lag(2_500_000), lag(100_000));
    measured.load.service = Some(measured.load.latency);
    measured.load.schedule_lag = Some(in_time);
    let observation = judged(&cell, &measured).expect("passes");
    assert!((observation.metrics[&Metric::ScheduleLagNsP99] - 100_000.0).abs() < 1.0);
    assert!(observation.metrics.contains_key(&Metric::ServiceNsP95));
    measured.load.schedule_lag = Some(late);
    assert!(matches!(void(&cell, &measured), VoidReason::ScheduleLag { lag_ns_p99: 2_500_000, .. }));
}

#[test]
fn clients_that_are_the_limit_are_void_only_on_processors_of_their_own() {
    let (cell, mut measured) = sound(Path::Plain, Workload::PointSelect);
    measured.load.client_cpu_ns = measured.load.window_ns / 10 * 9;
    server(&mut measured).cpu_ns = measured.load.window_ns / 10 * 4;
    measured.machine.busy_ns = measured.load.window_ns / 10 * 13;
    assert!(judged(&cell, &measured).is_ok());
    measured.apart = Some(ProcessorsApart { client: 1, server: 1 });
    assert!(matches!(void(&cell, &measured), VoidReason::ClientSaturated { .. }));
    server(&mut measured).cpu_ns = measured.load.window_ns / 10 * 7;
    assert!(judged(&cell, &measured).is_ok());
}

#[test]
fn statements_have_a_rate_of_their_own() {
    let (cell, mut measured) = sound(Path::Plain, Workload::OltpReadOnly);
    measured.load.statements = Some(measured.load.operations * 16);
    let metrics = judged(&cell, &measured).expect("passes").metrics;
    let ratio = metrics[&Metric::StatementsPerS] / metrics[&Metric::RatePerS];
    assert!((ratio - 16.0).abs() < 1e-9, "{ratio}");
}

#[test]
fn one_wrong_connection_among_many_is_enough() {
    let (cell, mut measured) = sound(TLS13, Workload::Connect);
    let mut stray = measured.load.legs[0].clone();
    stray.connections = 1;
    stray.leg.resumed = Some(true);
    measured.load.legs.push(stray);
    assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
}

#[test]
fn encryption_on_a_plain_path_is_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.legs = sound(TLS13, Workload::Connect).1.load.legs;
    assert!(matches!(void(&cell, &measured), VoidReason::Negotiated { .. }));
}

#[test]
fn any_failed_operation_is_void_and_told_by_its_commonest_message() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let error =
        |message: &str, count| ErrorCount { message: message.to_owned(), count, kind: ErrorKind::Other };
    measured.load.errors = vec![error("rare", 1), error("common", 5)];
    let expected = VoidReason::OperationErrors { count: 6, message: "common".to_owned() };
    assert_eq!(void(&cell, &measured), expected);
}

#[test]
fn no_operation_is_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.operations = 0;
    assert_eq!(void(&cell, &measured), VoidReason::NoOperations);
}

#[test]
fn steal_beyond_three_percent_is_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.steal_ns = measured.machine.busy_ns * 2 / 100;
    assert!(judged(&cell, &measured).is_ok());
    measured.machine.steal_ns = measured.machine.busy_ns * 4 / 100;
    assert!(matches!(void(&cell, &measured), VoidReason::Steal { .. }));
    let limit = |text: &str| NoiseLimits { steal: text.parse().expect("a limit"), ..NoiseLimits::default() };
    assert!(judge(&cell, &measured, limit("5%"), &Settings::default()).is_ok());
    measured.machine.steal_ns = measured.machine.busy_ns;
    assert!(judge(&cell, &measured, limit("49%"), &Settings::default()).is_err());
    assert!(judge(&cell, &measured, limit("100%"), &Settings::default()).is_ok());
}

#[test]
fn two_ticks_of_steal_in_a_short_window_are_the_clocks_grain() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.busy_ns = 400_000_000;
    measured.load.client_cpu_ns = 200_000_000;
    server(&mut measured).cpu_ns = 200_000_000;
    measured.machine.steal_ns = 20_000_000;
    assert!(judged(&cell, &measured).is_ok());
    measured.machine.steal_ns = 40_000_000;
    assert!(matches!(void(&cell, &measured), VoidReason::Steal { .. }));
}

#[test]
fn ports_in_time_wait_beyond_four_fifths_are_void_and_unix_sockets_have_none() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let usable = measured.load.usable_ports.expect("TCP has ports");
    measured.machine.time_wait_sockets = usable * 9 / 10;
    assert!(matches!(void(&cell, &measured), VoidReason::PortsExhausted { .. }));
    measured.load.usable_ports = None;
    assert!(judged(&cell, &measured).is_ok());
}

#[test]
fn misses_void_cached_reads_but_not_connects() {
    for (workload, is_void) in [(Workload::PointSelect, true), (Workload::Connect, false)] {
        let (cell, mut measured) = sound(Path::Plain, workload);
        server(&mut measured).counted.buffer_misses = Some(measured.load.operations);
        assert_eq!(judged(&cell, &measured).is_err(), is_void, "{workload}");
    }
}

#[test]
fn counts_of_the_whole_trial_are_divided_by_its_operations() {
    let (cell, mut measured) = sound(Path::Plain, Workload::OltpReadWrite);
    let counted = Counters {
        pages_read: Some(3_000),
        pages_written: Some(1_000),
        wal_bytes: Some(0),
        checkpoints_begun: Some(2),
        ..Counters::default()
    };
    server(&mut measured).counted = counted;
    server(&mut measured).syncs = Some(SyncTimes { p50_ns: 300_000, p99_ns: None });
    let of = |measured: &Measured| {
        let metrics = judged(&cell, measured).expect("a sound trial").metrics;
        [
            Metric::PagesReadPerOperation,
            Metric::PageCrossingsPerOperation,
            Metric::WalBytesPerOperation,
            Metric::FullPageImagesPerOperation,
            Metric::CheckpointsBegun,
            Metric::FsyncNsP50,
            Metric::FsyncNsP99,
        ]
        .map(|metric| metrics.get(&metric).copied())
    };
    // Those of the warm-up are among them.
    measured.load.operations_in_all = Some(2_000);
    let once = Some(300_000.0);
    assert_eq!(of(&measured), [Some(1.5), Some(2.0), Some(0.0), None, Some(2.0), once, None]);
    measured.load.operations_in_all = None;
    assert_eq!(of(&measured), [None, None, None, None, Some(2.0), once, None]);
}

#[test]
fn rows_beyond_the_buffers_that_were_asked_for_are_read_from_disk() {
    let (cell, mut measured) = sound(Path::Plain, Workload::PointSelect);
    server(&mut measured).counted.buffer_misses = Some(measured.load.operations);
    // There are 10,000 rows of about 240 bytes.
    for (buffers, is_void) in [("1M", false), ("8M", true)] {
        let mut settings = Settings::default();
        settings.extend(format!("mariadb.innodb_buffer_pool_size={buffers}").parse::<Setting>());
        let judged = judge(&cell, &measured, NoiseLimits::default(), &settings);
        assert_eq!(judged.is_err(), is_void, "{buffers}");
    }
}

#[test]
fn halves_that_disagree_are_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let all = measured.load.operations;
    measured.load.operations_by_half = [all * 2 / 5, all * 3 / 5];
    let flags = judged(&cell, &measured).expect("only flagged").flags;
    assert!(matches!(flags[..], [Flag::Unsteady { second_half_ratio }] if second_half_ratio > 1.4));
}

#[test]
fn few_operations_may_differ_by_what_counting_explains() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.operations = 50;
    measured.load.operations_by_half = [29, 21];
    assert_eq!(judged(&cell, &measured).expect("passes").flags, []);
}

#[test]
fn cpu_that_no_role_used_is_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.busy_ns = measured.machine.busy_ns * 3 / 2;
    let flags = judged(&cell, &measured).expect("only flagged").flags;
    assert!(matches!(flags[..], [Flag::CpuElsewhere { share }] if (0.3..0.4).contains(&share)));
}

fn link(rtt_ns: u64) -> LinkUse {
    LinkUse { rtt_ns, by: LinkKind::Ring, packets: 1, dropped: 0, late_ns_mean: 0, cpu_ns: None }
}

/// A trial over a link whose median TCP connect took so long.
fn connecting_in(level: &str, path: Path, took_ns: u64) -> (Cell, Measured) {
    let (mut cell, mut measured) = sound(path, Workload::Connect);
    cell.treatment.link = level.parse().expect("a link");
    measured.link = cell.treatment.link.shape().map(|shape| link(shape.rtt_ns()));
    measured.load.tcp_connect_ns_p50 = Some(took_ns);
    (cell, measured)
}

/// Ten times the share that packets may be late by.
#[test]
fn connects_that_take_another_time_than_the_links_round_trip_are_void() {
    let is_void = |level, path, took_ns| {
        let (cell, measured) = connecting_in(level, path, took_ns);
        match judged(&cell, &measured) {
            Ok(_) => false,
            Err(VoidReason::Link { message }) => message.contains("TCP connect"),
            Err(other) => panic!("{other}"),
        }
    };
    for path in [Path::Plain, TLS13] {
        assert!(!is_void("45ms", path, 44_870_000));
        assert!(!is_void("45ms", path, 49_400_000) && !is_void("45ms", path, 40_600_000));
        assert!(is_void("45ms", path, 68_000_000));
        assert!(is_void("45ms", path, 40_400_000));
        // A millisecond is how late a shared machine may be.
        assert!(!is_void("5ms", path, 5_900_000));
        assert!(is_void("5ms", path, 6_100_000));
    }
    // Shorter links, and those whose round trip is not one number.
    for level in ["4ms", "45ms+jitter=5ms", "45ms+loss=1%", "45ms+rate=10mbit"] {
        assert!(!is_void(level, Path::Plain, 68_000_000), "{level}");
    }
}

#[test]
fn more_lateness_lets_connects_be_farther_off() {
    let (cell, measured) = connecting_in("45ms", Path::Plain, 68_000_000);
    let noise =
        |limit: &str| NoiseLimits { lateness: limit.parse().expect("a limit"), ..NoiseLimits::default() };
    assert!(judge(&cell, &measured, noise("5%"), &Settings::default()).is_err());
    assert!(judge(&cell, &measured, noise("6%"), &Settings::default()).is_ok());
}

#[test]
fn connects_that_end_on_this_machine_say_nothing_of_the_link() {
    let (mut cell, mut measured) = connecting_in("45ms", Path::Plain, 100_000);
    assert!(judged(&cell, &measured).is_err());
    measured.link = measured.link.map(|link| LinkUse { by: LinkKind::Relay, ..link });
    assert!(judged(&cell, &measured).is_ok(), "a relay delays no handshake");
    measured.link = measured.link.map(|link| LinkUse { by: LinkKind::Ring, ..link });
    let (of_tunnel, through) = sound("ssh-aes256-gcm".parse().expect("a path"), Workload::Connect);
    cell.treatment.path = of_tunnel.treatment.path;
    measured.tunnel = through.tunnel;
    assert!(judged(&cell, &measured).is_ok(), "a tunnel's end is on this machine");
}

#[test]
fn packets_that_are_late_by_more_than_the_plan_allows_are_void() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let link = link(100_000_000);
    let mut late_by = |late_ns_mean: u64, limit: &str| {
        measured.link = Some(LinkUse { late_ns_mean, ..link });
        let noise = NoiseLimits { lateness: limit.parse().expect("a limit"), ..NoiseLimits::default() };
        judge(&cell, &measured, noise, &Settings::default())
    };
    assert!(late_by(900_000, "1%").is_ok());
    assert!(matches!(late_by(1_100_000, "1%"), Err(VoidReason::Link { .. })));
    assert!(late_by(1_100_000, "2%").is_ok());
    assert!(matches!(late_by(100_100_000, "100%"), Err(VoidReason::Link { .. })));
}

#[test]
fn a_made_links_cpu_is_accounted_for() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let cpu_ns = measured.machine.busy_ns / 2;
    measured.machine.busy_ns += cpu_ns;
    let link = link(45_000_000);
    for (used_ns, expected) in [(Some(cpu_ns), 0), (Some(0), 1), (None, 0)] {
        measured.link = Some(LinkUse { cpu_ns: used_ns, ..link });
        let flags = judged(&cell, &measured).expect("only flagged").flags;
        assert_eq!(flags.len(), expected, "{used_ns:?}: {flags:?}");
    }
}

#[test]
fn a_median_at_forty_milliseconds_on_a_local_path_is_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.latency.p50_ns = 40_100_000;
    assert_eq!(judged(&cell, &measured).expect("only flagged").flags, [Flag::DelayedAck]);
}

/// The roles' clocks are exact, the machine's counts ticks: what is too much is no negative rest.
#[test]
fn cpu_that_the_machine_did_not_use_is_flagged_as_overlapping() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.busy_ns = measured.machine.busy_ns / 10 * 9;
    let flags = judged(&cell, &measured).expect("only flagged").flags;
    assert!(matches!(flags[..], [Flag::CpuOverlap { share }] if (0.10..0.12).contains(&share)), "{flags:?}");
}

#[test]
fn what_a_trial_has_too_little_for_says_why_it_is_absent() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    assert_eq!(judged(&cell, &measured).expect("passes").absent, [].into());
    let window_ns = measured.load.window_ns;
    measured.load.latency.count = 145;
    measured.load.client_cpu_ns = 37_000_000;
    let absent = judged(&cell, &measured).expect("passes").absent;
    let few = |needed| Absence::TooFewSamples { samples: 145, needed, window_ns };
    let little = Absence::TooLittleCpu { cpu_ns: 37_000_000, needed_ns: 200_000_000, window_ns };
    assert_eq!(absent[&Metric::LatencyNsP95], few(200));
    assert_eq!(absent[&Metric::LatencyNsP99], few(1_000));
    assert_eq!(absent[&Metric::CpuUsPerOpClient], little);
    // What does not apply is not missing: there is no proxy, and no open loop.
    assert_eq!(absent.len(), 3, "{absent:?}");
    measured.server = None;
    let absent = judged(&cell, &measured).expect("passes").absent;
    assert_eq!(absent[&Metric::CpuUsPerOpServer], Absence::ServerElsewhere);
    assert_eq!(absent[&Metric::CpuUsPerOpTotal], Absence::ServerElsewhere);
}

#[test]
fn percentiles_need_their_samples_and_roles_their_cpu() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.latency.count = 999;
    measured.load.client_cpu_ns = 199_999_999;
    let metrics = judged(&cell, &measured).expect("passes").metrics;
    assert!(metrics.contains_key(&Metric::LatencyNsP95));
    assert!(!metrics.contains_key(&Metric::LatencyNsP99));
    assert!(!metrics.contains_key(&Metric::CpuUsPerOpClient));
    measured.load.latency.count = 199;
    assert!(!judged(&cell, &measured).expect("passes").metrics.contains_key(&Metric::LatencyNsP95));
}

#[test]
fn of_a_server_elsewhere_only_the_clients_cpu_is_known() {
    let (cell, mut measured) = sound(Path::Plain, Workload::PointSelect);
    measured.server = None;
    measured.load.client_cpu_ns = measured.load.window_ns / 2;
    measured.machine.busy_ns = measured.load.window_ns * 2;
    let observation = judged(&cell, &measured).expect("passes");
    assert_eq!(observation.flags, []);
    let cpu = [Metric::CpuUsPerOpClient, Metric::CpuUsPerOpServer, Metric::CpuUsPerOpTotal];
    assert_eq!(cpu.map(|metric| observation.metrics.contains_key(&metric)), [true, false, false]);
}

#[test]
fn a_busy_machine_of_the_clients_is_noticed_beside_a_server_at_a_url() {
    let processors = std::thread::available_parallelism().expect("a number").get() as u64;
    let disturbed = |url: &str, busy_of_ten: u64, operations: u64| {
        let server = format!("staging={url}").parse().expect("a server");
        let plan = Plan::new(&Spec::quick_at(&[server]), 1).expect("a plan");
        let (_, mut measured) = sound(TLS13, Workload::Connect);
        let window_ns = 1_000_000_000;
        measured.server = None;
        measured.load.window_ns = window_ns;
        measured.load.operations = operations;
        measured.load.operations_by_half = [operations / 2; 2];
        measured.load.client_cpu_ns = window_ns / 100;
        measured.machine.busy_ns = window_ns * processors * busy_of_ten / 10;
        let observation = judged(&plan.cells[1], &measured).expect("passes");
        observation.flags.iter().any(|flag| matches!(flag, Flag::CpuElsewhere { .. }))
    };
    let (far, near) = ("postgres://app@db.example", "postgres://app@127.0.0.1");
    assert!(disturbed(far, 10, 20) && disturbed(far, 3, 20));
    assert!(!disturbed(far, 0, 20));
    // The server's own CPU time is among it.
    assert!(disturbed(near, 10, 20) && !disturbed(near, 5, 20) && !disturbed(near, 10, 50_000));
}

#[test]
fn what_a_server_at_a_url_asks_for_is_taken_as_it_is() {
    let server = "staging=postgres://app@db.example".parse().expect("a server");
    let spec = Spec::quick_at(&[server]);
    let plan = Plan::new(&spec, 1).expect("a plan");
    let (_, mut measured) = sound(TLS13, Workload::Connect);
    let cell = &plan.cells[1];
    measured.load.legs[0].leg.key = Some("rsa3072".to_owned());
    measured.load.legs[0].leg.auth = Some("scram-4096".to_owned());
    assert!(judged(cell, &measured).is_ok());
    measured.load.legs[0].leg.tls_version = Some("tls1.2".to_owned());
    assert!(matches!(void(cell, &measured), VoidReason::Negotiated { .. }));
}
