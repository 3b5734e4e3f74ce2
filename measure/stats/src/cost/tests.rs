use std::collections::BTreeMap;

use ciphertoll_model::Metric;

use super::session::{ByClients, RowCosts};
use super::sum::{Means, MeasuredMean, Source, WeightedSum};

fn source(cell: usize) -> Source {
    Source { cell, metric: Metric::CpuUsPerOpTotal }
}

fn means(values: &[&[f64]]) -> Means {
    let mean = |(cell, values): (usize, &&[f64])| (source(cell), MeasuredMean::of(values).unwrap());
    Means(values.iter().enumerate().map(mean).collect::<BTreeMap<_, _>>())
}

#[test]
fn a_cell_that_cancels_out_adds_no_uncertainty() {
    let means = means(&[&[90.0, 110.0, 100.0, 100.0, 95.0, 105.0], &[10.0; 6]]);
    let (noisy, steady) = (WeightedSum::of(source(0)), WeightedSum::of(source(1)));
    let there_and_back = noisy.clone() + &steady - &noisy;
    let value = means.value(&there_and_back);
    assert!((value.value - 10.0).abs() < 1e-9 && value.variance == 0.0, "{value:?}");
    let twice = means.value(&(noisy.clone() + &noisy));
    let once = means.value(&noisy);
    assert!(
        (twice.variance - 4.0 * once.variance).abs() < 1e-9,
        "the same cell is not independent of itself"
    );
    assert!((means.covariance(&noisy, &(noisy.clone() * 3.0 - &steady)) - 3.0 * once.variance).abs() < 1e-9);
}

#[test]
fn degrees_of_freedom_are_welchs() {
    let means = means(&[&[9.0, 11.0, 10.0, 10.0], &[9.0, 11.0, 10.0, 10.0]]);
    let sum = means.value(&(WeightedSum::of(source(0)) + &WeightedSum::of(source(1))));
    assert!((sum.degrees - 6.0).abs() < 1e-9, "two equal variances with 3 degrees each: {}", sum.degrees);
}

#[test]
fn a_prediction_is_wider_than_the_measurement() {
    let means = means(&[&[9.0, 11.0, 10.0, 10.0, 9.5, 10.5]]);
    let value = means.value(&WeightedSum::of(source(0)));
    let half = |estimate: crate::Estimate| estimate.high() - estimate.value;
    let (own, repeated, wrong) =
        (half(value.estimate()), half(value.prediction(0.0)), half(value.prediction(0.1)));
    assert!((repeated / own - std::f64::consts::SQRT_2).abs() < 1e-9);
    assert!((wrong - repeated.hypot(1.96)).abs() < 1e-9);
}

#[test]
fn costs_between_two_numbers_of_clients_are_interpolated() {
    let means = means(&[&[100.0; 6], &[70.0; 6]]);
    let costs = ByClients(vec![(1, WeightedSum::of(source(0))), (8, WeightedSum::of(source(1)))]);
    let at = |concurrency| means.value(&costs.at(concurrency).unwrap()).value;
    // 4 are two of three doublings.
    for (concurrency, expected) in [(0.01, 100.0), (1.0, 100.0), (4.0, 80.0), (8.0, 70.0), (1e9, 70.0)] {
        assert!((at(concurrency) - expected).abs() < 1e-9, "{concurrency}: {}", at(concurrency));
    }
    assert_eq!(ByClients::default().at(1.0), None);
}

#[test]
fn the_costs_of_bytes_and_records_are_told_apart() {
    // 20 for the statement, 3 per record, 0.01 per KiB.
    let cost = |kib: f64, records: f64| 20.0 + 3.0 * records + 0.01 * kib;
    let values = [cost(1.0, 1.0), cost(16.0, 2.0), cost(256.0, 17.0)].map(|value| [value; 6]);
    let means = means(&[&values[0], &values[1], &values[2]]);
    let rows = RowCosts::of([0, 1, 2].map(|cell| WeightedSum::of(source(cell))));
    let close = |sum: &WeightedSum, expected: f64| (means.value(sum).value - expected).abs() < 1e-6;
    assert!(close(&rows.per_record, 3.0) && close(&rows.per_byte, 0.01 / 1024.0));
    assert!(close(&rows.of_row(64 << 10), cost(64.0, 5.0) - cost(1.0, 1.0)));
    assert!(close(&rows.of_row(1 << 20), cost(1024.0, 65.0) - cost(1.0, 1.0)), "beyond the measured sizes");
    assert!(close(&rows.of_row(100), 0.0));
}
