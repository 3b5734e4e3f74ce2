//! Latency percentiles.

use ciphertoll_model::Metric;

use super::figure::{Figure, highest, in_words, lowest, pictures, table_of, whiskers};
use crate::number::{measured_in, scale};
use crate::svg::{Drawing, Scale, Shape, Swatch, across, dot, group, line, tooltip, whisker};
use crate::view::{StratumView, absent, level};

const PERCENTILES: [(Metric, Shape, &str); 3] = [
    (Metric::LatencyNsP50, Shape::Circle, "p50"),
    (Metric::LatencyNsP95, Shape::Square, "p95"),
    (Metric::LatencyNsP99, Shape::Triangle, "p99"),
];
/// If the range is wider than this factor, the axis is logarithmic.
const WIDEST_LINEAR: f64 = 12.0;
const HEIGHT: f64 = 24.0;

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let metrics: Vec<Metric> = PERCENTILES
        .into_iter()
        .map(|(metric, ..)| metric)
        .filter(|metric| stratum.cells().any(|cell| level(cell, *metric).is_some()))
        .collect();
    let last = *metrics.last()?;
    let (low, high) = (lowest(stratum, &metrics), highest(stratum, &metrics));
    let unit = scale(last, high);
    let is_linear = high / low <= WIDEST_LINEAR;
    let axis = |width: f64| {
        let place = (4.0, width - 8.0);
        if is_linear {
            Scale::linear((0.0, high / unit.0), place)
        } else {
            Scale::log((low / unit.0 * 0.9, high / unit.0 * 1.1), place)
        }
    };
    let heading = "Latency percentiles".to_owned();
    let worst = metrics.iter().map(|metric| format!("{}: {}", metric.title(), in_words(stratum, *metric)));
    let description = format!("Dots, one row for each path. {}.", worst.collect::<Vec<_>>().join(". "));
    let growth = if is_linear { "" } else { " on a logarithmic axis" };
    let id = format!("{id}-percentiles");
    let pictures = pictures(&id, &format!("{heading}, {}", stratum.name()), &description, |drawing| {
        let axis = axis(drawing.width());
        draw(drawing, stratum, &metrics, &axis, unit);
    });
    let shown = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    Some(Figure {
        pictures,
        id,
        heading,
        reading: format!(
            "{}{growth}; {}.",
            what_they_are(&metrics),
            whiskers(shown, "whiskers are 95 % intervals")
        ),
        numbers: table_of(stratum, &metrics),
        notes: absent::sentences(stratum, &PERCENTILES.map(|(metric, ..)| metric)),
    })
}

/// `Half of all operations are faster than p50, 95 % of all are faster than p95`.
fn what_they_are(metrics: &[Metric]) -> String {
    let word = |metric: &Metric| match metric {
        Metric::LatencyNsP50 => "half of all operations are faster than p50",
        Metric::LatencyNsP95 => "95 % of all are faster than p95",
        _ => "99 % of all are faster than p99",
    };
    let text = metrics.iter().map(word).collect::<Vec<_>>().join(", ");
    text.replacen("half", "Half", 1)
}

fn draw(
    drawing: &mut Drawing,
    stratum: &StratumView<'_>,
    metrics: &[Metric],
    axis: &Scale,
    unit: (f64, &str),
) {
    for cell in stratum.cells() {
        let name = stratum.row_label(cell);
        let shown: Vec<_> = PERCENTILES
            .into_iter()
            .filter_map(|(metric, shape, word)| Some((level(cell, metric)?, shape, word)))
            .collect();
        let (Some(first), Some(last)) = (shown.first(), shown.last()) else { continue };
        drawing.caption(&name, "", "");
        let middle = drawing.advance(HEIGHT) + 8.0;
        let at = |value: f64| axis.at(value / unit.0);
        drawing.mark(line((at(first.0.value), middle), (at(last.0.value), middle), "thread"));
        for (estimate, shape, word) in shown {
            let mark = group("mark")
                .child(tooltip(format!("{name}, {word}: {}", measured_in(unit, estimate))))
                .child(whisker(at(estimate.low()), at(estimate.high()), middle, "plain"))
                .child(dot(shape, (at(estimate.value), middle), word));
            drawing.mark(mark);
        }
    }
    drawing.behind(across(axis, (0.0, drawing.bottom()), drawing.width(), unit.1.trim()));
    drawing.advance(16.0);
    let key = PERCENTILES.into_iter().filter(|(metric, ..)| metrics.contains(metric));
    drawing.key(key.map(|(_, shape, word)| Swatch::drawn(dot(shape, (7.0, 6.0), word), word)));
}
