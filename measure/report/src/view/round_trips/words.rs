//! Latencies and round trips as a table and as sentences.

use ciphertoll_model::{Link, Metric, RoundTrips};
use ciphertoll_stats::{Estimate, Interval};

use super::{OverLinks, Point, Series, rtt_ns, title};
use crate::lists::{grouped, listed};
use crate::number::{measured, plural, quantity, significant};
use crate::view::{Column, ColumnKind, Section, Sentence, Table, TableEntry};
use crate::{RunReport, names};

const TIME: Metric = Metric::LatencyNsMean;
const NS_PER_MS: f64 = 1e6;

/// A table for each server and load.
pub(crate) fn sections(report: &RunReport<'_>) -> Vec<Section> {
    let section = |over: &OverLinks<'_>| Section {
        heading: format!(
            "{} · {} · mean at {}",
            title(over.workload),
            names::server(report, over.server),
            over.concurrency()
        ),
        table: Some(table(over)),
        notes: notes(report, over),
    };
    super::of(report).iter().map(section).collect()
}

/// A row for each path, a column for each link.
pub(crate) fn table(over: &OverLinks<'_>) -> Table {
    let columns = over.links.iter().map(|link| Column::new(ColumnKind::Level, &link.to_string()));
    let row = |series: &Series<'_>| {
        let entries = over.links.iter().map(|link| {
            let point = series.points.iter().find(|point| point.link == *link);
            point.map_or_else(TableEntry::absent, |point| entry(series, point))
        });
        (series.label.clone(), entries.collect())
    };
    Table::new(&names::factors(&over.rows), columns, over.series.iter().map(row))
}

fn entry(series: &Series<'_>, point: &Point<'_>) -> TableEntry {
    let time = measured(TIME, point.time);
    match (series.total(), series.beyond(point)) {
        (Some(total), Some(beyond)) => TableEntry::new([
            time,
            format!("= {}", plural(u64::from(total), "round trip")),
            signed_ms(&beyond),
        ]),
        _ => TableEntry::text(time),
    }
}

/// `+ 1.3 ±0.2 ms`: an uncertainty of one digit, or of two if the first is 1, and a value with as many decimals.
fn signed_ms(estimate: &Estimate) -> String {
    const LEAST_MS: f64 = 0.001;
    let value = estimate.value;
    let sign = if value < 0.0 { '−' } else { '+' };
    let Some(Interval { low, high }) = estimate.interval() else {
        return format!("{sign} {} ms", significant(value.abs() / NS_PER_MS));
    };
    let half_ms = ((high - value).max(value - low) / NS_PER_MS).max(LEAST_MS);
    let magnitude = half_ms.log10().floor();
    let digits = if half_ms < 2.0 * 10f64.powf(magnitude) { 2.0 } else { 1.0 };
    let decimals = (digits - 1.0 - magnitude).clamp(0.0, 3.0) as usize;
    format!("{sign} {:.decimals$} ±{half_ms:.decimals$} ms", value.abs() / NS_PER_MS)
}

/// The round trips of each path, the unknown ones, and surprising latencies.
pub(crate) fn notes(report: &RunReport<'_>, over: &OverLinks<'_>) -> Vec<Sentence> {
    let mut notes: Vec<Sentence> = paid(over).map(Sentence::neutral).into_iter().collect();
    notes.extend(surprises(over));
    let unknown = over.series.iter().filter(|series| series.round_trips.is_none());
    let unknown: Vec<&str> = unknown.map(|series| series.label.as_str()).collect();
    if !unknown.is_empty() {
        let text = format!("Unknown number of round trips: {}.", unknown.join(", "));
        notes.push(Sentence::neutral(text));
    }
    notes.extend(found(report, over));
    if !over.left_out.is_empty() {
        let links: Vec<String> = over.left_out.iter().map(Link::to_string).collect();
        let text = format!("Left out, because the round trip varies: {}.", links.join(", "));
        notes.push(Sentence::neutral(text));
    }
    notes
}

/// `1 round trip is TCP's: plain takes 3 in all, tls1.3-p256 and tls1.3-rsa4096 4, tls1.2-p256 5.`
fn paid(over: &OverLinks<'_>) -> Option<String> {
    let RoundTrips { tcp, statements, .. } = over.series.iter().find_map(|series| series.round_trips)?;
    // Through a port-forwarding tunnel, TCP ends on this machine.
    let shorter = over.series.iter().filter_map(|series| series.round_trips).any(|trips| trips.tcp != tcp);
    let shared = match (tcp, statements, shorter) {
        (0, _, false) => "The connection is already open",
        (_, 0, false) => "1 round trip is TCP's",
        (_, 0, true) => "1 round trip is TCP's, except for tunnels that begin on this machine",
        (_, _, false) => "1 round trip is TCP's and 1 the query's",
        (_, _, true) => {
            "1 round trip is TCP's, except for tunnels that begin on this machine, and 1 the query's"
        }
    };
    let known = over.series.iter().filter_map(|series| Some((series.total()?, series.label.clone())));
    let mut totals = grouped(known);
    totals.sort_by_key(|(total, _)| *total);
    let said = totals.iter().enumerate().map(|(index, (total, labels))| {
        let verb = match (index, labels.len()) {
            (0, 1) => " takes",
            (0, _) => " take",
            _ => "",
        };
        let in_all = if index == 0 { " in all" } else { "" };
        format!("{}{verb} {total}{in_all}", listed(labels))
    });
    let said: Vec<String> = said.collect();
    Some(format!("{shared}: {}.", said.join(", ")))
}

/// Latencies that differ from the known number of round trips by a whole one.
fn surprises(over: &OverLinks<'_>) -> Vec<Sentence> {
    over.series
        .iter()
        .flat_map(|series| series.points.iter().filter_map(|point| surprise(series, point)))
        .collect()
}

/// The shortest link shows the time without round trips.
fn surprise(series: &Series<'_>, point: &Point<'_>) -> Option<Sentence> {
    /// Shorter round trips are small compared with the work.
    const SHORTEST_NS: f64 = 10.0 * NS_PER_MS;
    const HALF: f64 = 0.5;
    let rtt_ns = rtt_ns(point.link).filter(|rtt_ns| *rtt_ns >= SHORTEST_NS)?;
    let beyond = series.beyond(point)?;
    let shortest = series.points.first().filter(|shortest| shortest.link != point.link)?;
    let work = series.beyond(shortest).unwrap_or(*shortest.time);
    let trips = (beyond.value - work.value) / rtt_ns;
    // A deviation without an interval is not surprising.
    point.time.interval()?;
    let (fewest, most) = ((beyond.low() - work.high()) / rtt_ns, (beyond.high() - work.low()) / rtt_ns);
    let is_sure = fewest > HALF || most < -HALF;
    let (amount, way) = (significant(trips.abs()), if trips > 0.0 { "more" } else { "less" });
    is_sure.then(|| {
        let text = format!(
            "{} over {}: about {amount} round trips {way} than the known {} of such a server.",
            series.label,
            point.link,
            series.total().unwrap_or_default(),
        );
        Sentence::caution(text)
    })
}

/// The meaning of the rest, and the deviation of the links from their configured round trips.
fn found(report: &RunReport<'_>, over: &OverLinks<'_>) -> Option<Sentence> {
    let off = |link: &Link| {
        let shape = link.shape()?;
        let found_ns = report.facts.round_trip_ns_p50.get(&shape)?;
        let off_ns = *found_ns as f64 - shape.rtt_ns() as f64;
        let sign = if off_ns < 0.0 { '−' } else { '+' };
        Some(format!("{link} {sign}{}", quantity(TIME, off_ns.abs())))
    };
    let off: Vec<String> = over.links.iter().filter_map(off).collect();
    let lines = if off.is_empty() {
        String::new()
    } else {
        format!(" ({}, measured by separate connects)", off.join(", "))
    };
    over.series.iter().any(|series| series.round_trips.is_some()).then(|| {
        Sentence::neutral(format!(
            "The time beyond the round trips is work on both sides and the deviation of the links{lines}."
        ))
    })
}

/// `plain, 3 round trips: 3.21 ms ±0.5 % over 1ms, …`: the text alternative of the chart.
pub(crate) fn in_words(over: &OverLinks<'_>) -> String {
    let of_series = |series: &Series<'_>| {
        let total = series.total().map(|total| format!(", {}", plural(u64::from(total), "round trip")));
        let over_link = |point: &Point<'_>| format!("{} over {}", measured(TIME, point.time), point.link);
        let points: Vec<String> = series.points.iter().map(over_link).collect();
        format!("{}{}: {}", series.label, total.unwrap_or_default(), points.join(", "))
    };
    let all: Vec<String> = over.series.iter().map(of_series).collect();
    format!(
        "Lines, one for each path, of the mean latency over the round trip of the link, and reference lines of the round trips \
         alone. {}.",
        all.join(". ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_has_the_decimals_of_its_uncertainty() {
        let ms = |value: f64, half: f64| {
            let ns = |ms: f64| ms * NS_PER_MS;
            signed_ms(&Estimate::new(
                ns(value),
                Interval { low: ns(value - half), high: ns(value + half) },
                6,
            ))
        };
        assert_eq!(ms(1.3142, 0.2131), "+ 1.3 ±0.2 ms");
        assert_eq!(ms(-0.4, 3.04), "− 0 ±3 ms");
        assert_eq!(ms(12.0, 14.6), "+ 12 ±15 ms");
        assert_eq!(ms(0.31, 0.15), "+ 0.31 ±0.15 ms");
        assert_eq!(ms(0.2, 0.000_01), "+ 0.200 ±0.001 ms");
    }
}
