//! Connect time compared with the round trip of the link: the part of the protocol's round trips, and the rest.

mod words;

use ciphertoll_model::{
    Cell, ConnectionUse, Factor, FindAny, Link, LinkShape, Metric, RoundTrips, ServerLevel, Workload,
    round_trips,
};
use ciphertoll_stats::{CellAnalysis, Estimate};

pub(crate) use self::words::{in_words, notes, sections, table};
use super::{is_plain_load, level};
use crate::lists::grouped;
use crate::{RunReport, names};

/// One load on one server over several links, with the fewest clients.
pub(crate) struct OverLinks<'a> {
    pub(crate) server: &'a ServerLevel,
    pub(crate) workload: Workload,
    /// The shortest first.
    pub(crate) links: Vec<Link>,
    /// One for each path and any other level that varies.
    pub(crate) series: Vec<Series<'a>>,
    /// The factors that vary.
    pub(crate) rows: Vec<Factor>,
    /// Links without a single round-trip time.
    left_out: Vec<Link>,
}

/// The same connect over several links.
pub(crate) struct Series<'a> {
    pub(crate) label: String,
    /// The protocol's round trips; absent if unknown.
    pub(crate) round_trips: Option<RoundTrips>,
    /// The shortest link first.
    pub(crate) points: Vec<Point<'a>>,
}

/// The mean latency over one link.
pub(crate) struct Point<'a> {
    pub(crate) cell: &'a CellAnalysis,
    pub(crate) link: Link,
    /// ns.
    pub(crate) time: &'a Estimate,
}

/// Every server and load with connects over several links.
pub(crate) fn of<'a>(report: &RunReport<'a>) -> Vec<OverLinks<'a>> {
    let servers = report.plan.servers().into_iter();
    let loads = Workload::ALL.into_iter().filter(|load| load.connection_use() == ConnectionUse::PerOperation);
    let loads: Vec<Workload> = loads.collect();
    servers
        .flat_map(|server| loads.iter().map(move |load| (server, *load)))
        .filter_map(|(server, load)| of_load(report, server, load))
        .collect()
}

fn of_load<'a>(report: &RunReport<'a>, server: &'a ServerLevel, workload: Workload) -> Option<OverLinks<'a>> {
    let cells = report.analysis.cells();
    let all = || cells.iter().copied().filter(|cell| is_plain_load(&cell.cell, server, workload));
    let clients = all().map(|cell| cell.cell.clients).min()?;
    let all = || all().filter(|cell| cell.cell.clients == clients);
    let points: Vec<Point<'a>> = all().filter_map(point).collect();
    let varying: Vec<&Cell> = points.iter().map(|point| &point.cell.cell).collect();
    let mut rows = names::varying(&varying, Factor::Path);
    rows.retain(|factor| *factor != Factor::Link);
    let points = points.into_iter().map(|point| (names::row_label(&point.cell.cell, &rows), point));
    let one = |(label, mut points): (String, Vec<Point<'a>>)| {
        points.sort_by_key(|point| point.link);
        let round_trips = of_series(report, &points);
        points.iter().any(|point| rtt_ns(point.link).is_some()).then_some(Series {
            label,
            round_trips,
            points,
        })
    };
    let series: Vec<Series<'a>> = grouped(points).into_iter().filter_map(one).collect();
    let links = sorted(series.iter().flat_map(|series| series.points.iter().map(|point| point.link)));
    let left_out = all().map(|cell| cell.cell.treatment.link).filter(|link| !is_plain(*link));
    let over = OverLinks { server, workload, links, series, rows, left_out: sorted(left_out) };
    (over.links.len() > 1).then_some(over)
}

fn point(cell: &CellAnalysis) -> Option<Point<'_>> {
    let link = cell.cell.treatment.link;
    let time = level(cell, Metric::LatencyNsMean).filter(|_| is_plain(link))?;
    Some(Point { cell, link, time })
}

/// Whether it has a single round-trip time: not with jitter, loss or a rate limit.
pub(crate) fn is_plain(link: Link) -> bool {
    match link {
        Link::Local => true,
        Link::AsIs => false,
        Link::Emulated(shape) => {
            let least_us = u32::try_from(shape.rtt_ns() / 1_000).unwrap_or(u32::MAX);
            shape == LinkShape::of_rtt_us(least_us)
        }
    }
}

/// The configured round trip; absent if it is 0.
pub(crate) fn rtt_ns(link: Link) -> Option<f64> {
    let rtt_ns = link.shape()?.rtt_ns();
    (rtt_ns > 0).then_some(rtt_ns as f64)
}

fn sorted(links: impl Iterator<Item = Link>) -> Vec<Link> {
    let mut links: Vec<Link> = links.collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// Known if they are known and equal for every link.
fn of_series(report: &RunReport<'_>, points: &[Point<'_>]) -> Option<RoundTrips> {
    let mut all = points.iter().map(|point| of_cell(report, point.cell));
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

fn of_cell(report: &RunReport<'_>, cell: &CellAnalysis) -> Option<RoundTrips> {
    let mut seen = cell.legs.iter().map(|count| count.leg.hello_retry);
    let hello_retry = seen.next().flatten();
    // Some connects had an extra round trip.
    if seen.any(|other| other != hello_retry) {
        return None;
    }
    let first_flight_bytes =
        cell.legs.iter().filter_map(|count| Some(count.handshake?.first_flight_bytes)).max();
    let server = &cell.cell.treatment.server;
    let version = report.facts.server_version(&server.short_name()).unwrap_or_default();
    round_trips::of_operation(
        &round_trips::ServerProperties { engine: server.engine, version, hello_retry, first_flight_bytes },
        &cell.cell,
    )
}

impl Series<'_> {
    /// The mean latency minus the protocol's round trips over the configured link, ns.
    pub(crate) fn beyond(&self, point: &Point<'_>) -> Option<Estimate> {
        let spent_ns = f64::from(self.round_trips?.total()) * rtt_ns(point.link)?;
        let less = |ns: f64| ns - spent_ns;
        let Estimate { value, ci_low, ci_high, blocks } = *point.time;
        Some(Estimate { value: less(value), ci_low: ci_low.map(less), ci_high: ci_high.map(less), blocks })
    }

    /// The total, if known.
    pub(crate) fn total(&self) -> Option<u32> {
        self.round_trips.map(RoundTrips::total)
    }
}

impl OverLinks<'_> {
    /// `1 client`.
    pub(crate) fn concurrency(&self) -> String {
        let first = self.series.first().and_then(|series| series.points.first());
        first.map_or_else(String::new, |point| names::concurrency(&point.cell.cell))
    }
}

/// The beginning of a heading.
pub(crate) fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Connect => "Connect time by round trip",
        Workload::FirstQuery | Workload::FindAny(FindAny::First) => "Time of a first query by round trip",
        _ => "Time of a connect with a query by round trip",
    }
}
