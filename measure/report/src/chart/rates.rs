//! Rate by number of clients, for loads that were measured with several.

use ciphertoll_model::{Cell, Clients, Metric};
use ciphertoll_stats::Estimate;

use super::figure::{Figure, apart, pictures, point_of_line, whiskers};
use crate::lists::grouped;
use crate::names;
use crate::number::{measured, measured_in, plural, scale};
use crate::svg::{Anchor, Drawing, Scale, Shape, group, line, polyline, text, tooltip, upright, width_of};
use crate::view::{Column, ColumnKind, StratumView, Table, TableEntry, level};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const ROW: f64 = 15.0;
/// The most width for names of lines.
const LONGEST_NAME: f64 = 150.0;

/// Strata that differ only in the number of clients.
struct ClientSweep<'a> {
    /// Number of its first stratum.
    first: usize,
    strata: Vec<&'a StratumView<'a>>,
}

struct Series<'a> {
    label: String,
    points: Vec<(u16, &'a Estimate)>,
}

pub(crate) struct Rates {
    /// Number of the stratum that it goes before.
    pub(crate) before: usize,
    pub(crate) load: String,
    pub(crate) figure: Figure,
}

/// A chart for each load that was measured with several numbers of clients.
pub(crate) fn of_sweeps(strata: &[StratumView<'_>]) -> Vec<Rates> {
    let mut sweeps: Vec<ClientSweep<'_>> = Vec::new();
    for (index, stratum) in strata.iter().enumerate() {
        match sweeps.iter_mut().find(|sweep| is_alike(sweep.strata[0], stratum)) {
            Some(sweep) => sweep.strata.push(stratum),
            None => sweeps.push(ClientSweep { first: index, strata: vec![stratum] }),
        }
    }
    sweeps.iter().filter_map(rates).collect()
}

fn is_alike(one: &StratumView<'_>, other: &StratumView<'_>) -> bool {
    let at_one_client = |stratum: &StratumView<'_>| Cell { clients: Clients::ONE, ..stratum.cell().clone() };
    one.plan.factor == other.plan.factor && at_one_client(one) == at_one_client(other)
}

fn rates(sweep: &ClientSweep<'_>) -> Option<Rates> {
    let series = series(sweep);
    let counts = counts(&series);
    let (first, last) = (*counts.first()?, *counts.last()?);
    if first == last {
        return None;
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let highest = points().map(|(_, estimate)| estimate.high()).fold(0.0, f64::max);
    let unit = scale(Metric::RatePerS, highest);
    let longest = series.iter().map(|series| width_of(&series.label)).fold(0.0, f64::max);
    let load = load(sweep.strata[0], &counts);
    let heading = "Rate by number of clients".to_owned();
    let id = format!("rates-{}", sweep.first + 1);
    let pictures = pictures(&id, &format!("{heading}, {load}"), &in_words(&series), |drawing| {
        let right = drawing.width() - longest.min(LONGEST_NAME) - 14.0;
        let across = Scale::log((f64::from(first), f64::from(last)), (LEFT + 12.0, right));
        let along = Scale::linear((0.0, highest / unit.0), (HEIGHT, 8.0));
        draw(drawing, &series, &counts, &RatePlotArea { across, along, unit, right });
    });
    let figure = Figure {
        pictures,
        id,
        heading,
        reading: format!(
            "Operations per second of all clients together; {}; logarithmic axis of clients.",
            whiskers(points().map(|(_, rate)| *rate), "whiskers are 95 % intervals")
        ),
        numbers: table(sweep, &series, &counts),
        notes: Vec::new(),
    };
    Some(Rates { before: sweep.first, load, figure })
}

/// `point-select at 1, 8, 32 clients, mariadb`.
fn load(stratum: &StratumView<'_>, counts: &[u16]) -> String {
    let counts: Vec<String> = counts.iter().map(u16::to_string).collect();
    let load = format!("{} at {} clients", stratum.cell().workload, counts.join(", "));
    let context = names::context(stratum.report.plan, stratum.plan, &stratum.rows);
    std::iter::once(load).chain(context).collect::<Vec<_>>().join(", ")
}

fn series<'a>(sweep: &ClientSweep<'a>) -> Vec<Series<'a>> {
    let of_stratum = |stratum: &&'a StratumView<'a>| {
        stratum.cells().filter_map(|cell| {
            let point = (cell.cell.clients.count(), level(cell, Metric::RatePerS)?);
            Some((stratum.row_label(cell), point))
        })
    };
    let one = |(label, mut points): (String, Vec<(u16, &'a Estimate)>)| {
        points.sort_by_key(|(clients, _)| *clients);
        Series { label, points }
    };
    grouped(sweep.strata.iter().flat_map(of_stratum)).into_iter().map(one).collect()
}

fn counts(series: &[Series<'_>]) -> Vec<u16> {
    let mut counts: Vec<u16> =
        series.iter().flat_map(|series| series.points.iter().map(|(clients, _)| *clients)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

struct RatePlotArea<'a> {
    across: Scale,
    along: Scale,
    unit: (f64, &'a str),
    right: f64,
}

fn draw(drawing: &mut Drawing, series: &[Series<'_>], counts: &[u16], place: &RatePlotArea<'_>) {
    drawing.advance(HEIGHT);
    drawing.behind(upright(&place.along, LEFT, place.right + 8.0, 5, ""));
    for count in counts {
        let x = place.across.at(f64::from(*count));
        drawing.behind(line((x, 8.0), (x, HEIGHT), "grid"));
        drawing.mark(text(x, HEIGHT + 15.0, Anchor::Middle, "tick", count.to_string()));
    }
    drawing.advance(16.0);
    drawing.lines(&format!("clients; rates in{}", place.unit.1), "tick");
    drawn(drawing, series, place);
}

fn drawn(drawing: &mut Drawing, series: &[Series<'_>], place: &RatePlotArea<'_>) {
    let end = |series: &Series<'_>| {
        series.points.last().map_or(HEIGHT, |(_, rate)| place.along.at(rate.value / place.unit.0))
    };
    let mut ends: Vec<(usize, f64)> = series.iter().map(end).enumerate().collect();
    ends.sort_by(|left, right| left.1.total_cmp(&right.1));
    let (order, ends): (Vec<usize>, Vec<f64>) = ends.into_iter().unzip();
    let mut names = vec![0.0; ends.len()];
    for (index, y) in order.into_iter().zip(apart(&ends, &vec![ROW; ends.len()], HEIGHT + ROW)) {
        names[index] = y;
    }
    for (index, (series, name_y)) in series.iter().zip(names).enumerate() {
        let look = (Shape::ALL[index % Shape::ALL.len()], format!("series-{}", index % Shape::ALL.len() + 1));
        let colour = &look.1;
        // Whiskers side by side.
        let aside = (index as f64 - 1.0) * 5.0;
        let at = |clients: u16, rate: f64| {
            (place.across.at(f64::from(clients)) + aside, place.along.at(rate / place.unit.0))
        };
        let course: Vec<(f64, f64)> =
            series.points.iter().map(|(clients, rate)| at(*clients, rate.value)).collect();
        let mut line = group("mark")
            .child(tooltip(series.label.clone()))
            .child(polyline(&course, &format!("series {colour}")));
        for (clients, rate) in &series.points {
            let of = format!("{} at {clients} clients: {}", series.label, measured_in(place.unit, rate));
            let interval = (at(*clients, rate.low()).1, at(*clients, rate.high()).1);
            line = line.child(point_of_line(at(*clients, rate.value), interval, &look, of));
        }
        drawing.mark(line.child(text(
            place.right + 14.0,
            name_y + 4.0,
            Anchor::Start,
            &format!("name {colour}"),
            &series.label,
        )));
    }
}

fn in_words(series: &[Series<'_>]) -> String {
    let of_series = |series: &Series<'_>| {
        let points: Vec<String> = series
            .points
            .iter()
            .map(|(clients, rate)| format!("{} at {clients}", measured(Metric::RatePerS, rate)))
            .collect();
        format!("{}: {}", series.label, points.join(", "))
    };
    let all: Vec<String> = series.iter().map(of_series).collect();
    format!("Lines, one for each path, of the rate over the number of clients. {}.", all.join(". "))
}

fn table(sweep: &ClientSweep<'_>, series: &[Series<'_>], counts: &[u16]) -> Table {
    let heading = |count: &u16| Column::new(ColumnKind::Level, &plural(u64::from(*count), "client"));
    let entry = |series: &Series<'_>, count: u16| {
        let point = series.points.iter().find(|(clients, _)| *clients == count);
        point.map_or_else(TableEntry::absent, |(_, rate)| TableEntry::text(measured(Metric::RatePerS, rate)))
    };
    let row = |series: &Series<'_>| {
        (series.label.clone(), counts.iter().map(|count| entry(series, *count)).collect())
    };
    let label = names::factors(&sweep.strata[0].rows);
    Table::new(&label, counts.iter().map(heading), series.iter().map(row))
}
