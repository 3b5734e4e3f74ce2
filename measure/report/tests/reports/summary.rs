//! The lines that end a run.

use ciphertoll_model::{
    Ending, Engine, Event, Flag, Metric, ServerLevel, Spec, TimestampedEvent, VoidReason,
};
use ciphertoll_report::{RunReport, Style, html, json, markdown, summary, terminal};
use ciphertoll_stats::Verdict;

use crate::fixture::{
    Run, against, contexts, hostile, keys, measured, noisy, one_block, quick, ratio_of, smoke, troubled,
};
use crate::html::text_of;
use crate::simulated::simulated;
use crate::what_if::{calibrated, calibrated_until};

const MOST_LINES: usize = 25;

#[test]
fn a_run_ends_in_a_decision() {
    insta::assert_snapshot!(summary(&simulated().report(), Style::Plain, 100));
}

/// 0.413 cores, as in the snapshot above, at 30 per core.
#[test]
fn what_it_saves_is_also_money_if_a_core_has_a_price() {
    let run = simulated();
    let report = RunReport { core_price: Some(30.0), ..run.report() };
    for text in [summary(&report, Style::Plain, 100), text_of(&html(&report)), markdown(&report)] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("(0.413 cores, 12.4 per month, at 1,000 connects/s)"), "{text}");
    }
}

#[test]
fn a_troubled_run_says_so() {
    insta::assert_snapshot!(summary(&troubled().report(), Style::Plain, 100));
}

#[test]
fn an_interrupted_run_advises_nothing_and_says_how_to_go_on() {
    let run = calibrated_until(3, Ending::Interrupted);
    insta::assert_snapshot!(summary(&run.report(), Style::Plain, 100));
}

#[test]
fn no_run_ends_in_more_lines_than_a_terminal_has() {
    let server = || against("ctx=per-connect", "ctx = [\"per-connect\", \"shared\"]");
    let runs: [fn() -> Run; 9] =
        [simulated, quick, keys, smoke, contexts, troubled, one_block, noisy, hostile];
    for run in runs.iter().map(|run| run()).chain([server()]) {
        for width in [40, 80, 100, 120] {
            let text = summary(&run.report(), Style::Plain, width);
            assert!(text.lines().count() <= MOST_LINES, "{width} columns:\n{text}");
            assert!(text.contains("How sure:"), "{width} columns:\n{text}");
            assert!(text.contains("ciphertoll report"), "{width} columns:\n{text}");
        }
    }
}

/// The same run on a busy machine: every trial is flagged, some of them twice.
fn disturbed() -> Run {
    let mut run = simulated();
    let mut twice = [true, false].into_iter().cycle();
    for stamped in &mut run.events {
        if let Event::TrialFinished { observation, .. } = &mut stamped.event {
            observation.flags.push(Flag::CpuElsewhere { share: 0.4 });
            observation.flags.extend(twice.next().unwrap().then_some(Flag::DelayedAck));
        }
    }
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    run
}

#[test]
fn a_run_on_a_busy_machine_says_so_before_its_answer() {
    let run = disturbed();
    let report = run.report();
    let said = "160 of 160 trials were disturbed (mostly: other processes used the CPU)";
    let text = summary(&report, Style::Plain, 100);
    assert!(text.lines().nth(1).unwrap().contains(said), "{text}");
    let page = text_of(&html(&report));
    let (first, _) = page.split_once("What to do").unwrap();
    assert!(first.contains(said), "{first}");
    assert!(markdown(&report).contains(said));
    assert!(!summary(&simulated().report(), Style::Plain, 100).contains("mostly"), "a quiet one does not");
}

#[test]
fn a_machine_that_is_never_quiet_has_a_way_out() {
    let mut run = simulated();
    let mut events = Vec::new();
    for stamped in run.events {
        if let Event::TrialFinished { block, cell, arm, .. } = &stamped.event {
            for attempt in 1..=2 {
                let reason = VoidReason::Steal { percent: 30.0 };
                let event =
                    Event::TrialVoided { block: *block, cell: cell.clone(), arm: *arm, attempt, reason };
                events.push(TimestampedEvent { at_unix_ms: stamped.at_unix_ms, event });
            }
        }
        events.push(stamped);
    }
    run.events = events;
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    let text = summary(&run.report(), Style::Plain, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("(mostly: the hypervisor took CPU time)") && text.contains("(--max-steal 100%)"),
        "{text}"
    );
}

#[test]
fn every_format_counts_the_same_disturbed_trials() {
    let run = disturbed();
    let report = run.report();
    let document: serde_json::Value = serde_json::from_str(&json(&report).unwrap()).unwrap();
    let trials = &document["trials"];
    assert_eq!(
        ["attempts", "voided", "flagged", "disturbed"].map(|key| trials[key].as_u64()),
        [Some(160), Some(0), Some(160), Some(160)]
    );
    let flags =
        document["cells"].as_array().unwrap().iter().flat_map(|cell| cell["flags"].as_array().unwrap());
    let of = |kind: &str| -> u64 {
        let alike = flags.clone().filter(|flag| flag["flag"] == kind);
        alike.map(|flag| flag["trials"].as_u64().unwrap()).sum()
    };
    assert_eq!((of("cpu_elsewhere"), of("delayed_ack")), (160, 80));
    let text = terminal(&report, Style::Plain, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "160 of 160 trials were disturbed, as listed below",
        "A trial with two flags is in two of these lines",
        "160 trials disturbed by other processes",
        "80 trials with a median of 40 ms",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let text = summary(&report, Style::Plain, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("; 160 of 160 trials were disturbed;"), "{text}");
}

#[test]
fn one_path_alone_has_its_numbers_on_the_first_screen() {
    let spec = "baseline = \"path=tls1.3-p256\"\n[[grid]]\npath = [\"tls1.3-p256\"]\nworkload = [\"connect\", \
                \"point-select\"]\nclients = [1]\n";
    let run = measured(&Spec::from_toml(spec).unwrap(), 10);
    let report = run.report();
    let said = "Only tls1.3-p256 was measured, so there is nothing to compare it with: connect at 1 client 612 µs ±1.8 %";
    for text in [summary(&report, Style::Plain, 100), text_of(&html(&report))] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{text}");
        assert!(text.contains("32.1 k/s ±1.2 %"), "{text}");
    }
}

/// A noisy run of two servers: limits of intervals need more columns than there are.
#[test]
fn no_load_is_left_out_for_wide_intervals() {
    let servers = [Engine::MariaDb, Engine::Postgres].map(ServerLevel::of);
    let mut run = measured(&Spec::quick(&servers), 6);
    for comparison in run.own_comparisons() {
        for (metric, ratio) in [(Metric::LatencyNsMean, 1.75), (Metric::RatePerS, 0.57)] {
            ratio_of(comparison, metric, ratio, 0.45, Some(Verdict::Differs));
        }
    }
    let text = summary(&run.report(), Style::Plain, 100);
    for load in ["connect at 1 client, ", "point-select at 8 clients, "] {
        assert_eq!(text.matches(load).count(), servers.len(), "{load}\n{text}");
    }
    assert!(text.contains('±'), "{text}");
}

#[test]
fn what_costs_most_is_never_left_out() {
    for width in [60, 80, 100] {
        let text = summary(&simulated().report(), Style::Plain, width);
        assert!(text.contains("▲ 3.33 ×"), "{width} columns:\n{text}");
    }
    // 15 loads, 4 configurations: connects through the sidecar and over TLS differ most.
    assert!(summary(&calibrated().report(), Style::Plain, 100).contains("tls1.3-p256"));
    insta::assert_snapshot!(summary(&calibrated().report(), Style::Plain, 100));
}

/// How to calibrate the measured server, and why another machine's numbers differ.
#[test]
fn what_to_do_next_is_about_the_server_that_was_measured() {
    let spec = "baseline = \"path=plain\"\n[[grid]]\nserver = [\"mine=postgres://app@db.example/shop\"]\n\
                path = [\"plain\", \"tls1.3\"]\nauth = [\"as-asked\"]\nlink = [\"as-is\"]\nat-rest = [\"as-is\"]\n\
                workload = [\"connect\"]\nclients = [1]\n";
    let mut run = measured(&Spec::from_toml(spec).unwrap(), 10);
    run.end(Ending::Complete);
    let text = summary(&run.report(), Style::Plain, 100);
    assert!(text.contains("Your load: ciphertoll run calibrate --url mine="), "{text}");
    let page = text_of(&html(&simulated().report()));
    assert!(page.contains("Machines differ: here a signature takes"), "{page}");
}
