//! Rate by number of clients, for loads that were measured with several.

use ciphertoll_model::{Cell, Clients, Metric};
use ciphertoll_stats::{CellAnalysis, Estimate};

use super::{Figure, level, whiskers};
use crate::names;
use crate::number::{measured, measured_in, scale};
use crate::svg::{
    Anchor, Drawing, Scale, Shape, WIDTH, dot, group, line, polyline, text, tooltip, upright,
    upright_whisker, width_of,
};
use crate::view::{Column, ColumnKind, Overflow, StratumView, Table, TableEntry};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
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

/// The chart of a sweep.
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
    let right = WIDTH - longest.min(LONGEST_NAME) - 14.0;
    let across = Scale::log((f64::from(first), f64::from(last)), (LEFT + 12.0, right));
    let along = Scale::linear((0.0, highest / unit.0), (HEIGHT, 8.0));
    let mut drawing = Drawing::default();
    drawing.advance(HEIGHT);
    drawing.behind(upright(&along, LEFT, right + 8.0, 5, ""));
    for count in &counts {
        let x = across.at(f64::from(*count));
        drawing.behind(line((x, 8.0), (x, HEIGHT), "grid"));
        drawing.mark(text(x, HEIGHT + 15.0, Anchor::Middle, "tick", count.to_string()));
    }
    drawing.advance(16.0);
    drawing.lines(&format!("clients; rates in{}", unit.1), "tick");
    drawn(&mut drawing, &series, &RatePlotArea { across, along, unit, right });
    let load = load(sweep.strata[0], &counts);
    let heading = "Rate by number of clients".to_owned();
    let id = format!("rates-{}", sweep.first + 1);
    let figure = Figure {
        picture: drawing.finish(&id, &format!("{heading}, {load}"), &in_words(&series)),
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
    let mut all: Vec<Series<'a>> = Vec::new();
    for stratum in &sweep.strata {
        for cell in stratum.cells() {
            let Some(rate) = level(cell, Metric::RatePerS) else { continue };
            let point = (clients(cell), rate);
            let label = stratum.row_label(cell);
            match all.iter_mut().find(|series| series.label == label) {
                Some(series) => series.points.push(point),
                None => all.push(Series { label, points: vec![point] }),
            }
        }
    }
    for series in &mut all {
        series.points.sort_by_key(|(clients, _)| *clients);
    }
    all
}

fn clients(cell: &CellAnalysis) -> u16 {
    cell.cell.clients.count()
}

fn counts(series: &[Series<'_>]) -> Vec<u16> {
    let mut counts: Vec<u16> =
        series.iter().flat_map(|series| series.points.iter().map(|(clients, _)| *clients)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The drawing area.
struct RatePlotArea<'a> {
    across: Scale,
    along: Scale,
    unit: (f64, &'a str),
    right: f64,
}

fn drawn(drawing: &mut Drawing, series: &[Series<'_>], place: &RatePlotArea<'_>) {
    let names = apart(series.iter().map(|series| {
        series.points.last().map_or(HEIGHT, |(_, rate)| place.along.at(rate.value / place.unit.0))
    }));
    for (index, (series, name_y)) in series.iter().zip(names).enumerate() {
        let shape = Shape::ALL[index % Shape::ALL.len()];
        let colour = format!("series-{}", index % Shape::ALL.len() + 1);
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
            let (x, y) = at(*clients, rate.value);
            let of = format!("{} at {clients} clients: {}", series.label, measured_in(place.unit, rate));
            let (low, high) = (at(*clients, rate.low()).1, at(*clients, rate.high()).1);
            line = line.child(
                group("point").child(tooltip(of)).child(upright_whisker(x, low, high, &colour)).child(dot(
                    shape,
                    (x, y),
                    &colour,
                )),
            );
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

/// Moves overlapping names down in their order.
fn apart(places: impl Iterator<Item = f64>) -> Vec<f64> {
    const NEAREST: f64 = 15.0;
    let mut places: Vec<(usize, f64)> = places.enumerate().collect();
    places.sort_by(|left, right| left.1.total_cmp(&right.1));
    for index in 1..places.len() {
        places[index].1 = places[index].1.max(places[index - 1].1 + NEAREST);
    }
    // Push back from the bottom.
    let mut limit = HEIGHT;
    for place in places.iter_mut().rev() {
        place.1 = place.1.min(limit);
        limit = place.1 - NEAREST;
    }
    places.sort_by_key(|(index, _)| *index);
    places.into_iter().map(|(_, place)| place).collect()
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
    let factors: Vec<&str> = sweep.strata[0].rows.iter().map(|factor| factor.label()).collect();
    let heading = |count: &u16| {
        Column::new(ColumnKind::Level, &format!("{count} client{}", if *count == 1 { "" } else { "s" }))
    };
    let entry = |series: &Series<'_>, count: u16| {
        let point = series.points.iter().find(|(clients, _)| *clients == count);
        point.map_or_else(TableEntry::absent, |(_, rate)| TableEntry::new([measured(Metric::RatePerS, rate)]))
    };
    let row = |series: &Series<'_>| {
        let entries = counts.iter().map(|count| entry(series, *count));
        std::iter::once(TableEntry::new([series.label.clone()])).chain(entries).collect()
    };
    Table {
        columns: std::iter::once(Column::new(ColumnKind::Label, &factors.join(", ")))
            .chain(counts.iter().map(heading))
            .collect(),
        rows: series.iter().map(row).collect(),
        overflow: Overflow::SplitKinds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_meet_are_moved_apart_and_keep_their_order() {
        assert_eq!(apart([100.0, 20.0, 102.0].into_iter()), [100.0, 20.0, 115.0]);
        assert_eq!(apart([HEIGHT, HEIGHT - 1.0].into_iter()), [HEIGHT, HEIGHT - 15.0]);
    }
}
