//! What a program reads: the golden file of this schema version must not change by accident.

use ciphertoll_model::{Absence, Ending, Metric, Workload};
use ciphertoll_report::{CostPart, Document, Style, json, terminal};
use serde_json::Value;

use crate::fixture::{Run, TLS12, TLS13, id, keys, one_block, quick, smoke, troubled};
use crate::schema;

fn complete() -> Run {
    let mut run = quick();
    run.end(Ending::Complete);
    run
}

#[test]
fn the_document_is_the_golden_one() {
    let found = json(&complete().report()).unwrap();
    let golden = schema::golden("v1.json", &found);
    assert!(
        found == golden,
        "v1.json has changed: a new schema_version, or UPDATE_GOLDEN=1 and a good reason"
    );
}

#[test]
fn nothing_is_null() {
    fn assert_no_null(value: &Value, at: &str) {
        match value {
            Value::Null => panic!("{at} is null"),
            Value::Array(items) => items.iter().for_each(|item| assert_no_null(item, at)),
            Value::Object(fields) => fields.iter().for_each(|(name, field)| assert_no_null(field, name)),
            _ => {}
        }
    }
    for run in [complete(), smoke(), troubled(), one_block(), keys()] {
        assert_no_null(&serde_json::from_str(&json(&run.report()).unwrap()).unwrap(), "the document");
    }
}

#[test]
fn tolls_are_absent_on_the_baseline_and_verdicts_where_none_is_given() {
    let run = smoke();
    let document = Document::from(&run.report());
    let (baselines, treatments): (Vec<_>, Vec<_>) =
        document.cells.iter().partition(|cell| cell.path == ciphertoll_model::Path::Plain);
    assert!(baselines.iter().all(|cell| cell.toll.is_none() && cell.ctx.is_none()));
    assert!(treatments.iter().all(|cell| cell.toll.is_some() && cell.ctx.is_some()));
    let verdicts = treatments.iter().filter_map(|cell| cell.toll.as_ref()).flat_map(|toll| toll.values());
    assert!(verdicts.into_iter().all(|toll| toll.verdict.is_none()));
}

/// Two blocks have a mean, and an interval over many orders of magnitude, which says nothing.
#[test]
fn below_six_blocks_numbers_have_no_interval() {
    let document: Value = serde_json::from_str(&json(&smoke().report()).unwrap()).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let of = |cell: &Value, key: &str| {
        cell[key]
            .as_object()
            .into_iter()
            .flat_map(|numbers| numbers.values().cloned().collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let numbers: Vec<Value> =
        cells.iter().flat_map(|cell| [of(cell, "metrics"), of(cell, "toll")].concat()).collect();
    assert!(!numbers.is_empty());
    for number in numbers {
        assert!(number["value"].is_number(), "{number}");
        assert!(number.get("ci_low").is_none() && number.get("ci_high").is_none(), "{number}");
    }
}

#[test]
fn what_is_absent_says_why_in_the_cell() {
    let mut run = quick();
    let absence = Absence::TooFewSamples { samples: 145, needed: 200, window_ns: 2_000_000_000 };
    let cell = run.cell(Workload::Connect, TLS13);
    cell.metrics.remove(&Metric::LatencyNsP95);
    cell.absent.insert(Metric::LatencyNsP95, absence);
    let id = cell.id.clone();
    let document: Value = serde_json::from_str(&json(&run.report()).unwrap()).unwrap();
    for cell in document["cells"].as_array().unwrap() {
        let expected = (cell["id"] == id.0.as_str()).then(|| {
            serde_json::json!({ "latency_ns_p95": "145 samples in a trial, 200 are needed: use --trial-time 4s" })
        });
        assert_eq!(cell.get("absent"), expected.as_ref(), "{cell:#}");
    }
}

#[test]
fn a_cell_skipped_in_the_run_is_listed_once_and_has_no_numbers() {
    let mut run = troubled();
    let again = run.events.clone();
    run.events.extend(again);
    let skipped = run.cell(Workload::Connect, TLS12).id.clone();
    let document = Document::from(&run.report());
    assert_eq!(document.skipped.iter().filter(|other| other.id == skipped.0).count(), 1);
    assert!(document.cells.iter().all(|cell| cell.id != skipped));
}

#[test]
fn the_last_ending_counts() {
    let mut run = quick();
    assert!(!Document::from(&run.report()).complete, "no end at all");
    run.end(Ending::Interrupted);
    assert!(!Document::from(&run.report()).complete);
    run.end(Ending::Complete);
    assert!(Document::from(&run.report()).complete, "resumed to the end");
}

#[test]
fn the_noise_floor_goes_by_the_baselines_id() {
    let document = Document::from(&complete().report());
    let floor = &document.noise_floor[&id("mariadb/plain/native/-/native/local/none/connect/1/10000")];
    assert!((floor[&Metric::LatencyNsMean] - 0.018).abs() < 1e-12);
}

#[test]
fn what_has_no_interval_is_absent() {
    let document = Document::from(&one_block().report());
    assert!(document.cells.iter().all(|cell| cell.metrics.is_empty()));
    assert!(document.noise_floor.values().all(std::collections::BTreeMap::is_empty));
}

#[test]
fn what_a_connect_is_made_of_adds_up_to_its_time() {
    let document = Document::from(&keys().report());
    assert!(document.primitives.is_some());
    for cell in &document.cells {
        let sum: f64 = cell.connect_cost_ns.values().sum();
        let mean = cell.metrics[&Metric::LatencyNsMean].value;
        assert!((sum / mean - 1.0).abs() < 0.01, "{}: {sum} of {mean}", cell.id.0);
    }
    let of_path = |path| document.cells.iter().find(|cell| cell.path == path).unwrap();
    let p256 = &of_path(TLS13).connect_cost_ns;
    assert_eq!((p256[&CostPart::Signature], p256[&CostPart::Chain]), (52_000.0, 38_000.0));
    assert_eq!((p256[&CostPart::KeyExchange], p256[&CostPart::OtherHandshake]), (56_000.0, 82_100.0));
    let plain = &of_path(ciphertoll_model::Path::Plain).connect_cost_ns;
    assert_eq!(
        plain.keys().copied().collect::<Vec<_>>(),
        [CostPart::Network, CostPart::Authentication, CostPart::Close]
    );
    assert!(Document::from(&complete().report()).cells.iter().all(|cell| cell.connect_cost_ns.is_empty()));
}

/// A machine that was busy while the primitives were timed, or a server with a better library.
#[test]
fn primitives_that_take_longer_than_the_handshake_are_scaled_to_fit() {
    let mut run = keys();
    let cell = run.cell(Workload::Connect, TLS13);
    let handshake = cell.metrics.get_mut(&Metric::PhaseNsTlsHandshake).unwrap();
    handshake.value = 68_900.0; // 73 µs with the request: half of what the primitives take
    let document = Document::from(&run.report());
    let parts = &document.cells.iter().find(|cell| cell.path == TLS13).unwrap().connect_cost_ns;
    assert_eq!((parts[&CostPart::Signature], parts[&CostPart::KeyExchange]), (26_000.0, 28_000.0));
    assert!(!parts.contains_key(&CostPart::OtherHandshake), "never negative, and not 0 either");
    let text = terminal(&run.report(), Style::Plain, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("tls1.3-p256: the primitives alone take 146 µs, longer than"), "{text}");
}
