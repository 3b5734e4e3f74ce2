//! The first screen, for a reader who decides: the cost in one sentence, one picture, and what to do.

use super::part::{flowing, paragraph, tone_words};
use super::table::scrolling;
use crate::RunReport;
use crate::lists::distinct;
use crate::markup::Element;
use crate::view::advice::{self, Advice};
use crate::view::decision::{self, Decision};
use crate::view::headline::{certainty, headline};
use crate::view::{StratumView, Table, Tone, key_exchange, matrix, profile};

pub(super) fn section(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Element {
    const HEADING: &str = "answer-heading";
    let advice = advice::advice(strata);
    let sentence = headline(report, strata, advice.as_ref());
    let key_exchange = key_exchange::sentences(report, strata);
    let picture = matrix::table(strata);
    // The banner above says why.
    let sentence = sentence.unwrap_or_else(|| match picture {
        Some(_) => "No verdict yet".to_owned(),
        None => "No answer yet".to_owned(),
    });
    Element::new("section")
        .class("answer")
        .with("id", "answer")
        .with("aria-labelledby", HEADING)
        .child(Element::new("h2").with("id", HEADING).text(flowing(&sentence)))
        .children(key_exchange.iter().map(|sentence| paragraph("prose", &sentence.text)))
        .children(profile::sentences(report).iter().map(|sentence| paragraph("prose", &sentence.text)))
        .children(certainty(report, strata).map(|certainty| sure(&certainty)))
        .child(
            Element::new("div")
                .class("screen")
                .children(picture.iter().map(in_colour))
                .children(what_to_do(report, advice.as_ref())),
        )
}

fn sure(certainty: &str) -> Element {
    let link = Element::new("a").with("href", "#how-far-to-trust-this").text("How far to trust this");
    Element::new("p").class("muted").text(flowing(certainty)).text(" ").child(link).text(".")
}

/// The matrix and the meaning of its marks.
fn in_colour(table: &Table) -> Element {
    let tones = distinct(table.rows.iter().flatten().map(|entry| entry.tone));
    let meaning = |tone: &Tone| {
        let words = tone_words(*tone)?.to_lowercase();
        let sign = Element::new("span").class("sign").text(tone.mark());
        Some(Element::new("li").class(tone.class()).child(sign).text(" ").text(words))
    };
    let legend = Element::new("ul").class("legend").children(tones.iter().filter_map(meaning));
    let caption = "Cost of each configuration (rows) under each load (columns), compared with the baseline";
    Element::new("div").class("picture matrix").child(scrolling(table, caption)).child(legend)
}

/// The decision of the cost model, or the advice from the verdicts if the run lacks its terms.
fn what_to_do(report: &RunReport<'_>, advice: Option<&Advice>) -> Option<Element> {
    let decisions = decision::decisions(report);
    let content: Vec<Element> = if decisions.is_empty() {
        advice.map(advised)?
    } else {
        decisions.iter().flat_map(decided).collect()
    };
    let heading = Element::new("h3").text("What to do");
    Some(Element::new("div").class("todo").child(heading).children(content))
}

fn decided(decision: &Decision) -> Vec<Element> {
    let choice = Element::new("strong").text(flowing(&decision.choice));
    let mut paragraph = Element::new("p").class("prose");
    if let Some(server) = &decision.server {
        paragraph = paragraph.text(format!("{server}: "));
    }
    let saving = |saving: &String| Element::new("li").text(flowing(saving));
    let savings = Element::new("ul").class("savings").children(decision.savings.iter().map(saving));
    let savings = (!decision.savings.is_empty()).then_some(savings);
    [paragraph.child(choice)].into_iter().chain(savings).collect()
}

fn advised(advice: &Advice) -> Vec<Element> {
    let choice = Element::new("strong").text(flowing(&format!("Switch on {}.", advice.choice)));
    let why = Element::new("p").class("prose").child(choice).text(" ").text(flowing(&advice.why));
    [why].into_iter().chain(advice.saving.map(|saving| paragraph("prose", saving))).collect()
}
