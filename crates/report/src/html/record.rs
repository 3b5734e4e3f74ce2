//! Caveats, environment and the command that repeats the run.

use super::table::scrolling;
use super::{PagePart, paragraph, said, section};
use crate::RunReport;
use crate::markup::Element;
use crate::view::repeat::{self, Fact, ServerFacts};
use crate::view::{Section, StratumView, caveats, negotiated, published};

pub(super) fn parts(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<PagePart> {
    let mut parts: Vec<PagePart> = published::section(report).map(published_part).into_iter().collect();
    // Skipped configurations come before the other caveats.
    let mut caveats = caveats::sections(report, strata);
    caveats.reverse();
    let spoken = |(index, Section { heading, notes, .. }): (usize, Section)| {
        let id = format!("caveats-{}", index + 1);
        PagePart { body: section(&id, &heading).child(said(&notes, "notes")), id, name: heading }
    };
    parts.extend(caveats.into_iter().enumerate().map(spoken));
    parts.push(environment(report));
    parts.extend(negotiated::section(strata).map(|Section { heading, notes, .. }| PagePart {
        id: "negotiated".to_owned(),
        name: "Negotiated".to_owned(),
        body: section("negotiated", &heading).child(said(&notes, "notes")),
    }));
    parts.push(again(report));
    parts
}

fn published_part(section: Section) -> PagePart {
    const ID: &str = "published";
    let Section { heading, table, notes } = section;
    let mut body = super::section(ID, &heading);
    if let Some(table) = table {
        body = body.child(scrolling(&table, &heading));
    }
    PagePart {
        id: ID.to_owned(),
        name: "Compared with the published study".to_owned(),
        body: body.child(said(&notes, "notes")),
    }
}

fn environment(report: &RunReport<'_>) -> PagePart {
    let mut body = section("environment", "Environment");
    let machine = repeat::machine(report);
    if !machine.is_empty() {
        body = body.child(Element::new("h3").text("The machine")).child(facts(&machine));
    }
    for server in repeat::servers(report) {
        body = body.children(of_server(&server));
    }
    let body = body.child(Element::new("h3").text("The run")).child(facts(&repeat::run(report)));
    PagePart { id: "environment".to_owned(), name: "Environment".to_owned(), body }
}

fn of_server(server: &ServerFacts) -> Vec<Element> {
    let fact = |name: &str, value: &String| Fact { name: name.to_owned(), value: value.clone() };
    let library = server.tls_library.iter().map(|library| fact("TLS library", library));
    let about: Vec<Fact> = [fact("Version", &server.version)].into_iter().chain(library).collect();
    let mut elements = vec![Element::new("h3").text(format!("The server {}", server.name)), facts(&about)];
    if !server.settings.is_empty() {
        let settings: Vec<Fact> = server.settings.iter().map(|(name, value)| fact(name, value)).collect();
        let summary = format!("Settings that differ from the server's defaults ({})", settings.len());
        elements.push(
            Element::new("details").child(Element::new("summary").text(summary)).child(facts(&settings)),
        );
    }
    elements
}

fn facts(facts: &[Fact]) -> Element {
    let pair = |Fact { name, value }: &Fact| {
        [Element::new("dt").text(name.as_str()), Element::new("dd").text(value.as_str())]
    };
    Element::new("dl").children(facts.iter().flat_map(pair))
}

fn again(report: &RunReport<'_>) -> PagePart {
    const ID: &str = "command";
    let heading = "Repeat the run";
    let command = Element::new("div")
        .class("command")
        .child(Element::new("pre").child(Element::new("code").with("id", ID).text(repeat::command(report))))
        .child(
            // The script shows the button. Without the script a click selects the command.
            Element::new("button")
                .with("type", "button")
                .with("data-copies", ID)
                .with("hidden", "")
                .text("Copy the command"),
        )
        .child(Element::new("span").with("id", format!("{ID}-status")).with("role", "status"));
    let body = section("again", heading).child(paragraph("prose", repeat::WHERE)).child(command);
    PagePart { id: "again".to_owned(), name: heading.to_owned(), body }
}
