//! What was measured: for each stratum its pictures and its table.

use ciphertoll_stats::assemble::Trials;

use super::{Part, flowing, said, section, table};
use crate::RunReport;
use crate::chart::{self, Figure, Rates};
use crate::markup::Element;
use crate::view::{Section, StratumView, connect_cost, crossings, levels, round_trips};

pub(super) fn parts(strata: &[StratumView<'_>], trials: &Trials<'_>) -> Vec<Part> {
    let mut rates = chart::rates(strata).into_iter().peekable();
    let mut parts = Vec::new();
    for (index, stratum) in strata.iter().enumerate() {
        while let Some(Rates { load, figure, .. }) = rates.next_if(|rates| rates.before == index) {
            let id = format!("{}-part", figure.id);
            parts.push(Part { body: section(&id, &load).child(figures([vec![figure]])), id, name: load });
        }
        parts.extend(of_stratum(stratum, trials, &format!("stratum-{}", index + 1)));
    }
    parts
}

/// What connects are made of, server beside server.
pub(super) fn connect_costs(report: &RunReport<'_>) -> Option<Part> {
    const ID: &str = "connect-cost";
    let times = connect_cost::Times::of(report)?;
    let pictures = chart::connect_costs(report, &connect_cost::of(report));
    if pictures.is_empty() {
        return None;
    }
    let name = "What a connect is made of".to_owned();
    let notes = [connect_cost::how_found(report), connect_cost::timed(&times)];
    let body = section(ID, &format!("{name}, by key and version"))
        .child(side_by_side(pictures))
        .child(said(&notes, "notes"));
    Some(Part { id: ID.to_owned(), name, body })
}

/// What a long link makes of connects, server beside server.
pub(super) fn round_trips(report: &RunReport<'_>) -> Option<Part> {
    const ID: &str = "round-trips";
    let pictures = chart::round_trips(report, &round_trips::of(report));
    let name = "Time against round trip".to_owned();
    (!pictures.is_empty()).then(|| Part {
        id: ID.to_owned(),
        body: section(ID, &name).child(side_by_side(pictures)),
        name,
    })
}

/// What encrypted files cost against what crosses to them.
pub(super) fn crossed(strata: &[StratumView<'_>]) -> Option<Part> {
    const ID: &str = "crossings";
    let pictures = chart::crossings(strata);
    let name = "Toll against page crossings".to_owned();
    (!pictures.is_empty()).then(|| Part {
        id: ID.to_owned(),
        body: section(ID, &name).child(side_by_side(pictures)),
        name,
    })
}

/// A column each, not one below the other.
fn side_by_side(pictures: Vec<Figure>) -> Element {
    let column = |picture: Figure| Element::new("div").class("column").child(figure(picture));
    Element::new("div").class("figures").children(pictures.into_iter().map(column))
}

fn of_stratum(stratum: &StratumView<'_>, trials: &Trials<'_>, id: &str) -> Option<Part> {
    let Section { heading, table: numbers, notes } = levels::section(stratum)?;
    let mut body = section(id, &heading).child(figures(chart::of_stratum(stratum, trials, id)));
    if let Some(numbers) = numbers {
        body = body
            .child(Element::new("h3").text("All of it in numbers"))
            .child(table::scrolling(&numbers, &heading));
    }
    if let Some(Section { heading, table: Some(crossed), .. }) = crossings::section(stratum) {
        body = body
            .child(Element::new("h3").text("What crosses to the files"))
            .child(table::scrolling(&crossed, &heading));
    }
    if !notes.is_empty() {
        body = body.child(said(&notes, "notes"));
    }
    Some(Part { id: id.to_owned(), name: stratum.name(), body })
}

/// Side by side where there is room, one below the other where there is not.
fn figures<const COLUMNS: usize>(columns: [Vec<Figure>; COLUMNS]) -> Element {
    let column =
        |figures: Vec<Figure>| Element::new("div").class("column").children(figures.into_iter().map(figure));
    let columns = columns.into_iter().filter(|figures| !figures.is_empty());
    Element::new("div").class("figures").children(columns.map(column))
}

/// A picture under its heading, and its numbers folded away below it.
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
