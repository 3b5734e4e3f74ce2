//! What all pages share: style, script, security policy, and the folded details.

use super::part::PagePart;
use crate::markup::Element;

pub(super) const STYLE: &str = include_str!("assets/style.css");
pub(super) const SCRIPT: &str = include_str!("assets/script.js");
/// The hash of [`SCRIPT`] for the content security policy: no script without one may run. A test recomputes it.
pub(super) const SCRIPT_SHA256: &str = "sha256-Vbq3vxJ3J5AKL3T9gQaBsMYOnWPPFxPEjHbuPxOUNTQ=";

/// A page whose policy allows the scripts with these hashes.
pub(super) fn document(title: &str, scripts: &[&str], body: Element) -> String {
    let page = Element::new("html").with("lang", "en").child(head(title, scripts)).child(body);
    format!("<!DOCTYPE html>\n{}\n", page.render())
}

fn head(title: &str, scripts: &[&str]) -> Element {
    let scripts: Vec<String> = scripts.iter().map(|hash| format!("'{hash}'")).collect();
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {}; base-uri 'none'; form-action 'none'",
        scripts.join(" ")
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

/// The evidence, for a reader who checks it or builds on it.
pub(super) fn details(parts: impl Iterator<Item = PagePart>) -> Element {
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
