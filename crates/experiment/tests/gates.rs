//! Each gate lets a sound trial pass and voids what it is there for; each flag marks and voids nothing.

use ciphertoll_experiment::mock::MockBench;
use ciphertoll_experiment::{Bench, Measured, TrialRequest, judge};
use ciphertoll_model::{
    Arm, Cell, Clients, ErrorCount, Flag, Grid, Metric, Path, Plan, ServerKey, Size, Spec, TlsVersion,
    VoidReason, Workload,
};

const TLS13: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);

/// A cell, and what a sound trial of it measures.
fn sound(path: Path, workload: Workload) -> (Cell, Measured) {
    let grid = Grid {
        path: vec![path],
        workload: vec![workload],
        clients: Clients::new(8).into_iter().collect(),
        ..Grid::default()
    };
    let spec = Spec { size: Size::Standard, grids: vec![grid], ..Spec::quick(&[]) };
    let plan = Plan::new(&spec, 1).expect("a plan");
    let cell = plan.cells[0].clone();
    let request = TrialRequest { cell: &cell, arm: Arm::Main, timing: plan.timing, seed: 1 };
    let measured = MockBench::new(1, |_| 1.0).trial(&request).expect("a sound trial");
    (cell, measured)
}

#[track_caller]
fn void(cell: &Cell, measured: &Measured) -> VoidReason {
    judge(cell, measured).expect_err("a void trial")
}

#[test]
fn a_sound_trial_passes_without_a_flag() {
    for workload in [Workload::Connect, Workload::PointSelect] {
        for path in [Path::Plain, TLS13] {
            let (cell, measured) = sound(path, workload);
            let observation = judge(&cell, &measured).expect("passes");
            assert_eq!(observation.flags, [], "{cell}");
            assert!(observation.metrics[&Metric::RatePerS] > 0.0);
        }
    }
}

#[test]
fn another_version_or_key_or_a_resumed_session_is_void() {
    type Change = fn(&mut ciphertoll_model::Leg);
    let changes: [Change; 4] = [
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
    let error = |message: &str, count| ErrorCount { message: message.to_owned(), count };
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
    assert!(judge(&cell, &measured).is_ok());
    measured.machine.steal_ns = measured.machine.busy_ns * 4 / 100;
    assert!(matches!(void(&cell, &measured), VoidReason::Steal { .. }));
}

#[test]
fn two_ticks_of_steal_in_a_short_window_are_the_clocks_grain() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.busy_ns = 400_000_000;
    measured.load.client_cpu_ns = 200_000_000;
    measured.server.cpu_ns = 200_000_000;
    measured.machine.steal_ns = 20_000_000;
    assert!(judge(&cell, &measured).is_ok());
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
    assert!(judge(&cell, &measured).is_ok());
}

#[test]
fn misses_void_cached_reads_but_not_connects() {
    for (workload, is_void) in [(Workload::PointSelect, true), (Workload::Connect, false)] {
        let (cell, mut measured) = sound(Path::Plain, workload);
        measured.server.buffer_misses = measured.load.operations;
        assert_eq!(judge(&cell, &measured).is_err(), is_void, "{workload}");
    }
}

#[test]
fn halves_that_disagree_are_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    let all = measured.load.operations;
    measured.load.operations_by_half = [all * 2 / 5, all * 3 / 5];
    let flags = judge(&cell, &measured).expect("only flagged").flags;
    assert!(matches!(flags[..], [Flag::Unsteady { second_half_ratio }] if second_half_ratio > 1.4));
}

#[test]
fn few_operations_may_differ_by_what_counting_explains() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.operations = 50;
    measured.load.operations_by_half = [29, 21];
    assert_eq!(judge(&cell, &measured).expect("passes").flags, []);
}

#[test]
fn cpu_that_no_role_used_is_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.machine.busy_ns = measured.machine.busy_ns * 3 / 2;
    let flags = judge(&cell, &measured).expect("only flagged").flags;
    assert!(matches!(flags[..], [Flag::CpuElsewhere { share }] if (0.3..0.4).contains(&share)));
}

#[test]
fn a_median_at_forty_milliseconds_on_a_local_path_is_flagged() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.latency.p50_ns = 40_100_000;
    assert_eq!(judge(&cell, &measured).expect("only flagged").flags, [Flag::DelayedAck]);
}

#[test]
fn percentiles_need_their_samples_and_roles_their_cpu() {
    let (cell, mut measured) = sound(Path::Plain, Workload::Connect);
    measured.load.latency.count = 999;
    measured.load.client_cpu_ns = 199_999_999;
    let metrics = judge(&cell, &measured).expect("passes").metrics;
    assert!(metrics.contains_key(&Metric::LatencyNsP95));
    assert!(!metrics.contains_key(&Metric::LatencyNsP99));
    assert!(!metrics.contains_key(&Metric::CpuUsPerOpClient));
    measured.load.latency.count = 199;
    assert!(!judge(&cell, &measured).expect("passes").metrics.contains_key(&Metric::LatencyNsP95));
}
