//! Caveats, environment and the command that repeats the run.

use super::part::{PagePart, flowing, paragraph, said};
use super::table::scrolling;
use crate::RunReport;
use crate::markup::Element;
use crate::view::published::StudyView;
use crate::view::repeat::{self, Fact, ServerFacts};
use crate::view::{Section, StratumView, caveats, hosts, negotiated, published};

pub(super) fn parts(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<PagePart> {
    // Skipped configurations come before the other caveats.
    let caveats = caveats::sections(report, strata).into_iter().rev();
    let spoken = |Section { heading, notes, .. }: Section| {
        let id = heading.to_lowercase().replace(' ', "-");
        PagePart::new(&id, &heading, vec![said(&notes, "notes")])
    };
    let mut parts: Vec<PagePart> = caveats.map(spoken).collect();
    parts.push(environment(report));
    parts.extend(hosts::section(report).map(|Section { heading, table, notes }| {
        let table = table.map(|table| scrolling(&table, &heading));
        PagePart::new("hosts", &heading, table.into_iter().chain([said(&notes, "notes")]).collect())
    }));
    parts.extend(negotiated::section(strata).map(|Section { heading, notes, .. }| {
        PagePart::new("negotiated", &heading, vec![said(&notes, "notes")])
    }));
    parts.push(again(report));
    parts
}

/// The study, its numbers next to those of this run, and its conclusions.
pub(super) fn published(report: &RunReport<'_>) -> Option<PagePart> {
    let StudyView { told, answer, compared, conclusions, others, background, .. } =
        published::of_report(report)?;
    let content = |Section { heading, table, notes }: &Section| {
        let table = table.as_ref().map(|table| scrolling(table, heading));
        let notes = (!notes.is_empty()).then(|| said(notes, "notes"));
        table.into_iter().chain(notes).collect::<Vec<_>>()
    };
    let titled = |section: &Section| {
        let title = Element::new("h3").text(flowing(&section.heading));
        [title].into_iter().chain(content(section)).collect::<Vec<_>>()
    };
    let folded = |section: &Section| {
        let summary = Element::new("summary").text(flowing(&section.heading));
        Element::new("details").child(summary).children(content(section))
    };
    let story: Vec<&str> = told.notes.iter().map(|sentence| sentence.text.as_str()).collect();
    let mut elements = vec![paragraph("prose", &story.join(" ")), said(&[answer], "notes")];
    elements.extend(compared.iter().chain([&conclusions]).flat_map(titled));
    elements.extend(others.iter().chain([&background]).map(folded));
    Some(PagePart::new("published", "Published and measured", elements))
}

fn environment(report: &RunReport<'_>) -> PagePart {
    let mut content = Vec::new();
    let machine = repeat::machine(report);
    if !machine.is_empty() {
        content.extend([Element::new("h4").text("The machine"), facts(&machine)]);
    }
    for server in repeat::servers(report) {
        content.extend(of_server(&server));
    }
    content.extend([Element::new("h4").text("The run"), facts(&repeat::run(report))]);
    PagePart::new("environment", "Environment", content)
}

fn of_server(server: &ServerFacts) -> Vec<Element> {
    let fact = |name: &str, value: &String| Fact { name: name.to_owned(), value: value.clone() };
    let library = server.tls_library.iter().map(|library| fact("TLS library", library));
    let about: Vec<Fact> = [fact("Version", &server.version)].into_iter().chain(library).collect();
    let mut elements = vec![Element::new("h4").text(format!("The server {}", server.name)), facts(&about)];
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
    PagePart::new("again", "Repeat the run", vec![paragraph("prose", repeat::WHERE), command])
}
