//! Which trials count.

use ciphertoll_model::{Absence, Arm, Event, Flag, Leg, LegCount, Metric};
use ciphertoll_stats::assemble::{Trials, Visited};
use ciphertoll_stats::{CellRole, analyse};

use crate::fixture::{
    Trial, connect_metrics, finished, id, level, observation, plan, ratios, repeat, run, stamped, treatment,
    trial_of, two_strata_plan, void_trials, voided,
};

fn steady(trial: Trial) -> std::collections::BTreeMap<Metric, f64> {
    connect_metrics(level(trial, 1.5, 0.01))
}

#[test]
fn a_complete_run_fills_every_cell() {
    let plan = plan(6);
    let analysis = analyse(&plan, &run(&plan, steady));
    assert_eq!(analysis.blocks_completed, 6);
    let [baseline, tls] = analysis.cells()[..] else { panic!("two cells were planned") };
    assert_eq!((baseline.role, tls.role), (CellRole::Baseline, CellRole::Treatment));
    assert_eq!((baseline.blocks_used, tls.blocks_used, tls.blocks_planned), (6, 6, 6));
    assert!(analysis.comparison_of(baseline).is_none());
    let ratio = &analysis.comparison_of(tls).unwrap().ratios[&Metric::LatencyNsMean];
    assert_eq!(ratio.pairs, 6);
    assert!((ratio.ratio.value - 1.5).abs() < 0.02);
    assert_eq!(analysis.strata[0].baseline.id, id(&plan, 0));
    assert!((repeat(&analysis, 0)[&Metric::LatencyNsMean].ratio.value - 1.0).abs() < 0.02);
}

#[test]
fn calibration_counts_for_nothing() {
    let plan = plan(6);
    let calibrated = run(&plan, |trial| if trial.block == 0 { connect_metrics(1e9) } else { steady(trial) });
    assert_eq!(analyse(&plan, &calibrated), analyse(&plan, &run(&plan, steady)));
}

#[test]
fn an_unfinished_block_is_dropped() {
    let plan = plan(6);
    let mut events = run(&plan, steady);
    events.pop();
    let analysis = analyse(&plan, &events);
    assert_eq!(analysis.blocks_completed, 5);
    assert_eq!(treatment(&analysis).blocks_used, 5);
}

#[test]
fn a_resumed_block_forgets_its_first_try() {
    let plan = plan(6);
    let whole = run(&plan, steady);
    let torn_at = whole.len() - 2;
    let mut events = whole[..torn_at].to_vec();
    // The torn try voided the treatment; the block then begins again and goes well.
    events.push(voided(&plan, Trial { block: 6, cell: 1, arm: Arm::Main }, 1));
    let begin = Event::BlockStarted { block: 6 };
    let again = whole.iter().position(|event| event.event == begin).expect("block 6 is planned");
    events.extend_from_slice(&whole[again..]);
    assert_eq!(analyse(&plan, &events), analyse(&plan, &whole));
}

#[test]
fn a_missing_baseline_drops_the_block_for_its_stratum_only() {
    let plan = two_strata_plan(8);
    let baselines: Vec<usize> = plan.strata.iter().map(|stratum| stratum.baseline).collect();
    let lost = |trial: Trial| trial.block == 3 && trial.cell == baselines[0] && trial.arm == Arm::Main;
    let analysis = analyse(&plan, &void_trials(&plan, run(&plan, steady), lost));
    assert_eq!(analysis.blocks_completed, 8);
    for (stratum, used) in [(0, 7), (1, 8)] {
        let treatments = analysis.treatments(stratum).map(|comparison| &comparison.cell);
        for cell in treatments.chain([&analysis.strata[stratum].baseline]) {
            assert_eq!(cell.blocks_used, used, "{}", cell.id);
        }
        assert_eq!(repeat(&analysis, stratum)[&Metric::LatencyNsMean].pairs, used);
    }
}

#[test]
fn a_repeated_trial_counts_and_its_void_is_listed() {
    let plan = plan(6);
    let repeated = Trial { block: 2, cell: 1, arm: Arm::Main };
    let mut events = run(&plan, steady);
    let at = events.iter().position(|event| trial_of(&plan, event) == Some(repeated)).expect("is planned");
    events.insert(at, voided(&plan, repeated, 1));
    let analysis = analyse(&plan, &events);
    let cell = treatment(&analysis);
    assert_eq!((cell.blocks_used, cell.voided.len(), cell.voided[0].block), (6, 1, 2));
}

#[test]
fn a_trial_voided_twice_is_missing() {
    let plan = plan(10);
    let lost = |trial: Trial| trial == Trial { block: 2, cell: 1, arm: Arm::Main };
    let analysis = analyse(&plan, &void_trials(&plan, run(&plan, steady), lost));
    assert_eq!(treatment(&analysis).blocks_used, 9);
    assert_eq!(treatment(&analysis).voided.len(), 2);
    assert_eq!(analysis.strata[0].baseline.blocks_used, 10);
}

#[test]
fn what_has_no_logarithm_is_absent_in_its_block_only() {
    let plan = plan(6);
    let events = run(&plan, |trial| {
        let mut metrics = steady(trial);
        if trial.cell == 1 && trial.block <= 2 {
            metrics.insert(Metric::CpuUsPerOpTotal, if trial.block == 1 { 0.0 } else { -1.0 });
        }
        metrics
    });
    let analysis = analyse(&plan, &events);
    let ratios = ratios(&analysis);
    assert_eq!(ratios[&Metric::CpuUsPerOpTotal].pairs, 4);
    assert_eq!(ratios[&Metric::LatencyNsMean].pairs, 6);
}

#[test]
fn a_single_block_yields_no_number() {
    let plan = plan(1);
    let analysis = analyse(&plan, &run(&plan, steady));
    let cell = treatment(&analysis);
    assert_eq!(cell.blocks_used, 1);
    assert!(cell.metrics.is_empty() && ratios(&analysis).is_empty());
    assert!(analysis.strata[0].noise_floor.is_empty());
}

#[test]
fn a_metric_only_one_arm_has_makes_no_ratio() {
    let plan = plan(6);
    let events = run(&plan, |trial| {
        let mut metrics = steady(trial);
        if trial.cell == 1 {
            metrics.insert(Metric::PhaseNsTlsHandshake, 5.0);
        }
        metrics
    });
    let analysis = analyse(&plan, &events);
    let cell = treatment(&analysis);
    assert!(cell.metrics.contains_key(&Metric::PhaseNsTlsHandshake));
    assert!(!ratios(&analysis).contains_key(&Metric::PhaseNsTlsHandshake));
}

#[test]
fn an_unknown_cell_and_no_events_are_no_trouble() {
    let plan = plan(6);
    let other = two_strata_plan(6);
    let empty = analyse(&plan, &[]);
    assert_eq!((empty.blocks_completed, empty.cells().len(), empty.strata.len()), (0, 2, 1));
    let foreign = analyse(
        &plan,
        &[finished(&other, Trial { block: 1, cell: 2, arm: Arm::Main }, observation(connect_metrics(1.0)))],
    );
    assert_eq!(foreign, empty);
}

#[test]
fn a_level_that_no_block_has_says_what_the_worst_trial_lacked() {
    let plan = plan(6);
    let few = |samples| Absence::TooFewSamples { samples, needed: 200, window_ns: 2_000_000_000 };
    let mut events = run(&plan, steady);
    for stamped in &mut events {
        let Event::TrialFinished { block, observation, .. } = &mut stamped.event else { continue };
        let samples = 100 + u64::from(*block);
        observation.absent =
            [Metric::LatencyNsP95, Metric::LatencyNsMean].map(|metric| (metric, few(samples))).into();
    }
    let analysis = analyse(&plan, &events);
    // Of the first block that counts; and the mean is there.
    assert_eq!(treatment(&analysis).absent, [(Metric::LatencyNsP95, few(101))].into());
}

#[test]
fn legs_are_summed_and_flags_counted_by_trial() {
    let plan = plan(2);
    let leg = Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: Some("tls1.3".to_owned()),
        suite: None,
        group: None,
        key: None,
        resumed: Some(false),
        chain: Some(1),
        hello_retry: Some(false),
        auth: None,
        library: None,
        compressor: None,
        signature: None,
        library_version: None,
        unused_shares: Vec::new(),
    };
    let mut events = Vec::new();
    for block in 1..=2 {
        events.push(stamped(Event::BlockStarted { block }));
        for cell in 0..2 {
            let mut seen = observation(connect_metrics(100.0));
            seen.legs = vec![LegCount { leg: leg.clone(), connections: 40, handshake: None }];
            let ratio = f64::from(block);
            let unsteady = Flag::Unsteady { second_half_ratio: ratio };
            seen.flags = vec![unsteady.clone(), unsteady, Flag::DelayedAck];
            seen.flags.truncate(if block == 1 { 2 } else { 3 });
            events.push(finished(&plan, Trial { block, cell, arm: Arm::Main }, seen));
        }
        events.push(stamped(Event::BlockFinished { block }));
    }
    let analysis = analyse(&plan, &events);
    let cell = treatment(&analysis);
    assert_eq!(cell.legs, [LegCount { leg, connections: 80, handshake: None }]);
    let first = Flag::Unsteady { second_half_ratio: 1.0 };
    assert_eq!(cell.flags, [(2, first), (1, Flag::DelayedAck)]);
}

#[test]
fn ratios_by_block_say_which_block_they_are_from() {
    let plan = plan(6);
    let drifting = |trial: Trial| {
        let drift = if trial.cell == 1 { 1.0 + 0.1 * f64::from(trial.block) } else { 1.0 };
        connect_metrics(1e6 * drift)
    };
    let lost = |trial: Trial| trial.block == 3 && trial.cell == 1;
    let events = void_trials(&plan, run(&plan, drifting), lost);
    let main = |cell| Visited { cell, arm: Arm::Main };
    let pairs = Trials::of(&plan, &events).pairs(main(1), main(0));
    let ratios = pairs.ratios_by_block(Metric::LatencyNsMean);
    assert_eq!(pairs.blocks, [1, 2, 4, 5, 6], "block 3 has no pair");
    assert_eq!(ratios.iter().map(|(block, _)| *block).collect::<Vec<_>>(), pairs.blocks);
    for (block, ratio) in ratios {
        assert!((ratio - (1.0 + 0.1 * f64::from(block))).abs() < 1e-9, "block {block}: {ratio}");
    }
    assert!(pairs.ratios_by_block(Metric::ServiceNsP99).is_empty(), "never measured");
}
