//! One self-contained page: no network, no framework, no web font. It is complete without its script, on paper, and for
//! readers who cannot see its charts.

mod answer;
mod measured;
mod part;
mod record;
mod table;
mod what_if;
mod words;

use self::part::{PagePart, flowing, paragraph, said};
use crate::RunReport;
use crate::markup::Element;
use crate::view::{self, StratumView};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
/// The hash of [`SCRIPT`] for the content security policy: no script without one may run. A test recomputes it.
const SCRIPT_SHA256: &str = "sha256-Vbq3vxJ3J5AKL3T9gQaBsMYOnWPPFxPEjHbuPxOUNTQ=";

/// The report as one self-contained page.
pub fn html(report: &RunReport<'_>) -> String {
    let strata = view::strata(report);
    let title = title(report);
    let page =
        Element::new("html").with("lang", "en").child(head(&title)).child(body(report, &strata, &title));
    format!("<!DOCTYPE html>\n{}\n", page.render())
}

/// The title of every report; a run that repeats a study names it first.
fn title(report: &RunReport<'_>) -> String {
    let title = view::verdicts::title(report);
    match view::published::study(report) {
        Some(study) => format!("Repeat of the published study {}. {title}", study.name),
        None => title,
    }
}

fn head(title: &str) -> Element {
    let what_if = what_if::SCRIPT_SHA256;
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_SHA256}' '{what_if}'; base-uri 'none'; \
         form-action 'none'"
    );
    let meta =
        |name: &'static str, content: &str| Element::new("meta").with("name", name).with("content", content);
    Element::new("head")
        .child(Element::new("meta").with("charset", "utf-8"))
        .child(Element::new("meta").with("http-equiv", "Content-Security-Policy").with("content", policy))
        .child(meta("viewport", "width=device-width, initial-scale=1"))
        .child(meta("generator", "ciphertoll"))
        .child(Element::new("title").text(title))
        .child(Element::new("style").verbatim(STYLE))
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
        .child(engineering(details));
    Element::new("body")
        .child(Element::new("a").class("skip").with("href", "#main").text("Skip to the answer"))
        .child(header)
        .child(main)
        .child(Element::new("footer").text(view::caveats::footer(report)))
        .children(scripts)
}

/// The evidence, for a reader who checks it or builds on it.
fn engineering(parts: impl Iterator<Item = PagePart>) -> Element {
    const HEADING: &str = "details-heading";
    // The script shows the button.
    let button = Element::new("button").with("type", "button").with("data-opens", "").with("hidden", "");
    Element::new("section")
        .class("part")
        .with("id", "details")
        .with("aria-labelledby", HEADING)
        .child(Element::new("h2").with("id", HEADING).text("Details"))
        .child(button.text("Open all"))
        .children(parts.map(PagePart::folded))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

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
