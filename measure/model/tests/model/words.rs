//! Closed sets: every word once, and each says what it measures.

use std::collections::BTreeSet;

use ciphertoll_model::{ExitCode, Metric, MetricDirection, Phase, Unit};

#[test]
fn metrics_carry_their_unit_and_are_unique() {
    let labels: BTreeSet<_> = Metric::ALL.iter().map(|metric| metric.label()).collect();
    let titles: BTreeSet<_> = Metric::ALL.iter().map(|metric| metric.title()).collect();
    assert_eq!((labels.len(), titles.len()), (Metric::ALL.len(), Metric::ALL.len()));
    for metric in Metric::ALL {
        let label = metric.label();
        let says_so = match metric.unit() {
            Unit::PerSecond => label.ends_with("_per_s"),
            Unit::Nanoseconds => {
                ["latency_ns_", "service_ns_", "schedule_lag_ns_", "phase_ns_", "setup_ns", "fsync_ns_"]
                    .iter()
                    .any(|start| label.starts_with(start))
            }
            Unit::CpuMicroseconds => label.starts_with("cpu_us_per_op_"),
            Unit::Bytes => label.split('_').any(|word| word == "bytes"),
            Unit::Count => label.ends_with("_per_operation") || label.starts_with("checkpoints_"),
        };
        assert!(says_so, "{label} is in {:?}", metric.unit());
        let direction = if metric.unit() == Unit::PerSecond {
            MetricDirection::HigherIsBetter
        } else {
            MetricDirection::LowerIsBetter
        };
        assert_eq!(metric.direction(), direction, "{label}");
        assert_eq!(metric.to_string(), label);
        assert_eq!(serde_json::to_value(metric).unwrap(), label);
    }
}

#[test]
fn every_phase_has_its_metric_in_order() {
    let of_phases = Phase::ALL.map(Metric::of_phase);
    assert!(of_phases.is_sorted() && Phase::ALL.is_sorted());
    let named: Vec<_> = Metric::ALL.iter().filter(|metric| metric.label().starts_with("phase_")).collect();
    assert_eq!(named, of_phases.iter().collect::<Vec<_>>());
    for phase in Phase::ALL {
        let name = serde_json::to_value(phase).unwrap();
        assert_eq!(Metric::of_phase(phase).label(), format!("phase_ns_{}", name.as_str().unwrap()));
    }
}

#[test]
fn exit_codes_are_unique_and_mean_something() {
    let codes = ExitCode::ALL.map(ExitCode::code);
    assert!(codes.is_sorted_by(|one, next| one < next), "{codes:?}");
    let meanings: BTreeSet<_> = ExitCode::ALL.into_iter().map(ExitCode::meaning).collect();
    assert_eq!(meanings.len(), ExitCode::ALL.len());
    // 126 to 128 are the shell's; 128 + n is "killed by signal n", which the two below are as good as.
    assert!(codes.iter().all(|code| *code < 126 || [130, 143].contains(code)));
}
