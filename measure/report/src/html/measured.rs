//! The measurements: charts and a table for each stratum.

use super::part::{PagePart, flowing, said};
use super::table;
use crate::RunReport;
use crate::chart::{self, Figure, Rates};
use crate::markup::Element;
use crate::view::{Section, StratumView, Table, connect_cost, crossings, levels, round_trips};

pub(super) fn parts(strata: &[StratumView<'_>]) -> Vec<PagePart> {
    let mut rates = chart::rates(strata).into_iter().peekable();
    let mut parts = Vec::new();
    for (index, stratum) in strata.iter().enumerate() {
        while let Some(Rates { load, figure, .. }) = rates.next_if(|rates| rates.before == index) {
            let id = format!("{}-part", figure.id);
            parts.push(PagePart::new(&id, &load, vec![figures(vec![figure])]));
        }
        parts.extend(of_stratum(stratum, &format!("stratum-{}", index + 1)));
    }
    parts
}

/// The breakdown of connect time for each server.
pub(super) fn connect_costs(report: &RunReport<'_>) -> Option<PagePart> {
    let times = report.facts.primitives?;
    let pictures = chart::connect_costs(report, &connect_cost::of(report));
    let name = "Breakdown of connect time";
    let mut part = charts("connect-cost", &format!("{name} by key and version"), pictures)?;
    let notes = [connect_cost::how_found(report), connect_cost::timed(&times)];
    part.content.push(said(&notes, "notes"));
    Some(part)
}

/// Connect time by round trip for each server.
pub(super) fn round_trips(report: &RunReport<'_>) -> Option<PagePart> {
    charts("round-trips", "Connect time by round trip", chart::round_trips(report, &round_trips::of(report)))
}

/// The cost of encryption at rest by page crossings.
pub(super) fn crossed(strata: &[StratumView<'_>]) -> Option<PagePart> {
    charts("crossings", "Cost by page crossings", chart::crossings(strata))
}

/// `None` without charts.
fn charts(id: &str, heading: &str, pictures: Vec<Figure>) -> Option<PagePart> {
    (!pictures.is_empty()).then(|| PagePart::new(id, heading, vec![figures(pictures)]))
}

fn of_stratum(stratum: &StratumView<'_>, id: &str) -> Option<PagePart> {
    let Section { heading, table: numbers, notes } = levels::section(stratum)?;
    let mut content = vec![figures(chart::of_stratum(stratum, id))];
    let mut grid = |name: &str, numbers: &Table, caption: &str| {
        content.extend([Element::new("h4").text(name), table::scrolling(numbers, caption)]);
    };
    if let Some(numbers) = numbers {
        grid("All numbers", &numbers, &heading);
    }
    if let Some(Section { heading, table: Some(crossed), .. }) = crossings::section(stratum) {
        grid("Page and log I/O", &crossed, &heading);
    }
    if !notes.is_empty() {
        content.push(said(&notes, "notes"));
    }
    Some(PagePart::new(id, &heading, content))
}

pub(super) fn figures(figures: Vec<Figure>) -> Element {
    Element::new("div").class("figures").children(figures.into_iter().map(figure))
}

/// A chart under its heading, with its numbers folded below.
fn figure(figure: Figure) -> Element {
    let Figure { id, heading, reading, pictures, numbers, notes } = figure;
    let caption = Element::new("figcaption")
        .child(Element::new("h4").text(flowing(&heading)))
        .child(Element::new("p").text(flowing(&reading)));
    let details = Element::new("details")
        .child(
            Element::new("summary")
                .text("The numbers")
                .child(Element::new("span").class("visually-hidden").text(format!(" of: {heading}"))),
        )
        .child(table::scrolling(&numbers, &heading));
    let mut element = Element::new("figure").with("id", id).child(caption).children(pictures);
    if !notes.is_empty() {
        element = element.child(said(&notes, "notes"));
    }
    element.child(details)
}
