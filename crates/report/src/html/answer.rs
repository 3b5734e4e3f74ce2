//! The first screen: the advice and its cost in words.

use ciphertoll_stats::CellAnalysis;

use super::{flowing, said};
use crate::RunReport;
use crate::markup::Element;
use crate::view::advice::{self, Advice};
use crate::view::{SentenceGroup, StratumView, verdicts};

pub(super) fn section(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Element {
    let heading = |text: &str| Element::new("h2").with("id", "answer-heading").text(flowing(text));
    let section = |class: &str| {
        Element::new("section").class(class).with("id", "answer").with("aria-labelledby", "answer-heading")
    };
    let Some(advice) = advice::advice(strata) else {
        let groups = verdicts::groups(report, strata);
        // The banner above says why.
        let words = if groups.is_empty() { "No answer yet" } else { "What this run says" };
        return section("answer")
            .child(heading(words))
            .children(groups.iter().flat_map(|said| group(said, "h3")));
    };
    let (chosen, rest) = split(report, strata, &advice);
    let is_alone = rest.is_empty();
    let chosen =
        Element::new("div").class("chosen").children(chosen.iter().flat_map(|said| group(said, "h3")));
    let answer = section(if is_alone { "answer" } else { "answer two" })
        .child(heading(&format!("Switch on {}", advice.choice)))
        .child(why(&advice))
        .child(chosen);
    if is_alone {
        return answer;
    }
    let rest = Element::new("div")
        .class("rest")
        .child(Element::new("h3").text("Other comparisons"))
        .children(rest.iter().flat_map(|said| group(said, "h4")));
    answer.child(rest)
}

/// The reason for the advice, and what would save most of the cost.
fn why(advice: &Advice) -> Element {
    let why = Element::new("p").class("why").text(flowing(&advice.why));
    match advice.saving {
        Some(saving) => why.text(" ").child(Element::new("strong").text(flowing(saving))),
        None => why,
    }
}

/// The sentences about the advised path, and all others.
fn split(
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    advice: &Advice,
) -> (Vec<SentenceGroup>, Vec<SentenceGroup>) {
    let is_about = |stratum: &StratumView<'_>, cell: &CellAnalysis| advice::is_about(advice, stratum, cell);
    (
        verdicts::groups_of(report, strata, is_about),
        verdicts::groups_of(report, strata, |stratum, cell| !is_about(stratum, cell)),
    )
}

/// The sentences under their context, a heading of the level `heading`.
fn group(group: &SentenceGroup, heading: &'static str) -> Vec<Element> {
    let heading = group.heading.as_ref().map(|text| Element::new(heading).text(flowing(text)));
    heading.into_iter().chain([said(&group.sentences, "")]).collect()
}
