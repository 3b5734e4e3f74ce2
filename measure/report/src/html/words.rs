//! Every comparison as a sentence, those about the advised path first.

use ciphertoll_stats::CellAnalysis;

use super::part::{PagePart, flowing, said};
use crate::RunReport;
use crate::markup::Element;
use crate::view::{SentenceGroup, StratumView, advice, verdicts};

pub(super) fn part(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Option<PagePart> {
    let content = match advice::advice(strata) {
        None => verdicts::groups(report, strata).iter().flat_map(|all| group(all, "h4")).collect(),
        Some(advice) => {
            let is_about =
                |stratum: &StratumView<'_>, cell: &CellAnalysis| advice::is_about(&advice, stratum, cell);
            let chosen = verdicts::groups_of(report, strata, is_about);
            let rest = verdicts::groups_of(report, strata, |stratum, cell| !is_about(stratum, cell));
            let mut content = vec![block("chosen", &advice.choice, &chosen)];
            content.extend((!rest.is_empty()).then(|| block("rest", "Other comparisons", &rest)));
            content
        }
    };
    (!content.is_empty()).then(|| PagePart::new("words", "Every comparison in words", content))
}

fn block(class: &'static str, heading: &str, groups: &[SentenceGroup]) -> Element {
    let heading = Element::new("h4").text(flowing(heading));
    Element::new("div").class(class).child(heading).children(groups.iter().flat_map(|said| group(said, "h5")))
}

/// The sentences under their context.
fn group(group: &SentenceGroup, heading: &'static str) -> Vec<Element> {
    let heading = group.heading.as_ref().map(|text| Element::new(heading).text(flowing(text)));
    heading.into_iter().chain([said(&group.sentences, "")]).collect()
}
