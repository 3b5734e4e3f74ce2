//! The measurements: charts and a table for each stratum.

use super::{PagePart, flowing, said, section, table};
use crate::RunReport;
use crate::chart::{self, Figure, Rates};
use crate::markup::Element;
use crate::view::{Section, StratumView, connect_cost, crossings, levels, round_trips};

pub(super) fn parts(strata: &[StratumView<'_>]) -> Vec<PagePart> {
    let mut rates = chart::rates(strata).into_iter().peekable();
    let mut parts = Vec::new();
    for (index, stratum) in strata.iter().enumerate() {
        while let Some(Rates { load, figure, .. }) = rates.next_if(|rates| rates.before == index) {
            let id = format!("{}-part", figure.id);
            parts.push(PagePart { body: section(&id, &load).child(figures([vec![figure]])), id, name: load });
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
    let mut part = charts("connect-cost", name, &format!("{name} by key and version"), pictures)?;
    let notes = [connect_cost::how_found(report), connect_cost::timed(&times)];
    part.body = part.body.child(said(&notes, "notes"));
    Some(part)
}

/// Connect time by round trip for each server.
pub(super) fn round_trips(report: &RunReport<'_>) -> Option<PagePart> {
    let name = "Connect time by round trip";
    charts("round-trips", name, name, chart::round_trips(report, &round_trips::of(report)))
}

/// The cost of encryption at rest by page crossings.
pub(super) fn crossed(strata: &[StratumView<'_>]) -> Option<PagePart> {
    let name = "Cost by page crossings";
    charts("crossings", name, name, chart::crossings(strata))
}

/// One chart per column; `None` without charts.
fn charts(id: &str, name: &str, heading: &str, pictures: Vec<Figure>) -> Option<PagePart> {
    let column = |picture: Figure| Element::new("div").class("column").child(figure(picture));
    (!pictures.is_empty()).then(|| {
        let columns = Element::new("div").class("figures").children(pictures.into_iter().map(column));
        let body = section(id, heading).child(columns);
        PagePart { id: id.to_owned(), name: name.to_owned(), body }
    })
}

fn of_stratum(stratum: &StratumView<'_>, id: &str) -> Option<PagePart> {
    let Section { heading, table: numbers, notes } = levels::section(stratum)?;
    let mut body = section(id, &heading).child(figures(chart::of_stratum(stratum, id)));
    if let Some(numbers) = numbers {
        body = body.child(Element::new("h3").text("All numbers")).child(table::scrolling(&numbers, &heading));
    }
    if let Some(Section { heading, table: Some(crossed), .. }) = crossings::section(stratum) {
        body = body
            .child(Element::new("h3").text("Page and log I/O"))
            .child(table::scrolling(&crossed, &heading));
    }
    if !notes.is_empty() {
        body = body.child(said(&notes, "notes"));
    }
    Some(PagePart { id: id.to_owned(), name: stratum.name(), body })
}

/// Side by side if there is room, else one below the other.
fn figures<const COLUMNS: usize>(columns: [Vec<Figure>; COLUMNS]) -> Element {
    let column =
        |figures: Vec<Figure>| Element::new("div").class("column").children(figures.into_iter().map(figure));
    let columns = columns.into_iter().filter(|figures| !figures.is_empty());
    Element::new("div").class("figures").children(columns.map(column))
}

/// A chart under its heading, with its numbers folded below.
fn figure(figure: Figure) -> Element {
    let Figure { id, heading, reading, picture, numbers, notes } = figure;
    let caption = Element::new("figcaption")
        .child(Element::new("h3").text(flowing(&heading)))
        .child(Element::new("p").text(flowing(&reading)));
    let details = Element::new("details")
        .child(
            Element::new("summary")
                .text("The numbers")
                .child(Element::new("span").class("visually-hidden").text(format!(" of: {heading}"))),
        )
        .child(table::scrolling(&numbers, &heading));
    let mut element = Element::new("figure").with("id", id).child(caption).child(picture);
    if !notes.is_empty() {
        element = element.child(said(&notes, "notes"));
    }
    element.child(details)
}
