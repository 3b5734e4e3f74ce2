//! What each path costs beside the baseline: ratios with their intervals around 1.

use ciphertoll_model::{Arm, Metric, MetricDirection, Unit};
use ciphertoll_stats::{Toll, margin};

use super::{Figure, repeat_label};
use crate::number::{is_certain, percent, ratio, ratio_interval, ratio_with_interval};
use crate::svg::{
    Drawing, Scale, Shape, Swatch, WIDTH, across, dot, group, hatch, line, rect, tooltip, whisker,
};
use crate::view::{Column, Entry, Overflow, Part, StratumView, Table, Tone, levels};
use crate::{names, sentence};

const HEIGHT: f64 = 14.0;

/// One ratio.
struct Row<'a> {
    label: String,
    arm: Arm,
    toll: &'a Toll,
}

/// The ratios in one metric, the second copy of the baseline last.
struct Family<'a> {
    metric: Metric,
    rows: Vec<Row<'a>>,
    /// Half-width of "the same", as a ratio.
    margin: f64,
    /// What two copies of the baseline differ by at most, as a ratio.
    floor: Option<f64>,
}

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let families: Vec<Family<'_>> =
        names::headline(stratum.cell()).iter().filter_map(|metric| family(stratum, *metric)).collect();
    let (low, high) = reach(&families)?;
    let axis = Scale::log((low, high), (4.0, WIDTH - 8.0));
    let mut drawing = Drawing::default();
    for family in &families {
        drawn(&mut drawing, family, &axis, &stratum.baseline_label());
    }
    let bottom = drawing.bottom();
    drawing.behind(across(&axis, 4.0, bottom, "×"));
    drawing.advance(16.0);
    drawing.key(key(&families));
    let heading = format!("What it costs beside {}", stratum.baseline_label());
    let id = format!("{id}-tolls");
    let numbers = table(stratum, &families);
    Some(Figure {
        picture: drawing.finish(&id, &format!("{heading}, {}", stratum.name()), &in_words(&families)),
        id,
        heading,
        reading: reading(&families),
        numbers,
        notes: Vec::new(),
    })
}

fn reading(families: &[Family<'_>]) -> String {
    let floor = if families.iter().any(|family| family.floor.is_some()) {
        " What lies within the noise floor is not claimed."
    } else {
        ""
    };
    format!("Ratios on a logarithmic axis; the line is 1, no difference.{floor}")
}

fn has_intervals(families: &[Family<'_>]) -> bool {
    families.iter().flat_map(|family| &family.rows).any(|row| row.toll.ratio.interval().is_some())
}

/// Only what is there is explained.
fn key(families: &[Family<'_>]) -> Vec<Swatch> {
    let ratio = if has_intervals(families) { "ratio, 95 % interval" } else { "ratio" };
    let mut key = vec![Swatch::drawn(dot(Shape::Circle, (7.0, 6.0), "tone-neutral"), ratio)];
    if families.iter().any(|family| family.rows.iter().any(|row| row.arm == Arm::Repeat)) {
        key.push(Swatch::drawn(dot(Shape::Ring, (7.0, 6.0), "tone-neutral"), "the baseline again"));
    }
    key.push(Swatch::filled("margin", "too small to matter"));
    if families.iter().any(|family| family.floor.is_some()) {
        let mut floor = Swatch::filled("floor", "noise floor");
        floor.marks.push(hatch(0.0, 0.0, 13.0, 12.0, "floor-hatch"));
        key.push(floor);
    }
    key
}

fn family<'a>(stratum: &'a StratumView<'_>, metric: Metric) -> Option<Family<'a>> {
    let own = |toll: &&Toll| is_certain(&toll.ratio);
    let treatments = stratum.treatments.iter().filter_map(|cell| {
        let toll = cell.tolls.get(&metric).filter(own)?;
        Some(Row { label: stratum.row_label(cell), arm: Arm::Main, toll })
    });
    let mut rows: Vec<Row<'a>> = treatments.collect();
    if rows.is_empty() {
        return None;
    }
    let repeat = stratum.analysis.repeat.get(&metric).filter(own);
    rows.extend(repeat.map(|toll| Row { label: repeat_label(stratum), arm: Arm::Repeat, toll }));
    let floor = stratum.analysis.noise_floor.get(&metric).filter(|floor| floor.is_finite());
    Some(Family {
        metric,
        rows,
        margin: 1.0 + margin(metric, &stratum.report.plan.margins),
        floor: floor.map(|floor| 1.0 + floor),
    })
}

/// From the lowest to the highest limit, 1 and the margins included, with a little air.
fn reach(families: &[Family<'_>]) -> Option<(f64, f64)> {
    const AIR: f64 = 0.06;
    families.first()?;
    let limits = families.iter().flat_map(|family| {
        let ratios = family.rows.iter().flat_map(|row| [row.toll.ratio.low(), row.toll.ratio.high()]);
        ratios.chain([family.margin, family.margin.recip()])
    });
    let (low, high) = limits.fold((1.0_f64, 1.0_f64), |(low, high), limit| (low.min(limit), high.max(limit)));
    let air = (high / low).ln() * AIR;
    Some((low * (-air).exp(), high * air.exp()))
}

fn drawn(drawing: &mut Drawing, family: &Family<'_>, axis: &Scale, baseline: &str) {
    drawing.advance(6.0);
    drawing.lines(
        &format!("{} ÷ {baseline} ({})", sentence::noun(family.metric), side(family.metric)),
        "subhead",
    );
    for Row { label, arm, toll } in &family.rows {
        let (tone, shape) = match arm {
            Arm::Main => (sentence::tone(family.metric, toll), Shape::Circle),
            Arm::Repeat => (Tone::Neutral, Shape::Ring),
        };
        let class = tone_class(tone);
        let numbers = numbers(toll);
        let word = verdict(family.metric, toll, *arm).map(|word| format!(" {word}")).unwrap_or_default();
        drawing.caption(label, &format!("{} {numbers}{word}", tone.mark()), class);
        let middle = drawing.advance(HEIGHT + 5.0) + HEIGHT / 2.0 + 1.0;
        bands(drawing, family, axis, middle);
        let mark = group("mark")
            .child(tooltip(format!("{label}, {}: {numbers}{word}", sentence::noun(family.metric))))
            .child(whisker(axis.at(toll.ratio.low()), axis.at(toll.ratio.high()), middle, class))
            .child(dot(shape, (axis.at(toll.ratio.value), middle), class));
        drawing.mark(mark);
    }
    drawing.advance(6.0);
}

/// What a dot must leave to be told from 1, around its own place only: names stay readable.
fn bands(drawing: &mut Drawing, family: &Family<'_>, axis: &Scale, middle: f64) {
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

/// Which side of 1 is the dear one.
fn side(metric: Metric) -> &'static str {
    match (metric.direction(), metric.unit()) {
        (MetricDirection::HigherIsBetter, _) => "left of 1: slower",
        (MetricDirection::LowerIsBetter, Unit::CpuMicroseconds | Unit::Bytes | Unit::Count) => {
            "right of 1: costs more"
        }
        (MetricDirection::LowerIsBetter, _) => "right of 1: slower",
    }
}

fn numbers(toll: &Toll) -> String {
    ratio_with_interval(&toll.ratio)
}

/// Of the baseline's second copy the banner speaks, where it must.
fn verdict(metric: Metric, toll: &Toll, arm: Arm) -> Option<String> {
    let verdict = toll.verdict.filter(|_| arm == Arm::Main)?;
    Some(levels::verdict_word(metric, toll, verdict))
}

/// The class that colours what is meant so.
pub(crate) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Neutral => "tone-neutral",
        Tone::Caution => "tone-caution",
        Tone::Same => "tone-same",
        Tone::Negligible => "tone-negligible",
        Tone::Unsure => "tone-unsure",
        Tone::Better => "tone-better",
        Tone::Worse => "tone-worse",
    }
}

fn in_words(all: &[Family<'_>]) -> String {
    let of_family = |family: &Family<'_>| {
        let rows: Vec<String> =
            family.rows.iter().map(|row| format!("{} {}", row.label, numbers(row.toll))).collect();
        format!("{}: {}", sentence::noun(family.metric), rows.join("; "))
    };
    let families: Vec<String> = all.iter().map(of_family).collect();
    let what = if has_intervals(all) { "Ratios with their 95 % intervals" } else { "Ratios" };
    format!("{what}. {}.", families.join(". "))
}

fn table(stratum: &StratumView<'_>, families: &[Family<'_>]) -> Table {
    let headings = ["", "of", "ratio", "same within", "noise floor", "verdict"];
    let parts = [Part::Label, Part::Text, Part::Toll, Part::Level, Part::Level, Part::Text];
    let mut columns: Vec<Column> =
        headings.iter().zip(parts).map(|(heading, part)| Column::new(part, heading)).collect();
    let factors: Vec<&str> = stratum.rows.iter().map(|factor| factor.label()).collect();
    columns[0] = Column::new(Part::Label, &factors.join(", "));
    let rows = families.iter().flat_map(|family| {
        family.rows.iter().map(|row| {
            let floor = family.floor.map_or_else(Entry::absent, |floor| Entry::new([percent(floor - 1.0)]));
            let verdict = verdict(family.metric, row.toll, row.arm);
            vec![
                Entry::new([row.label.clone()]),
                Entry::new([sentence::noun(family.metric).to_owned()]),
                Entry::new([format!("{} ×", ratio(&row.toll.ratio)), ratio_interval(&row.toll.ratio)]),
                Entry::new([format!("±{}", percent(family.margin - 1.0))]),
                floor,
                verdict.map_or_else(Entry::absent, |word| Entry::new([word])),
            ]
        })
    });
    Table { rows: rows.collect(), columns, overflow: Overflow::SplitParts }
}
