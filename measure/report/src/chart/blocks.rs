//! The ratios block by block, which show a drift over the run.

use ciphertoll_model::{Arm, Metric};
use ciphertoll_stats::assemble::PlannedComparison;
use ciphertoll_stats::{Comparison, Estimate, Interval, headline_metrics};

use super::figure::{Figure, comparison_label, pictures};
use crate::RunReport;
use crate::cost_ratio::{cost, noun_of};
use crate::number::{is_certain, ratio_with_interval, significant};
use crate::svg::{Anchor, Drawing, Scale, Shape, dot, group, line, polyline, rect, text, tooltip, upright};
use crate::view::{Column, ColumnKind, StratumView, Table, TableEntry};

const HEIGHT: f64 = 70.0;
/// Space for half a dot.
const DOT: f64 = 6.0;
/// Names of ratios end here.
const LEFT: f64 = 52.0;
/// One block shows no drift.
const FEWEST: usize = 2;

struct Panel {
    label: String,
    /// Block and cost.
    ratios: Vec<(u32, f64)>,
    summary: Option<Estimate>,
    arm: Arm,
}

/// `(block, ratio to the baseline)`.
pub(crate) fn ratios_by_block(
    report: &RunReport<'_>,
    comparison: &Comparison,
    metric: Metric,
) -> Vec<(u32, f64)> {
    let planned = PlannedComparison::of(report.plan, comparison);
    planned.pairs(&report.facts.trials).ratios_by_block(metric)
}

pub(super) fn figure(stratum: &StratumView<'_>, id: &str) -> Option<Figure> {
    let metric = *headline_metrics(stratum.cell()).first()?;
    let panels = panels(stratum, metric);
    let last = panels.iter().flat_map(|panel| &panel.ratios).map(|(block, _)| *block).max()?;
    // Every panel spans the same ratio, so that a drift here and noise there can be compared.
    let half = panels.iter().map(Panel::half_span).fold(1.005, f64::max) * 1.01;
    let noun = noun_of(metric, stratum.cell().workload);
    let heading = format!("Block by block: {noun} ÷ {}", stratum.baseline_label());
    let has_interval = panels.iter().filter_map(Panel::certain).any(|of| of.interval().is_some());
    let labels: Vec<String> = panels.iter().map(Panel::caption).collect();
    let description = format!("Dots over {last} blocks, a panel for each. {}.", labels.join("; "));
    let id = format!("{id}-blocks");
    let title = format!("{heading}, {}", stratum.name());
    let pictures = pictures(&id, &title, &description, |drawing| draw(drawing, &panels, last, half));
    Some(Figure {
        pictures,
        id,
        heading,
        reading: format!(
            "One dot is one block; {}. Dots that climb or fall together are a drift. Every panel spans the same ratio.",
            if has_interval {
                "the line and the band are the ratio and its 95 % interval"
            } else {
                "the line is the ratio"
            },
        ),
        numbers: table(&panels, last),
        notes: Vec::new(),
    })
}

fn panels(stratum: &StratumView<'_>, metric: Metric) -> Vec<Panel> {
    let of_block = |value| cost(metric, &Estimate { value, ci_low: None, ci_high: None, blocks: 1 }).value;
    let panel = |comparison: &Comparison| Panel {
        label: comparison_label(stratum, comparison),
        ratios: ratios_by_block(stratum.report, comparison, metric)
            .into_iter()
            .map(|(block, ratio)| (block, of_block(ratio)))
            .collect(),
        summary: comparison.ratios.get(&metric).map(|found| cost(metric, &found.ratio)),
        arm: comparison.arm,
    };
    stratum.comparisons().map(panel).filter(|panel| panel.ratios.len() >= FEWEST).collect()
}

impl Panel {
    /// The geometric mean of the ratios.
    fn centre(&self) -> f64 {
        let logs: f64 = self.ratios.iter().map(|(_, ratio)| ratio.ln()).sum();
        (logs / self.ratios.len().max(1) as f64).exp()
    }

    /// How far the dots and the interval reach from the middle, as a ratio.
    fn half_span(&self) -> f64 {
        let centre = self.centre();
        let interval = self.certain().map(|summary| [summary.low(), summary.high()]);
        let limits = interval.into_iter().flatten();
        let all = self.ratios.iter().map(|(_, ratio)| *ratio).chain(limits);
        all.map(|ratio| (ratio / centre).ln().abs().exp()).fold(1.0, f64::max)
    }

    fn certain(&self) -> Option<&Estimate> {
        self.summary.as_ref().filter(|summary| is_certain(summary))
    }

    fn value(&self) -> String {
        self.certain().map_or_else(String::new, ratio_with_interval)
    }

    fn caption(&self) -> String {
        format!("{} {}", self.label, self.value())
    }
}

fn draw(drawing: &mut Drawing, panels: &[Panel], last: u32, half: f64) {
    let across = Scale::linear((0.5, f64::from(last) + 0.5), (LEFT, drawing.width() - 4.0));
    for panel in panels {
        drawn(drawing, panel, &across, half);
    }
    for tick in across.ticks(8).iter().filter(|tick| tick.value.fract().abs() < 1e-9) {
        let y = drawing.bottom() + 10.0;
        drawing.mark(text(across.at(tick.value), y, Anchor::Middle, "tick", &tick.label));
    }
    drawing.advance(14.0);
    drawing.lines("block, in the order of the run", "tick");
}

fn drawn(drawing: &mut Drawing, panel: &Panel, across: &Scale, half: f64) {
    drawing.caption(&panel.label, &panel.value(), "");
    let top = drawing.advance(HEIGHT + 8.0);
    let centre = panel.centre();
    // The outermost dots stay within the panel with their whole size.
    let axis = Scale::log((centre / half, centre * half), (top + HEIGHT - DOT, top + DOT));
    let (left, right) = across.range();
    drawing.mark(rect(left, top, right - left, HEIGHT, "panel"));
    drawing.mark(upright(&axis, left, right, 4, ""));
    if let Some(summary) = panel.certain() {
        if let Some(Interval { low, high }) = summary.interval() {
            let (low, high) = (axis.at(low), axis.at(high));
            drawing.mark(rect(left, high, right - left, low - high, "interval"));
        }
        let middle = axis.at(summary.value);
        drawing.mark(line((left, middle), (right, middle), "mean"));
    }
    let place = |(block, ratio): &(u32, f64)| (across.at(f64::from(*block)), axis.at(*ratio));
    let course: Vec<(f64, f64)> = panel.ratios.iter().map(place).collect();
    drawing.mark(polyline(&course, "course"));
    let shape = if panel.arm == Arm::Repeat { Shape::Ring } else { Shape::Circle };
    for (block, ratio) in &panel.ratios {
        let mark = group("mark")
            .child(tooltip(format!("{}, block {block}: {} ×", panel.label, significant(*ratio))))
            .child(dot(shape, place(&(*block, *ratio)), "tone-neutral"));
        drawing.mark(mark);
    }
}

fn table(panels: &[Panel], last: u32) -> Table {
    let columns = panels.iter().map(|panel| Column::new(ColumnKind::Ratio, &panel.label));
    let entry = |panel: &Panel, block: u32| {
        let ratio = panel.ratios.iter().find(|(of, _)| *of == block);
        ratio.map_or_else(TableEntry::absent, |(_, ratio)| {
            TableEntry::text(format!("{} ×", significant(*ratio)))
        })
    };
    let row = |block: u32| (block.to_string(), panels.iter().map(|panel| entry(panel, block)).collect());
    Table::new("block", columns, (1..=last).map(row))
}
