//! Rate against clients, where the same load was measured at several numbers of them.

use ciphertoll_model::{Cell, Clients, Metric};
use ciphertoll_stats::{CellAnalysis, Estimate};

use super::{Figure, level, whiskers};
use crate::names;
use crate::number::{measured, measured_in, scale};
use crate::svg::{
    Anchor, Drawing, Scale, Shape, WIDTH, dot, group, line, polyline, text, tooltip, upright,
    upright_whisker, width_of,
};
use crate::view::{Column, Entry, Overflow, Part, StratumView, Table};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
/// Names of lines get at most this much of the width.
const LONGEST_NAME: f64 = 150.0;

/// Strata that differ in nothing but the number of clients.
struct Family<'a> {
    /// Where its first stratum stands.
    first: usize,
    strata: Vec<&'a StratumView<'a>>,
}

struct Series<'a> {
    label: String,
    points: Vec<(u16, &'a Estimate)>,
}

/// A picture of such a family.
pub(crate) struct Rates {
    /// The stratum that it belongs in front of.
    pub(crate) before: usize,
    /// What it is about.
    pub(crate) load: String,
    pub(crate) figure: Figure,
}

/// A picture for each load that was measured at several numbers of clients.
pub(crate) fn of_families(strata: &[StratumView<'_>]) -> Vec<Rates> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for (index, stratum) in strata.iter().enumerate() {
        match families.iter_mut().find(|family| is_alike(family.strata[0], stratum)) {
            Some(family) => family.strata.push(stratum),
            None => families.push(Family { first: index, strata: vec![stratum] }),
        }
    }
    families.iter().filter_map(rates).collect()
}

fn is_alike(one: &StratumView<'_>, other: &StratumView<'_>) -> bool {
    let at_one_client = |stratum: &StratumView<'_>| Cell { clients: Clients::ONE, ..stratum.cell().clone() };
    one.plan.factor == other.plan.factor && at_one_client(one) == at_one_client(other)
}

fn rates(family: &Family<'_>) -> Option<Rates> {
    let series = series(family);
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
    drawn(&mut drawing, &series, &Place { across, along, unit, right });
    let load = load(family.strata[0], &counts);
    let heading = "Rate against clients".to_owned();
    let id = format!("rates-{}", family.first + 1);
    let figure = Figure {
        picture: drawing.finish(&id, &format!("{heading}, {load}"), &in_words(&series)),
        id,
        heading,
        reading: format!(
            "Operations a second of all clients together; {}; clients on a logarithmic axis.",
            whiskers(points().map(|(_, rate)| *rate), "whiskers are 95 % intervals")
        ),
        numbers: table(family, &series, &counts),
        notes: Vec::new(),
    };
    Some(Rates { before: family.first, load, figure })
}

/// `point-select at 1, 8, 32 clients, mariadb`.
fn load(stratum: &StratumView<'_>, counts: &[u16]) -> String {
    let counts: Vec<String> = counts.iter().map(u16::to_string).collect();
    let load = format!("{} at {} clients", stratum.cell().workload, counts.join(", "));
    let context = names::context(stratum.report.plan, stratum.plan, &stratum.rows);
    std::iter::once(load).chain(context).collect::<Vec<_>>().join(", ")
}

fn series<'a>(family: &Family<'a>) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    for stratum in &family.strata {
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

/// Where things are drawn.
struct Place<'a> {
    across: Scale,
    along: Scale,
    unit: (f64, &'a str),
    right: f64,
}

fn drawn(drawing: &mut Drawing, series: &[Series<'_>], place: &Place<'_>) {
    let names = apart(series.iter().map(|series| {
        series.points.last().map_or(HEIGHT, |(_, rate)| place.along.at(rate.value / place.unit.0))
    }));
    for (index, (series, name_y)) in series.iter().zip(names).enumerate() {
        let shape = Shape::ALL[index % Shape::ALL.len()];
        let colour = format!("series-{}", index % Shape::ALL.len() + 1);
        // Whiskers side by side, not on one another.
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

/// Moves names that would lie on one another down until they do not; the order stays.
fn apart(places: impl Iterator<Item = f64>) -> Vec<f64> {
    const NEAREST: f64 = 15.0;
    let mut places: Vec<(usize, f64)> = places.enumerate().collect();
    places.sort_by(|left, right| left.1.total_cmp(&right.1));
    for index in 1..places.len() {
        places[index].1 = places[index].1.max(places[index - 1].1 + NEAREST);
    }
    // What was pushed out at the bottom pushes back.
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
    format!("Lines, one for each path, of the rate over numbers of clients. {}.", all.join(". "))
}

fn table(family: &Family<'_>, series: &[Series<'_>], counts: &[u16]) -> Table {
    let factors: Vec<&str> = family.strata[0].rows.iter().map(|factor| factor.label()).collect();
    let heading = |count: &u16| {
        Column::new(Part::Level, &format!("{count} client{}", if *count == 1 { "" } else { "s" }))
    };
    let entry = |series: &Series<'_>, count: u16| {
        let point = series.points.iter().find(|(clients, _)| *clients == count);
        point.map_or_else(Entry::absent, |(_, rate)| Entry::new([measured(Metric::RatePerS, rate)]))
    };
    let row = |series: &Series<'_>| {
        let entries = counts.iter().map(|count| entry(series, *count));
        std::iter::once(Entry::new([series.label.clone()])).chain(entries).collect()
    };
    Table {
        columns: std::iter::once(Column::new(Part::Label, &factors.join(", ")))
            .chain(counts.iter().map(heading))
            .collect(),
        rows: series.iter().map(row).collect(),
        overflow: Overflow::SplitParts,
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
