//! The first screen, for a reader who decides: the cost in one sentence, one picture, and what to do.

use super::part::{flowing, paragraph};
use super::table::scrolling;
use crate::RunReport;
use crate::markup::Element;
use crate::view::advice::{self, Advice};
use crate::view::decision::{self, Decision};
use crate::view::headline::headline;
use crate::view::{StratumView, Table, Tone, certainty, key_exchange, matrix, profile};

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
        .child(
            Element::new("div")
                .class("screen")
                .children(picture.iter().map(|table| in_colour(table, strata)))
                .children(what_to_do(report, advice.as_ref())),
        )
        .child(sure(report, strata))
        .children(certainty::machine(report).map(|machine| paragraph("muted", &machine.text)))
}

fn sure(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Element {
    let sentence = Element::new("p").class("muted").text(flowing(&certainty::how_sure(report, strata)));
    if !report.has_numbers() {
        return sentence;
    }
    let link = Element::new("a").with("href", "#how-far-to-trust-this").text("How far to trust this");
    sentence.text(" ").child(link).text(".")
}

/// The matrix and the meaning of its marks.
fn in_colour(table: &Table, strata: &[StratumView<'_>]) -> Element {
    let meaning = |(tone, words): (Tone, &'static str)| {
        let sign = Element::new("span").class("sign").text(tone.mark());
        Element::new("li").class(tone.class()).child(sign).text(" ").text(words)
    };
    let reading = matrix::reading(strata).map(|reading| Element::new("li").text(flowing(&reading)));
    let meanings = matrix::legend(table).into_iter().map(meaning);
    let legend = Element::new("ul").class("legend").children(meanings).children(reading);
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
