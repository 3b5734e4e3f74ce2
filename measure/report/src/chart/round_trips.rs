//! Connect time by round trip of the link, both on logarithmic axes. Pure round trips are a straight line; additional work
//! bends the line up on short links.

use ciphertoll_model::{Link, Metric};
use ciphertoll_stats::Estimate;

use super::figure::{Figure, apart, pictures, point_of_line, series_look, whiskers};
use crate::lists::grouped;
use crate::number::{measured, plural};
use crate::svg::{
    Anchor, Drawing, Scale, Swatch, dot, group, line, polyline, text, tooltip, upright, width_of,
};
use crate::view::round_trips::{self, OverLinks, Point, Series, rtt_ns};
use crate::{RunReport, names};

const HEIGHT: f64 = 320.0;
const TOP: f64 = 8.0;
const LEFT: f64 = 44.0;
/// The width for links without a round trip.
const STRIP: f64 = 42.0;
/// From the end of the axis to the labels.
const MARGIN: f64 = 12.0;
/// The most width for names next to the lines; longer ones go below.
const LONGEST_NAME: f64 = 160.0;
/// Bold letters are wider.
const BOLD: f64 = 1.09;
const DOT: f64 = 10.0;
const ROW: f64 = 15.0;
const TIME: Metric = Metric::LatencyNsMean;
const NS_PER_MS: f64 = 1e6;
/// How far the axes extend beyond the outermost links, as a factor.
const BEYOND: f64 = 1.3;
const BEYOND_ONE: f64 = 3.0;
/// Free space below and above, as a factor.
const AIR: f64 = 1.1;
/// Offset between dots with the same number of round trips.
const ASIDE: f64 = 4.0;

/// A chart for each load on each server.
pub(crate) fn of_loads(report: &RunReport<'_>, all: &[OverLinks<'_>]) -> Vec<Figure> {
    let id = |index: usize| format!("round-trips-{}", index + 1);
    all.iter().enumerate().map(|(index, over)| figure(report, over, &id(index))).collect()
}

fn figure(report: &RunReport<'_>, over: &OverLinks<'_>, id: &str) -> Figure {
    let (about, server) = (round_trips::title(over.workload), names::server(report, over.server));
    let heading = format!("{about}, {server}");
    Figure {
        pictures: pictures(id, &heading, &round_trips::in_words(over), |drawing| draw(drawing, over)),
        id: id.to_owned(),
        heading,
        reading: reading(over),
        numbers: round_trips::table(over),
        notes: round_trips::notes(report, over),
    }
}

fn draw(drawing: &mut Drawing, over: &OverLinks<'_>) {
    drawing.advance(HEIGHT);
    let place = LinkPlotArea::of(over, drawing.width());
    axes(drawing, over, &place);
    let groups = groups(over, &place);
    for (total, group) in &groups {
        if let Some(total) = total {
            drawing.behind(reference(&place, *total));
        }
        leader(drawing, &place, group);
        drawing.mark(text(place.right + MARGIN, group.label_y + 4.0, Anchor::Start, "tick", said(*total)));
    }
    for (_, group) in &groups {
        let middle = (group.members.len() - 1) as f64 / 2.0;
        for (nth, index) in group.members.iter().enumerate() {
            drawn(drawing, over, *index, &place, (nth as f64 - middle) * ASIDE);
        }
    }
    drawing.advance(18.0);
    drawing.lines("round trip of the link, ms; latency, ms", "tick");
    if place.names == Names::Below {
        drawing.key(over.series.iter().enumerate().map(|(index, series)| swatch(index, series)));
    } else {
        for (_, group) in &groups {
            named(drawing, over, &place, group);
        }
    }
}

fn reading(over: &OverLinks<'_>) -> String {
    let apart = if over.links.iter().any(|link| rtt_ns(*link).is_none()) {
        " Left of the dashed line: no long link."
    } else {
        ""
    };
    let times = over.series.iter().flat_map(|series| series.points.iter().map(|point| point.time));
    format!(
        "Mean latency at {}, both axes logarithmic; {}. A thin line is a number of round trips alone: the distance above \
         it is work.{apart}",
        over.concurrency(),
        whiskers(times, "whiskers are 95 % intervals"),
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Beside,
    Below,
}

struct LinkPlotArea {
    across: Scale,
    along: Scale,
    /// Left end of the links with a round trip.
    from: f64,
    right: f64,
    /// Shortest and longest round trip of the lines, ns.
    reach_ns: (f64, f64),
    /// Links without a round trip.
    strip: Vec<Link>,
    names: Names,
}

impl LinkPlotArea {
    fn of(over: &OverLinks<'_>, width: f64) -> Self {
        let strip: Vec<Link> = over.links.iter().copied().filter(|link| rtt_ns(*link).is_none()).collect();
        let rtts = || over.links.iter().filter_map(|link| rtt_ns(*link));
        let (shortest, farthest) = (rtts().fold(f64::INFINITY, f64::min), rtts().fold(0.0, f64::max));
        let beyond = if shortest < farthest { BEYOND } else { BEYOND_ONE };
        let reach_ns = (shortest / beyond, farthest * beyond);
        let totals = || over.series.iter().filter_map(Series::total).map(f64::from);
        let times = || over.series.iter().flat_map(|series| series.points.iter().map(|point| point.time));
        let lowest = totals().map(|total| total * reach_ns.0).chain(times().map(shown_low));
        let highest = totals().map(|total| total * reach_ns.1).chain(times().map(Estimate::high));
        let (low, high) = (lowest.fold(f64::INFINITY, f64::min) / AIR, highest.fold(0.0, f64::max) * AIR);
        let longest =
            over.series.iter().map(|series| width_of(&series.label) * BOLD + 4.0 + DOT).fold(0.0, f64::max);
        let names = if longest <= LONGEST_NAME { Names::Beside } else { Names::Below };
        let said = over.series.iter().map(|series| width_of(&said(series.total()))).fold(0.0, f64::max);
        let beside = if names == Names::Beside { said.max(longest) } else { said };
        let (from, right) = (LEFT + 4.0 + STRIP * strip.len() as f64, width - beside - MARGIN);
        Self {
            across: Scale::log(reach_ns, (from, right)),
            along: Scale::log((low / NS_PER_MS, high / NS_PER_MS), (HEIGHT, TOP)),
            from,
            right,
            reach_ns,
            strip,
            names,
        }
    }

    fn x(&self, link: Link) -> f64 {
        match (rtt_ns(link), self.strip.iter().position(|other| *other == link)) {
            (None, Some(index)) => LEFT + STRIP * (index as f64 + 0.5),
            (rtt_ns, _) => self.across.at(rtt_ns.unwrap_or_default()),
        }
    }

    /// Times of 0 or below lie on the edge.
    fn y(&self, ns: f64) -> f64 {
        self.along.at((ns / NS_PER_MS).max(f64::MIN_POSITIVE))
    }
}

/// The lowest value of the axis: an interval may reach 0, which has no logarithm.
fn shown_low(time: &Estimate) -> f64 {
    const DEEPEST: f64 = 3.0;
    time.low().max(time.value / DEEPEST)
}

fn axes(drawing: &mut Drawing, over: &OverLinks<'_>, place: &LinkPlotArea) {
    drawing.behind(upright(&place.along, LEFT, place.right, 6, ""));
    if !place.strip.is_empty() {
        drawing.behind(line((place.from, TOP), (place.from, HEIGHT), "floor"));
    }
    let mut free_from = 0.0;
    for link in &over.links {
        let x = place.x(*link);
        drawing.behind(line((x, TOP), (x, HEIGHT), "grid"));
        let label = match rtt_ns(*link) {
            Some(_) => link.to_string().trim_end_matches("ms").to_owned(),
            None => link.to_string(),
        };
        let half = width_of(&label) / 2.0;
        // A label that would overlap its neighbour is left to the table.
        if x - half >= free_from {
            drawing.mark(text(x, HEIGHT + 15.0, Anchor::Middle, "tick", label));
            free_from = x + half + 2.0;
        }
    }
}

/// The reference line of a number of round trips.
fn reference(place: &LinkPlotArea, total: u32) -> crate::markup::Element {
    let at = |rtt_ns: f64| (place.across.at(rtt_ns), place.y(f64::from(total) * rtt_ns));
    line(at(place.reach_ns.0), at(place.reach_ns.1), "thread")
}

fn said(total: Option<u32>) -> String {
    total.map_or_else(|| "round trips unknown".to_owned(), |total| plural(u64::from(total), "round trip"))
}

/// Series with the same number of round trips, and the position of their names.
struct LineGroup {
    /// Indexes of its series.
    members: Vec<usize>,
    end_y: f64,
    /// The position of its name, above those of its series.
    label_y: f64,
}

fn groups(over: &OverLinks<'_>, place: &LinkPlotArea) -> Vec<(Option<u32>, LineGroup)> {
    let totals = over.series.iter().enumerate().map(|(index, series)| (series.total(), index));
    let group = |(total, members): (Option<u32>, Vec<usize>)| {
        let last = over.series[members[0]].points.last().map_or(0.0, |point| point.time.value);
        let end_y = place.y(total.map_or(last, |total| f64::from(total) * place.reach_ns.1));
        (total, LineGroup { members, end_y, label_y: end_y })
    };
    let mut groups: Vec<(Option<u32>, LineGroup)> = grouped(totals).into_iter().map(group).collect();
    groups.sort_by(|(_, left), (_, right)| left.end_y.total_cmp(&right.end_y));
    let rows = |group: &LineGroup| match place.names {
        Names::Beside => 1 + group.members.len(),
        Names::Below => 1,
    };
    let heights: Vec<f64> = groups.iter().map(|(_, group)| rows(group) as f64 * ROW).collect();
    let ends: Vec<f64> = groups.iter().map(|(_, group)| group.end_y).collect();
    for ((_, group), label_y) in groups.iter_mut().zip(apart(&ends, &heights, HEIGHT + ROW)) {
        group.label_y = label_y;
    }
    groups
}

/// From the end of a line to its name.
fn leader(drawing: &mut Drawing, place: &LinkPlotArea, group: &LineGroup) {
    let ends = ((place.right, group.end_y), (place.right + MARGIN - 3.0, group.label_y));
    drawing.behind(line(ends.0, ends.1, "thread"));
}

fn named(drawing: &mut Drawing, over: &OverLinks<'_>, place: &LinkPlotArea, group: &LineGroup) {
    for (row, index) in group.members.iter().enumerate() {
        let y = group.label_y + ROW * (row + 1) as f64;
        let (shape, colour) = series_look(*index, 0);
        drawing.mark(dot(shape, (place.right + MARGIN + 4.0, y), &colour));
        let label = &over.series[*index].label;
        let x = place.right + MARGIN + 4.0 + DOT;
        drawing.mark(text(x, y + 4.0, Anchor::Start, &format!("name {colour}"), label));
    }
}

fn swatch(index: usize, series: &Series<'_>) -> Swatch {
    let (shape, colour) = series_look(index, 0);
    Swatch::drawn(dot(shape, (7.0, 6.0), &colour), &series.label)
}

fn drawn(drawing: &mut Drawing, over: &OverLinks<'_>, index: usize, place: &LinkPlotArea, aside: f64) {
    let look = series_look(index, 0);
    let (series, count) = (&over.series[index], over.series.len() as f64);
    // Without a round trip the dots often overlap.
    let in_the_strip = (index as f64 - (count - 1.0) / 2.0) * ASIDE.min(STRIP * 0.8 / count);
    let at = |point: &Point<'_>| (place.x(point.link), place.y(point.time.value));
    let course: Vec<(f64, f64)> =
        series.points.iter().filter(|point| rtt_ns(point.link).is_some()).map(at).collect();
    let mut mark = group("mark")
        .child(tooltip(series.label.clone()))
        .child(polyline(&course, &format!("series {}", look.1)));
    for point in &series.points {
        let (x, y) = at(point);
        let x = x + if rtt_ns(point.link).is_some() { aside } else { in_the_strip };
        let of = format!("{} over {}: {}", series.label, point.link, measured(TIME, point.time));
        let interval = (place.y(point.time.low()), place.y(point.time.high()));
        mark = mark.child(point_of_line((x, y), interval, &look, of));
    }
    drawing.mark(mark);
}
