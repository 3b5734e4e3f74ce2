//! The cost of each configuration: ratios to the baseline with their intervals around 1.

use ciphertoll_model::{Arm, Metric, Unit};
use ciphertoll_stats::{Estimate, PairedRatio, headline_metrics, margin};

use super::figure::{Figure, comparison_label, pictures};
use crate::cost_ratio::{cost, noun_of};
use crate::number::{percent, ratio, ratio_interval, ratio_with_interval};
use crate::svg::{Drawing, Scale, Shape, Swatch, across, dot, group, hatch, line, rect, tooltip, whisker};
use crate::view::{Column, ColumnKind, StratumView, Table, TableEntry, Tone, certain_ratio, levels};
use crate::{names, sentence};

const HEIGHT: f64 = 14.0;

struct RatioRow<'a> {
    label: String,
    arm: Arm,
    ratio: &'a PairedRatio,
    /// Above 1 is more.
    cost: Estimate,
}

/// The ratios in one metric, the A/A comparison last.
struct MetricRatios<'a> {
    metric: Metric,
    noun: &'static str,
    rows: Vec<RatioRow<'a>>,
    /// Half-width of "the same", as a ratio.
    margin: f64,
    /// The noise floor as a ratio.
    floor: Option<f64>,
}

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let families: Vec<MetricRatios<'_>> =
        headline_metrics(stratum.cell()).iter().filter_map(|metric| family(stratum, *metric)).collect();
    let (low, high) = reach(&families)?;
    let heading = format!("Cost compared with {}", stratum.baseline_label());
    let id = format!("{id}-tolls");
    let numbers = table(stratum, &families);
    let title = format!("{heading}, {}", stratum.name());
    let pictures = pictures(&id, &title, &in_words(&families), |drawing| {
        let axis = Scale::log((low, high), (4.0, drawing.width() - 8.0));
        for family in &families {
            drawn(drawing, family, &axis, &stratum.baseline_label());
        }
        drawing.behind(across(&axis, (4.0, drawing.bottom()), drawing.width(), "×"));
        drawing.advance(16.0);
        drawing.key(key(&families));
    });
    Some(Figure { pictures, id, heading, reading: reading(&families), numbers, notes: Vec::new() })
}

fn reading(families: &[MetricRatios<'_>]) -> String {
    let floor = if families.iter().any(|family| family.floor.is_some()) {
        " Differences within the noise floor are not claimed."
    } else {
        ""
    };
    format!("Ratios on a logarithmic axis; the line at 1 is no difference.{floor}")
}

fn has_intervals(families: &[MetricRatios<'_>]) -> bool {
    families.iter().flat_map(|family| &family.rows).any(|row| row.cost.interval().is_some())
}

/// Explains only marks that occur.
fn key(families: &[MetricRatios<'_>]) -> Vec<Swatch> {
    let ratio = if has_intervals(families) { "ratio, 95 % interval" } else { "ratio" };
    let mut key = vec![Swatch::drawn(dot(Shape::Circle, (7.0, 6.0), "tone-neutral"), ratio)];
    if families.iter().any(|family| family.rows.iter().any(|row| row.arm == Arm::Repeat)) {
        key.push(Swatch::drawn(dot(Shape::Ring, (7.0, 6.0), "tone-neutral"), "baseline again (A/A)"));
    }
    key.push(Swatch::filled("margin", "negligible"));
    if families.iter().any(|family| family.floor.is_some()) {
        key.push(Swatch::hatched("floor", "noise floor", "floor-hatch"));
    }
    key
}

fn family<'a>(stratum: &'a StratumView<'_>, metric: Metric) -> Option<MetricRatios<'a>> {
    let row = |comparison| {
        let ratio = certain_ratio(comparison, metric)?;
        let cost = cost(metric, &ratio.ratio);
        Some(RatioRow { label: comparison_label(stratum, comparison), arm: comparison.arm, ratio, cost })
    };
    let rows: Vec<RatioRow<'a>> = stratum.comparisons().filter_map(row).collect();
    rows.iter().any(|row| row.arm == Arm::Main).then(|| MetricRatios {
        metric,
        noun: noun_of(metric, stratum.cell().workload),
        rows,
        margin: 1.0 + margin(metric, &stratum.report.plan.margins),
        floor: stratum.noise_floor_of(metric).map(|floor| 1.0 + floor),
    })
}

/// From the lowest to the highest limit including 1 and the margins, with some padding.
fn reach(families: &[MetricRatios<'_>]) -> Option<(f64, f64)> {
    const AIR: f64 = 0.06;
    families.first()?;
    let limits = families.iter().flat_map(|family| {
        let ratios = family.rows.iter().flat_map(|row| [row.cost.low(), row.cost.high()]);
        ratios.chain([family.margin, family.margin.recip()])
    });
    let (low, high) = limits.fold((1.0_f64, 1.0_f64), |(low, high), limit| (low.min(limit), high.max(limit)));
    let air = (high / low).ln() * AIR;
    Some((low * (-air).exp(), high * air.exp()))
}

fn drawn(drawing: &mut Drawing, family: &MetricRatios<'_>, axis: &Scale, baseline: &str) {
    drawing.advance(6.0);
    drawing.lines(&format!("{} ÷ {baseline} ({})", family.noun, side(family.metric)), "subhead");
    for RatioRow { label, arm, ratio, cost } in &family.rows {
        let (tone, shape) = match arm {
            Arm::Main => (sentence::tone(family.metric, ratio), Shape::Circle),
            Arm::Repeat => (Tone::Neutral, Shape::Ring),
        };
        let class = &tone.class();
        let numbers = ratio_with_interval(cost);
        let word = verdict(family.metric, ratio, *arm).map(|word| format!(" {word}")).unwrap_or_default();
        drawing.caption(label, &format!("{} {numbers}{word}", tone.mark()), class);
        let middle = drawing.advance(HEIGHT + 5.0) + HEIGHT / 2.0 + 1.0;
        bands(drawing, family, axis, middle);
        let mark = group("mark")
            .child(tooltip(format!("{label}, {}: {numbers}{word}", family.noun)))
            .child(whisker(axis.at(cost.low()), axis.at(cost.high()), middle, class))
            .child(dot(shape, (axis.at(cost.value), middle), class));
        drawing.mark(mark);
    }
    drawing.advance(6.0);
}

/// The bands that a dot must leave to differ from 1, only at the height of the dot so that names stay readable.
fn bands(drawing: &mut Drawing, family: &MetricRatios<'_>, axis: &Scale, middle: f64) {
    let top = middle - HEIGHT / 2.0;
    let sides = |half: f64| (axis.at(half.recip()), axis.at(half));
    let (left, right) = sides(family.margin);
    drawing.mark(rect(left, top, right - left, HEIGHT, "margin"));
    if let Some((left, right)) = family.floor.map(sides) {
        drawing.mark(hatch(left, top, right - left, HEIGHT, "floor-hatch"));
        drawing.mark(rect(left, top, right - left, HEIGHT, "floor"));
    }
    drawing.mark(line((axis.at(1.0), top - 1.0), (axis.at(1.0), top + HEIGHT + 1.0), "one"));
}

/// The side of 1 with the higher cost.
fn side(metric: Metric) -> &'static str {
    match metric.unit() {
        Unit::CpuMicroseconds | Unit::Bytes | Unit::Count => "right of 1: costs more",
        Unit::PerSecond | Unit::Nanoseconds => "right of 1: slower",
    }
}

/// Absent for the A/A comparison: if the two copies differ, the banner says so.
fn verdict(metric: Metric, ratio: &PairedRatio, arm: Arm) -> Option<String> {
    let verdict = ratio.verdict.filter(|_| arm == Arm::Main)?;
    Some(levels::verdict_word(metric, ratio, verdict))
}

fn in_words(all: &[MetricRatios<'_>]) -> String {
    let of_family = |family: &MetricRatios<'_>| {
        let rows: Vec<String> = family
            .rows
            .iter()
            .map(|row| format!("{} {}", row.label, ratio_with_interval(&row.cost)))
            .collect();
        format!("{}: {}", family.noun, rows.join("; "))
    };
    let families: Vec<String> = all.iter().map(of_family).collect();
    let what = if has_intervals(all) { "Ratios with their 95 % intervals" } else { "Ratios" };
    format!("{what}. {}.", families.join(". "))
}

fn table(stratum: &StratumView<'_>, families: &[MetricRatios<'_>]) -> Table {
    let columns = [
        (ColumnKind::Text, "of"),
        (ColumnKind::Ratio, "ratio"),
        (ColumnKind::Level, "same within"),
        (ColumnKind::Level, "noise floor"),
        (ColumnKind::Text, "verdict"),
    ];
    let columns = columns.map(|(kind, heading)| Column::new(kind, heading));
    let rows = families.iter().flat_map(|family| {
        family.rows.iter().map(|row| {
            let floor = family.floor.map(|floor| percent(floor - 1.0));
            let verdict = verdict(family.metric, row.ratio, row.arm);
            let entries = vec![
                TableEntry::text(family.noun),
                TableEntry::new([format!("{} ×", ratio(&row.cost)), ratio_interval(&row.cost)]),
                TableEntry::text(format!("±{}", percent(family.margin - 1.0))),
                floor.map_or_else(TableEntry::absent, TableEntry::text),
                verdict.map_or_else(TableEntry::absent, TableEntry::text),
            ];
            (row.label.clone(), entries)
        })
    });
    Table::new(&names::factors(&stratum.rows), columns, rows)
}
