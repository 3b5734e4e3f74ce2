//! One self-contained page: no network, no framework, no web font. It is complete without its script, on paper, and for
//! readers who cannot see its charts.

mod answer;
mod measured;
mod observation;
mod page;
mod part;
mod record;
mod table;
mod what_if;
mod words;

pub use self::observation::observation_html;

use self::page::{SCRIPT, SCRIPT_SHA256};
use self::part::{PagePart, flowing, paragraph, said};
use crate::RunReport;
use crate::markup::Element;
use crate::view::{self, StratumView};

/// The report as one self-contained page.
pub fn html(report: &RunReport<'_>) -> String {
    let strata = view::strata(report);
    let title = title(report);
    page::document(&title, &[SCRIPT_SHA256, what_if::SCRIPT_SHA256], body(report, &strata, &title))
}

/// The title of every report; a run that repeats a study names it first.
fn title(report: &RunReport<'_>) -> String {
    let title = view::verdicts::title(report);
    match view::published::study(report) {
        Some(study) => format!("Repeat of the published study {}. {title}", study.name),
        None => title,
    }
}

fn body(report: &RunReport<'_>, strata: &[StratumView<'_>], title: &str) -> Element {
    let details = words::part(report, strata)
        .into_iter()
        .chain(measured::parts(strata))
        .chain(measured::connect_costs(report))
        .chain(measured::round_trips(report))
        .chain(measured::crossed(strata))
        .chain(record::parts(report, strata));
    let banner = view::verdicts::banner(report, strata);
    let header = Element::new("header")
        .child(paragraph("brand", &format!("ciphertoll report · {}", report.run)))
        .child(Element::new("h1").text(flowing(title)))
        .children((!banner.is_empty()).then(|| Element::new("div").class("banner").child(said(&banner, ""))));
    let what_if = what_if::part(report);
    let scripts = [SCRIPT].into_iter().chain(what_if.is_some().then_some(what_if::SCRIPT));
    let scripts = scripts.map(|script| Element::new("script").verbatim(script));
    let main = Element::new("main")
        .with("id", "main")
        .with("tabindex", "-1")
        .children(record::published(report).map(PagePart::open))
        .child(answer::section(report, strata))
        .children(what_if.map(PagePart::open))
        .child(page::details(details));
    Element::new("body")
        .child(Element::new("a").class("skip").with("href", "#main").text("Skip to the answer"))
        .child(header)
        .child(main)
        .child(Element::new("footer").text(view::caveats::footer(report)))
        .children(scripts)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    use super::page::STYLE;
    use super::*;

    #[test]
    fn the_policy_allows_these_scripts_and_no_other() {
        let scripts =
            [("script.js", SCRIPT, SCRIPT_SHA256), ("what-if.js", what_if::SCRIPT, what_if::SCRIPT_SHA256)];
        for (file, script, allowed) in scripts {
            let hash = STANDARD.encode(Sha256::digest(script.as_bytes()));
            assert_eq!(allowed, format!("sha256-{hash}"), "{file} has changed: change SCRIPT_SHA256, too");
        }
    }

    #[test]
    fn what_is_embedded_cannot_end_its_element() {
        assert!([SCRIPT, what_if::SCRIPT, STYLE].iter().all(|text| !text.contains("</")));
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"), "nothing is loaded");
    }
}
