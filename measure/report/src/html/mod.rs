//! One self-contained page: no network, no framework, no web font. It is complete without its script, on paper, and for
//! readers who cannot see its charts.

mod answer;
mod measured;
mod record;
mod table;
mod what_if;
mod words;

use crate::RunReport;
use crate::markup::Element;
use crate::terminal::unbreakable;
use crate::view::{self, Sentence, StratumView, Tone};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
/// The hash of [`SCRIPT`] for the content security policy: no script without one may run. A test recomputes it.
const SCRIPT_SHA256: &str = "sha256-Vbq3vxJ3J5AKL3T9gQaBsMYOnWPPFxPEjHbuPxOUNTQ=";

/// A part of the page under a heading.
struct PagePart {
    /// Unique in the page.
    id: String,
    heading: String,
    content: Vec<Element>,
}

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

impl PagePart {
    fn new(id: &str, heading: &str, content: Vec<Element>) -> Self {
        Self { id: id.to_owned(), heading: heading.to_owned(), content }
    }

    fn open(self) -> Element {
        let heading = format!("{}-heading", self.id);
        Element::new("section")
            .class("part")
            .with("id", self.id)
            .with("aria-labelledby", heading.clone())
            .child(Element::new("h2").with("id", heading).text(flowing(&self.heading)))
            .children(self.content)
    }

    /// The anchor is inside: a browser that follows a link to it opens the part.
    fn folded(self) -> Element {
        let summary = Element::new("summary").child(Element::new("h3").text(flowing(&self.heading)));
        let content = Element::new("div").with("id", self.id).children(self.content);
        Element::new("details").class("part").child(summary).child(content)
    }
}

/// Sentences as a list, each after its mark.
fn said(sentences: &[Sentence], class: &str) -> Element {
    let item = |sentence: &Sentence| {
        let mut item = Element::new("li")
            .class(sentence.tone.class())
            .child(Element::new("span").class("sign").with("aria-hidden", "true").text(sentence.tone.mark()));
        let mut text = Element::new("span");
        if let Some(words) = tone_words(sentence.tone) {
            let words = format!("{words}:");
            text = text.child(Element::new("span").class("visually-hidden").text(words)).text(" ");
        }
        item = item.child(text.text(flowing(&sentence.text)));
        item
    };
    let class = format!("said {class}");
    Element::new("ul").class(class.trim_end()).children(sentences.iter().map(item))
}

/// The mark as text for screen readers.
fn tone_words(tone: Tone) -> Option<&'static str> {
    Some(match tone {
        Tone::Neutral => return None,
        Tone::Caution => "Caution",
        Tone::Same => "No difference",
        Tone::Negligible => "Negligible",
        Tone::Unsure => "Inconclusive",
        Tone::Better => "Lower cost",
        Tone::Worse => "Higher cost",
    })
}

fn paragraph(class: &str, text: &str) -> Element {
    Element::new("p").class(class).text(flowing(text))
}

/// Text that does not break between a number and its unit or within an interval.
fn flowing(text: &str) -> String {
    const DASH: &str = "\u{2013}";
    const UNBROKEN_DASH: &str = "\u{2013}\u{2060}";
    let unbroken = |word: &String| word.replace(' ', "\u{a0}").replace(DASH, UNBROKEN_DASH);
    unbreakable(text).iter().map(unbroken).collect::<Vec<_>>().join(" ")
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

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(flowing("costs 3.11 × the time: 612 µs"), "costs 3.11\u{a0}× the time: 612\u{a0}µs");
        assert_eq!(flowing("of plain (0.97–1.77)"), "of plain (0.97–\u{2060}1.77)");
    }
}
