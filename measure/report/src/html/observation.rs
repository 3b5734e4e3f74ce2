//! The page of an observation: what was seen and what to change, then the details.

use ciphertoll_observe::{AddressLabels, Observation, ObservedFinding};

use super::measured::figures;
use super::page::{self, SCRIPT, SCRIPT_SHA256};
use super::part::{PagePart, flowing, paragraph, said};
use super::table::{scrolling, wrapping};
use crate::chart;
use crate::markup::Element;
use crate::observed::words::{headline, limits, place, rest, title, tone};
use crate::observed::{pairs, sections};
use crate::view::{Section, Tone, capital, clean};

/// A page with more is slow to open.
const MOST_ROWS: usize = 200;

/// The observation as one self-contained page.
pub fn observation_html(observation: &Observation) -> String {
    page::document(&title(observation), &[SCRIPT_SHA256], body(observation))
}

fn body(observation: &Observation) -> Element {
    let header = Element::new("header")
        .child(paragraph("brand", &format!("ciphertoll observe · {}", clean(&observation.source))))
        .child(Element::new("h1").text(flowing(&title(observation))));
    let mut main = Element::new("main").with("id", "main").with("tabindex", "-1").child(answer(observation));
    let details = details(observation);
    if !details.is_empty() {
        main = main.child(page::details(details.into_iter()));
    }
    Element::new("body")
        .child(Element::new("a").class("skip").with("href", "#main").text("Skip to the answer"))
        .child(header)
        .child(main)
        .child(Element::new("footer").text(footer(observation)))
        .child(Element::new("script").verbatim(SCRIPT))
}

fn answer(observation: &Observation) -> Element {
    const HEADING: &str = "answer-heading";
    let mut section =
        Element::new("section").class("answer").with("id", "answer").with("aria-labelledby", HEADING).child(
            Element::new("h2").with("id", HEADING).text(flowing(&format!("{}.", headline(observation)))),
        );
    let Section { table, notes, .. } = pairs::section(observation, MOST_ROWS);
    if let Some(table) = table {
        let caption = "Connections of each pair of a client and a server: median over 95th percentile";
        section = section.child(wrapping(&table, caption));
    }
    section = section.children(findings(observation));
    let notes: Vec<_> = notes.into_iter().chain(limits(observation)).collect();
    if !notes.is_empty() {
        section = section.child(said(&notes, "notes"));
    }
    section
}

/// The worst first, each with what to do.
fn findings(observation: &Observation) -> Option<Element> {
    if observation.findings.is_empty() {
        return None;
    }
    let shown = observation.findings.len().min(MOST_ROWS);
    let labels = AddressLabels::of(observation);
    let shown_ones = observation.findings[..shown].iter();
    let list = Element::new("ul").class("said").children(shown_ones.map(|found| finding(found, &labels)));
    let rest = rest(observation.findings.len(), shown, "finding");
    Some(
        Element::new("div")
            .class("todo")
            .child(Element::new("h3").text("What to change, the worst first"))
            .child(list)
            .children(rest.map(|rest| paragraph("muted", &rest.text))),
    )
}

fn finding(finding: &ObservedFinding, labels: &AddressLabels<'_>) -> Element {
    let tone = tone(finding);
    let sign = Element::new("span").class("sign").with("aria-hidden", "true").text(tone.mark());
    let mut text = Element::new("span");
    if tone == Tone::Caution {
        text = text.child(Element::new("span").class("visually-hidden").text("Caution:")).text(" ");
    }
    let text = text
        .child(
            Element::new("strong").text(place(labels.label(&finding.client), labels.label(&finding.server))),
        )
        .text(flowing(&format!(": {}.", clean(&finding.seen))))
        .child(Element::new("br"))
        .child(
            Element::new("span")
                .class("beside")
                .text(flowing(&format!("{}.", capital(&clean(&finding.todo))))),
        );
    Element::new("li").class(tone.class()).child(sign).child(text)
}

fn details(observation: &Observation) -> Vec<PagePart> {
    let phases = chart::observed_phases(observation, MOST_ROWS)
        .map(|figure| PagePart::new("phases", "Connect time", vec![figures(vec![figure])]));
    let before = [
        ("clients", sections::clients(observation, MOST_ROWS)),
        ("encryption", sections::encryption(observation, MOST_ROWS)),
        ("certificates", sections::certificates(observation, MOST_ROWS)),
        ("accepted", sections::accepted(observation, MOST_ROWS)),
    ];
    let after = [
        ("queries", sections::queries(observation, MOST_ROWS)),
        ("logins", sections::logins(observation, MOST_ROWS)),
        ("users", sections::users(observation, MOST_ROWS)),
        ("failures", sections::failures(observation, MOST_ROWS)),
    ];
    before.into_iter().filter_map(tabled).chain(phases).chain(after.into_iter().filter_map(tabled)).collect()
}

fn tabled((id, section): (&str, Option<Section>)) -> Option<PagePart> {
    let Section { heading, table, notes } = section?;
    let table = table.map(|table| scrolling(&table, &heading));
    let notes = (!notes.is_empty()).then(|| said(&notes, "notes"));
    Some(PagePart::new(id, &heading, table.into_iter().chain(notes).collect()))
}

fn footer(observation: &Observation) -> String {
    let began = observation.began_at.as_ref().map(|time| format!("; began at {}", clean(time)));
    format!(
        "ciphertoll {}: observed from outside, by reading packets{}. No text of a statement{} and no password was kept.",
        env!("CARGO_PKG_VERSION"),
        began.unwrap_or_default(),
        if observation.names { "" } else { ", no name of a user or database" },
    )
}
