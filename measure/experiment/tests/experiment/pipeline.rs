//! The whole pipeline on the mock testbed: plan, order of effects, gates, retries, stopping, verdicts.

use std::cell::RefCell;

use ciphertoll_experiment::{Interrupt, Run, Sink, TestbedError, TrialRequest};
use ciphertoll_model::{
    Arm, Clients, Ending, Event, ExitCode, Grid, LookDecision, Metric, Path, Plan, Profiling, ServerKey,
    Size, Spec, TimestampedEvent, TlsVersion, TrialPace, VoidReason, Workload,
};
use ciphertoll_stats::{Verdict, analyse};

use crate::mock::MockTestbed;

/// Of the baseline's rate in a closed loop.
const HALF: &str = "50%";

/// A record in memory whose clock counts events.
#[derive(Default)]
struct Memory {
    events: u64,
    histograms: u64,
    full_after: Option<u64>,
}

impl Sink for Memory {
    fn event(&mut self, event: &Event) -> Result<TimestampedEvent, TestbedError> {
        if self.full_after.is_some_and(|limit| self.events >= limit) {
            return Err(TestbedError { message: "disk full".to_owned(), exit_code: ExitCode::HostResource });
        }
        self.events += 1;
        Ok(TimestampedEvent { at_unix_ms: self.events, event: event.clone() })
    }

    fn histogram(&mut self, _: u32, _: usize, _: Arm, _: &str) -> Result<(), TestbedError> {
        self.histograms += 1;
        Ok(())
    }
}

const TLS13: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);

fn spec(blocks: u32) -> Spec {
    let grid = |workload, clients| Grid {
        path: vec![Path::Plain, Path::Unix, TLS13],
        workload: vec![workload],
        clients: Clients::new(clients).into_iter().collect(),
        ..Grid::default()
    };
    Spec {
        blocks: Some(blocks),
        size: Size::Standard,
        grids: vec![grid(Workload::Connect, 1), grid(Workload::PointSelect, 8)],
        ..Spec::quick(&[])
    }
}

/// TLS costs three times a plain connect and a fifth of the rate; unix is the same as plain.
fn truth(request: &TrialRequest<'_>) -> f64 {
    match (request.cell.treatment.path, request.cell.workload) {
        (path, Workload::PointSelect) if path == TLS13 => 1.25,
        (path, _) if path == TLS13 => 3.0,
        _ => 1.0,
    }
}

fn carry_out(plan: &Plan, testbed: &mut MockTestbed<'_>) -> Vec<TimestampedEvent> {
    Run::new(plan, testbed, &mut Memory::default(), &Interrupt::default())
        .carry_out("0.0.0")
        .expect("a run that ends")
}

#[test]
fn finds_the_planted_effects_and_nothing_else() {
    let plan = Plan::new(&spec(10), 7).unwrap();
    let events = carry_out(&plan, &mut MockTestbed::new(7, truth));
    let analysis = analyse(&plan, &events);
    for cell in analysis.cells() {
        let (metric, expected) = match cell.cell.workload {
            Workload::PointSelect => (Metric::RatePerS, 0.8),
            _ => (Metric::LatencyNsMean, 3.0),
        };
        let Some(ratio) = analysis.comparison_of(cell).and_then(|of| of.ratios.get(&metric)) else {
            assert_eq!(cell.cell.treatment.path, Path::Plain);
            continue;
        };
        if cell.cell.treatment.path == TLS13 {
            assert_eq!(ratio.verdict, Some(Verdict::Differs), "{}", cell.id);
            assert!(ratio.ratio.low() < expected && expected < ratio.ratio.high(), "{ratio:?}");
        } else {
            assert!(!matches!(ratio.verdict, Some(Verdict::Differs)), "{}: {ratio:?}", cell.id);
        }
    }
}

#[test]
fn phases_add_up_to_the_mean() {
    let plan = Plan::new(&spec(6), 3).unwrap();
    let events = carry_out(&plan, &mut MockTestbed::new(3, truth));
    let mut checked = 0;
    for stamped in &events {
        let Event::TrialFinished { cell, observation, .. } = &stamped.event else { continue };
        let phases: f64 =
            observation.metrics.iter().filter(|(m, _)| m.label().starts_with("phase_")).map(|(_, v)| v).sum();
        if phases > 0.0 {
            let mean = observation.metrics[&Metric::LatencyNsMean];
            assert!((phases / mean - 1.0).abs() < 1e-9, "{cell}: {phases} against {mean}");
            checked += 1;
        }
    }
    assert!(checked > 20);
}

#[test]
fn visits_every_cell_and_the_second_baseline_once_a_block() {
    let plan = Plan::new(&spec(6), 11).unwrap();
    let mut testbed = MockTestbed::new(11, truth);
    carry_out(&plan, &mut testbed);
    let trials = testbed.log.iter().filter(|line| line.starts_with("trial")).count();
    assert_eq!(trials, 6 + 6 * 8, "calibration visits 6 cells, a block 6 cells and 2 repeats");
    assert_eq!(testbed.log[..2], ["sweep", "prepare"]);
    let begun = testbed.log.iter().filter(|line| *line == "begin block").count();
    assert_eq!(begun, plan.blocks.len());
    assert_eq!(testbed.log.last().map(String::as_str), Some("down"));
    let repeats = testbed.log.iter().filter(|line| line.as_str() == "trial plain Repeat").count();
    assert_eq!(repeats, 12);
}

/// No noise: it would be the same a little later.
fn refused() -> VoidReason {
    VoidReason::OperationErrors { count: 1, message: "refused".to_owned() }
}

#[test]
fn a_voided_trial_is_repeated_once_at_the_end_of_its_block() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let mut testbed = MockTestbed::new(5, truth);
    let mut failures = 1;
    testbed.fault = Box::new(move |request| {
        let now = request.cell.treatment.path == TLS13 && failures > 0 && request.seed != 0;
        failures -= i32::from(now);
        now.then_some(refused())
    });
    let events = carry_out(&plan, &mut testbed);
    let voided: Vec<_> =
        events.iter().filter(|stamped| matches!(stamped.event, Event::TrialVoided { .. })).collect();
    assert_eq!(voided.len(), 1);
    let again = events
        .iter()
        .find_map(|stamped| match &stamped.event {
            Event::TrialStarted { block, cell, attempt: 2, .. } => Some((*block, cell.clone())),
            _ => None,
        })
        .expect("a second attempt");
    assert!(again.1.0.contains("tls1.3"));
}

#[test]
fn what_the_machine_had_no_time_for_is_tried_more_often() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let attempts_of = |failures: u32| {
        let mut left = failures;
        let mut testbed = MockTestbed::new(5, truth);
        testbed.fault = Box::new(move |request| {
            let now = request.cell.treatment.path == TLS13
                && request.cell.workload == Workload::Connect
                && left > 0;
            left -= u32::from(now);
            now.then_some(if left.is_multiple_of(2) {
                VoidReason::Steal { percent: 9.0 }
            } else {
                VoidReason::NoOperations
            })
        });
        let events = carry_out(&plan, &mut testbed);
        let skipped = events.iter().find_map(|stamped| match &stamped.event {
            Event::CellSkipped { skipped } => Some(skipped.reason.clone()),
            _ => None,
        });
        let last = events.iter().filter_map(|stamped| match &stamped.event {
            Event::TrialStarted { attempt, .. } => Some(*attempt),
            _ => None,
        });
        (last.max(), skipped)
    };
    assert_eq!(attempts_of(4), (Some(5), None));
    let (attempts, reason) = attempts_of(5);
    let reason = reason.expect("the fifth attempt is the last");
    assert_eq!(attempts, Some(5));
    assert!(reason.starts_with("failed 5 times in calibration: the hypervisor took 9.0 %"), "{reason}");
}

#[test]
fn a_cell_that_fails_calibration_twice_is_skipped_and_the_rest_goes_on() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let mut testbed = MockTestbed::new(5, truth);
    testbed.fault = Box::new(|request| (request.cell.treatment.path == Path::Unix).then_some(refused()));
    let events = carry_out(&plan, &mut testbed);
    let skipped = events.iter().filter(|s| matches!(s.event, Event::CellSkipped { .. })).count();
    assert_eq!(skipped, 2, "unix in both strata");
    let analysis = analyse(&plan, &events);
    let cells = analysis.cells();
    let tls = cells.iter().find(|cell| cell.cell.treatment.path == TLS13).unwrap();
    assert_eq!(tls.blocks_used, 6);
}

#[test]
fn nothing_measurable_is_an_error_with_its_code() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let mut testbed = MockTestbed::new(5, truth);
    testbed.fault = Box::new(|_| Some(refused()));
    let interrupt = Interrupt::default();
    let error =
        Run::new(&plan, &mut testbed, &mut Memory::default(), &interrupt).carry_out("0.0.0").unwrap_err();
    assert_eq!(error.exit_code, ExitCode::NothingRan);
    assert_eq!(testbed.log.last().map(String::as_str), Some("down"));
}

#[test]
fn ctrl_c_ends_after_the_running_trial_and_takes_the_bench_down() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let interrupt = Interrupt::default();
    let flag = interrupt.flag();
    let trials = RefCell::new(0);
    let mut testbed = MockTestbed::new(5, truth);
    testbed.before = Box::new(|_| {
        *trials.borrow_mut() += 1;
        if *trials.borrow() == 9 {
            flag.store(2, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let events =
        Run::new(&plan, &mut testbed, &mut Memory::default(), &interrupt).carry_out("0.0.0").unwrap();
    assert_eq!(*trials.borrow(), 9);
    assert!(matches!(events.last().unwrap().event, Event::Finished { ending: Ending::Interrupted }));
    assert_eq!(testbed.log.last().map(String::as_str), Some("down"));
}

#[test]
fn primitives_are_timed_once_in_a_run_before_its_first_block() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let interrupt = Interrupt::default();
    let flag = interrupt.flag();
    let mut testbed = MockTestbed::new(5, truth);
    testbed.before = Box::new(|_| flag.store(2, std::sync::atomic::Ordering::Relaxed));
    let events =
        Run::new(&plan, &mut testbed, &mut Memory::default(), &interrupt).carry_out("0.0.0").unwrap();
    let timed =
        |testbed: &MockTestbed<'_>| testbed.log.iter().filter(|line| *line == "time primitives").count();
    assert_eq!(timed(&testbed), 1);
    let at = |wanted: fn(&Event) -> bool| events.iter().position(|stamped| wanted(&stamped.event)).unwrap();
    let measured = at(|event| matches!(event, Event::PrimitivesMeasured { .. }));
    assert!(measured < at(|event| matches!(event, Event::BlockStarted { .. })));

    let mut again = MockTestbed::new(5, truth);
    let (mut sink, goes_on) = (Memory::default(), Interrupt::default());
    let resumed = Run::resuming(&plan, &mut again, &mut sink, &goes_on, events).carry_out("0.0.0").unwrap();
    assert!(matches!(resumed.last().unwrap().event, Event::Finished { ending: Ending::Complete }));
    assert_eq!(timed(&again), 0, "the record has them");
}

/// What was used before counts: two blocks of 18 events each, a minute apart, and what calibration took.
#[test]
fn a_resumed_run_has_the_budget_that_is_left() {
    let interrupted = |plan: &Plan| {
        let interrupt = Interrupt::default();
        let flag = interrupt.flag();
        let trials = RefCell::new(0);
        let mut testbed = MockTestbed::new(5, truth);
        testbed.before = Box::new(|_| {
            *trials.borrow_mut() += 1;
            // Calibration's six, twice eight, and two.
            if *trials.borrow() == 24 {
                flag.store(2, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let events =
            Run::new(plan, &mut testbed, &mut Memory::default(), &interrupt).carry_out("0.0.0").unwrap();
        let minutes = |stamped: TimestampedEvent| TimestampedEvent {
            at_unix_ms: stamped.at_unix_ms * 60_000,
            ..stamped
        };
        events.into_iter().map(minutes).collect::<Vec<_>>()
    };
    let resumed = |budget: &str| {
        let plan = Plan::new(&Spec { budget: Some(budget.parse().unwrap()), ..spec(6) }, 5).unwrap();
        let mut testbed = MockTestbed::new(5, truth);
        let (mut sink, goes_on) = (Memory::default(), Interrupt::default());
        let events = interrupted(&plan);
        let events =
            Run::resuming(&plan, &mut testbed, &mut sink, &goes_on, events).carry_out("0.0.0").unwrap();
        (decisions(&events), testbed.log.iter().any(|line| line.starts_with("trial")))
    };
    assert_eq!(resumed("60m"), (vec![(2, LookDecision::StopBudget)], false));
    // 15 min of calibration, 36 of two blocks, 4 of one that was cut short, and 18 of the next.
    assert_eq!(resumed("70m"), (vec![(2, LookDecision::StopBudget)], false));
    assert_eq!(resumed("600m"), (vec![(6, LookDecision::StopPlanned)], true));
}

/// Each configuration once, after the last block, and again in no resumed run.
#[test]
fn profiles_are_taken_after_all_trials_that_count() {
    let plan = Plan::new(&Spec { profile: Profiling::On, ..spec(2) }, 7).unwrap();
    let events = carry_out(&plan, &mut MockTestbed::new(7, truth));
    let at = |wanted: fn(&Event) -> bool| events.iter().position(|stamped| wanted(&stamped.event)).unwrap();
    let is_profile = |event: &Event| matches!(event, Event::Profiled { .. });
    let stopped = at(|event| matches!(event, Event::Looked { decision: LookDecision::StopPlanned, .. }));
    assert!(at(is_profile) > stopped);
    let count = |events: &[TimestampedEvent]| events.iter().filter(|it| is_profile(&it.event)).count();
    assert_eq!(count(&events), plan.cells.len());

    // Killed after the second profile.
    let second = events.iter().enumerate().filter(|(_, it)| is_profile(&it.event)).nth(1).unwrap().0;
    let mut testbed = MockTestbed::new(7, truth);
    let (mut sink, interrupt) = (Memory::default(), Interrupt::default());
    let run = Run::resuming(&plan, &mut testbed, &mut sink, &interrupt, events[..=second].to_vec())
        .carry_out("0.0.0");
    assert_eq!(count(&run.unwrap()), plan.cells.len());
    let trials = testbed.log.iter().filter(|step| step.starts_with("trial")).count();
    assert_eq!(trials, plan.cells.len() - 2, "nothing but the missing profiles: {:?}", testbed.log);
}

#[test]
fn a_full_disk_ends_the_run_with_its_code_and_takes_the_bench_down() {
    let plan = Plan::new(&spec(6), 5).unwrap();
    let mut testbed = MockTestbed::new(5, truth);
    let mut sink = Memory { full_after: Some(30), ..Memory::default() };
    let error =
        Run::new(&plan, &mut testbed, &mut sink, &Interrupt::default()).carry_out("0.0.0").unwrap_err();
    assert_eq!(error.exit_code, ExitCode::HostResource);
    assert_eq!(testbed.log.last().map(String::as_str), Some("down"));
}

#[test]
fn stops_early_only_when_precise() {
    let plan = Plan::new(&spec(30), 5).unwrap();
    let mut quiet = MockTestbed::new(5, truth);
    quiet.noise = 0.001;
    quiet.drift = 0.0;
    let events = carry_out(&plan, &mut quiet);
    assert_eq!(decisions(&events), vec![(6, LookDecision::StopPrecise)]);

    let mut noisy = MockTestbed::new(5, truth);
    noisy.noise = 0.2;
    let events = carry_out(&plan, &mut noisy);
    let blocks: Vec<u32> = decisions(&events).iter().map(|(blocks, _)| *blocks).collect();
    assert_eq!(blocks, vec![6, 10, 15, 20, 30]);
    assert_eq!(decisions(&events).last().unwrap().1, LookDecision::StopPlanned);
}

fn decisions(events: &[TimestampedEvent]) -> Vec<(u32, LookDecision)> {
    let looked = events.iter().filter_map(|stamped| match stamped.event {
        Event::Looked { blocks, decision } => Some((blocks, decision)),
        _ => None,
    });
    looked.collect()
}

#[test]
fn a_share_of_a_capacity_is_a_rate_once_the_baseline_has_shown_what_it_can_do() {
    let mut spec = spec(2);
    for grid in &mut spec.grids {
        grid.pace = vec![HALF.parse().unwrap()];
    }
    let plan = Plan::new(&spec, 7).unwrap();
    let paces = RefCell::new(Vec::new());
    let mut testbed = MockTestbed::new(7, truth);
    testbed.before =
        Box::new(|request| paces.borrow_mut().push((request.cell.workload, request.cell.id(), request.pace)));
    let events = carry_out(&plan, &mut testbed);
    drop(testbed);
    let capacities: Vec<f64> = events
        .iter()
        .filter_map(|stamped| match &stamped.event {
            Event::CapacityFound { per_s, .. } => Some(*per_s),
            _ => None,
        })
        .collect();
    assert_eq!(capacities.len(), 2, "one for each stratum");
    let paces = paces.into_inner();
    let closed: Vec<_> = paces.iter().filter(|(.., pace)| *pace == TrialPace::Closed).collect();
    assert_eq!(closed.len(), 2, "each baseline once");
    assert!(closed.iter().all(|(_, id, _)| id.0.contains("/plain/")));
    let open: Vec<_> = paces
        .iter()
        .filter_map(|(workload, _, pace)| match pace {
            TrialPace::Open { per_s } => Some((*workload, *per_s)),
            TrialPace::Closed => None,
        })
        .collect();
    assert_eq!(open.len(), paces.len() - 2);
    for (workload, per_s) in open {
        let capacity = if workload == Workload::Connect { capacities[0] } else { capacities[1] };
        assert!((per_s / capacity - 0.5).abs() < 1e-9, "{workload}: {per_s} of {capacity}");
    }
}

#[test]
fn a_baseline_without_capacity_takes_its_stratum_with_it() {
    let mut spec = spec(2);
    spec.grids[0].pace = vec![HALF.parse().unwrap()];
    let plan = Plan::new(&spec, 7).unwrap();
    let mut testbed = MockTestbed::new(7, truth);
    testbed.fault = Box::new(|request| {
        let calibrates = request.pace == TrialPace::Closed && request.cell.workload == Workload::Connect;
        calibrates.then_some(refused())
    });
    let events = carry_out(&plan, &mut testbed);
    let skipped = events.iter().filter(|stamped| matches!(stamped.event, Event::CellSkipped { .. })).count();
    assert_eq!(skipped, 3);
    let observed = |workload: &str| {
        events.iter().any(|stamped| match &stamped.event {
            Event::TrialFinished { cell, .. } => cell.0.contains(workload),
            _ => false,
        })
    };
    assert!(observed("/point-select/") && !observed("/connect/"));
}
