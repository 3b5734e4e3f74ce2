//! The cost of encryption at rest by pages that cross between the server's buffers and the system, both axes logarithmic: a
//! point for each comparison.

use ciphertoll_model::Metric;
use ciphertoll_stats::{Comparison, Estimate};

use super::figure::{Figure, pictures, series_look, whiskers};
use crate::cost_ratio::{cost, noun};
use crate::lists::distinct;
use crate::number::{measured, ratio, ratio_interval, ratio_with_interval};
use crate::svg::{
    Anchor, Drawing, Scale, Shape, Swatch, across, dot, group, line, text, tooltip, upright, upright_whisker,
    width_of,
};
use crate::view::{Column, ColumnKind, StratumView, Table, TableEntry, certain_ratio, crossings, level};

const HEIGHT: f64 = 240.0;
const TOP: f64 = 8.0;
const LEFT: f64 = 44.0;
/// From the end of the axis to the edge.
const RIGHT: f64 = 10.0;
/// The width for points with almost no crossings, which have no place on a logarithmic axis.
const STRIP: f64 = 52.0;
/// Fewer pages per operation count as none.
const FEWEST: f64 = 0.01;
/// How far the axes extend beyond the outermost points, as a factor.
const BEYOND: f64 = 1.5;
const AIR: f64 = 1.03;
const CROSSINGS: Metric = Metric::PageCrossingsPerOperation;
/// The metrics that show the cost of encryption at rest.
const METRICS: [Metric; 2] = [Metric::CpuUsPerOpTotal, Metric::RatePerS];

struct Point<'a> {
    /// The compared level and the server.
    series: String,
    name: String,
    workload: String,
    pages: &'a Estimate,
    ratio: Estimate,
}

pub(crate) fn of_report(strata: &[StratumView<'_>]) -> Vec<Figure> {
    let of = |metric: Metric| (metric, points(strata, metric));
    let all = METRICS.into_iter().map(of).filter(|(_, points)| !points.is_empty());
    all.map(|(metric, points)| figure(metric, &points)).collect()
}

fn points<'a>(strata: &'a [StratumView<'a>], metric: Metric) -> Vec<Point<'a>> {
    let of_stratum = |stratum: &'a StratumView<'a>| {
        crossings::treatments(stratum).filter_map(move |comparison| point(stratum, comparison, metric))
    };
    strata.iter().filter(|stratum| crossings::are_shown(stratum)).flat_map(of_stratum).collect()
}

fn point<'a>(stratum: &StratumView<'a>, comparison: &'a Comparison, metric: Metric) -> Option<Point<'a>> {
    let cell = &comparison.cell;
    let label = stratum.row_label(cell);
    let server = cell.cell.treatment.server.short_name();
    let is_told = label.contains(&server) || stratum.report.plan.servers().len() < 2;
    Some(Point {
        series: if is_told { label } else { format!("{label}, {server}") },
        name: stratum.cell_name(cell),
        workload: cell.cell.workload.to_string(),
        pages: level(cell, CROSSINGS)?,
        ratio: cost(metric, &certain_ratio(comparison, metric)?.ratio),
    })
}

fn figure(metric: Metric, points: &[Point<'_>]) -> Figure {
    let heading = format!("Cost by page crossings: {}", noun(metric));
    let id = format!("crossings-{}", metric.label().replace('_', "-"));
    Figure {
        pictures: pictures(&id, &heading, &in_words(points), |drawing| draw(drawing, points)),
        id,
        reading: reading(points),
        heading,
        numbers: numbers(points),
        notes: Vec::new(),
    }
}

fn draw(drawing: &mut Drawing, points: &[Point<'_>]) {
    let place = PlotArea::of(points, drawing.width());
    drawing.advance(HEIGHT);
    axes(drawing, &place);
    let series = distinct(points.iter().map(|point| point.series.as_str()));
    for point in points {
        let index = series.iter().position(|name| *name == point.series).unwrap_or_default();
        drawn(drawing, point, &place, look(index));
    }
    for (x, y, anchor, name) in names(points, &place) {
        drawing.mark(text(x, y, anchor, "tick", name));
    }
    drawing.advance(18.0);
    drawing.lines("page crossings per operation; × the baseline", "tick");
    drawing.key(series.iter().enumerate().map(|(index, name)| {
        let (shape, colour) = look(index);
        Swatch::drawn(dot(shape, (7.0, 6.0), &colour), *name)
    }));
}

fn reading(points: &[Point<'_>]) -> String {
    let intervals = whiskers(points.iter().map(|point| &point.ratio), "whiskers are 95 % intervals");
    let strip = match Strip::of(points) {
        Strip::Used => " Left of the dashed line: fewer than 0.01 pages.",
        Strip::Unused => "",
    };
    format!(
        "Each point is a configuration: pages read into the server's buffers and written out of them, and the ratio to the \
         baseline; {intervals}; above 1 costs more. Both axes are logarithmic.{strip}"
    )
}

/// Whether any point needs the strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strip {
    Used,
    Unused,
}

impl Strip {
    fn of(points: &[Point<'_>]) -> Self {
        if points.iter().all(|point| point.pages.value >= FEWEST) { Self::Unused } else { Self::Used }
    }
}

struct PlotArea {
    width: f64,
    across: Scale,
    along: Scale,
    strip: Strip,
}

impl PlotArea {
    fn of(points: &[Point<'_>], width: f64) -> Self {
        let crossing = || points.iter().map(|point| point.pages.value).filter(|pages| *pages >= FEWEST);
        let strip = Strip::of(points);
        let (low, high) = (crossing().fold(f64::INFINITY, f64::min), crossing().fold(0.0, f64::max));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let lowest = points.iter().map(|point| point.ratio.low()).fold(1.0, f64::min);
        let highest = points.iter().map(|point| point.ratio.high()).fold(1.0, f64::max);
        let from = if strip == Strip::Used { LEFT + STRIP } else { LEFT };
        Self {
            width,
            across: Scale::log((low / BEYOND, high * BEYOND), (from, width - RIGHT)),
            along: Scale::log((lowest / AIR, highest * AIR), (HEIGHT, TOP)),
            strip,
        }
    }

    fn at(&self, point: &Point<'_>) -> (f64, f64) {
        let x = match point.pages.value {
            pages if pages >= FEWEST => self.across.at(pages),
            _ => LEFT + STRIP / 2.0,
        };
        (x, self.along.at(point.ratio.value))
    }
}

fn axes(drawing: &mut Drawing, place: &PlotArea) {
    let right = place.across.range().1;
    drawing.behind(upright(&place.along, LEFT, right, 6, ""));
    drawing.behind(across(&place.across, (TOP, HEIGHT), place.width, ""));
    let one = place.along.at(1.0);
    drawing.behind(line((LEFT, one), (right, one), "one"));
    if place.strip == Strip::Used {
        let from = place.across.range().0;
        drawing.behind(line((from, TOP), (from, HEIGHT), "floor"));
        drawing.mark(text(LEFT + STRIP / 2.0, HEIGHT + 14.0, Anchor::Middle, "tick", "none"));
    }
}

/// The first colour is the baseline's in other charts.
fn look(index: usize) -> (Shape, String) {
    series_look(index, 1)
}

fn drawn(drawing: &mut Drawing, point: &Point<'_>, place: &PlotArea, (shape, colour): (Shape, String)) {
    let (x, y) = place.at(point);
    let (low, high) = (place.along.at(point.ratio.low()), place.along.at(point.ratio.high()));
    let said = format!(
        "{}: {} pages an operation, {}",
        point.name,
        measured(CROSSINGS, point.pages),
        ratio_with_interval(&point.ratio)
    );
    let marks = group("mark point").child(tooltip(said)).child(upright_whisker(x, low, high, &colour));
    drawing.mark(marks.child(dot(shape, (x, y), &colour)));
}

/// The workload of each point, unless it would overlap another point or name. The table has all of them.
fn names(points: &[Point<'_>], place: &PlotArea) -> Vec<(f64, f64, Anchor, String)> {
    const HALF: f64 = 7.0;
    const GAP: f64 = 8.0;
    let mut taken: Vec<[f64; 4]> = points
        .iter()
        .map(|point| {
            let (x, _) = place.at(point);
            let (top, bottom) = (place.along.at(point.ratio.high()), place.along.at(point.ratio.low()));
            [x - HALF, top - 2.0, x + HALF, bottom + 2.0]
        })
        .collect();
    let mut named = Vec::new();
    for point in points {
        let ((x, y), width) = (place.at(point), width_of(&point.workload));
        let beside = [(x + GAP, x + GAP + width, Anchor::Start), (x - GAP - width, x - GAP, Anchor::End)];
        let free = |&(left, right, _): &(f64, f64, Anchor)| {
            let is_clear = |other: &[f64; 4]| {
                right <= other[0] || other[2] <= left || y + HALF <= other[1] || other[3] <= y - HALF
            };
            left >= LEFT && right <= place.width && taken.iter().all(is_clear)
        };
        if let Some((left, right, anchor)) = beside.into_iter().find(free) {
            taken.push([left, y - HALF, right, y + HALF]);
            let held = if anchor == Anchor::Start { left } else { right };
            named.push((held, y + 4.0, anchor, point.workload.clone()));
        }
    }
    named
}

fn in_words(points: &[Point<'_>]) -> String {
    let word = |point: &Point<'_>| {
        format!("{}: {} pages, {} ×", point.name, measured(CROSSINGS, point.pages), ratio(&point.ratio))
    };
    let words: Vec<String> = points.iter().map(word).collect();
    format!(
        "Points, one for each configuration, of its ratio over its page crossings per operation. {}.",
        words.join("; ")
    )
}

fn numbers(points: &[Point<'_>]) -> Table {
    let row = |point: &Point<'_>| {
        let pages = TableEntry::text(measured(CROSSINGS, point.pages));
        let ratio = TableEntry::new([format!("{} ×", ratio(&point.ratio)), ratio_interval(&point.ratio)]);
        (point.name.clone(), vec![pages, ratio])
    };
    let columns =
        [Column::new(ColumnKind::Level, "page crossings/op"), Column::new(ColumnKind::Ratio, "ratio")];
    Table::new("configuration", columns, points.iter().map(row))
}
