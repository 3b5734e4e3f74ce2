//! The parts of a page, and the sentences in them.

use crate::markup::Element;
use crate::terminal::unbreakable;
use crate::view::{Sentence, Tone};

/// A part of the page under a heading.
pub(super) struct PagePart {
    /// Unique in the page.
    pub(super) id: String,
    pub(super) heading: String,
    pub(super) content: Vec<Element>,
}

impl PagePart {
    pub(super) fn new(id: &str, heading: &str, content: Vec<Element>) -> Self {
        Self { id: id.to_owned(), heading: heading.to_owned(), content }
    }

    pub(super) fn open(self) -> Element {
        let heading = format!("{}-heading", self.id);
        Element::new("section")
            .class("part")
            .with("id", self.id)
            .with("aria-labelledby", heading.clone())
            .child(Element::new("h2").with("id", heading).text(flowing(&self.heading)))
            .children(self.content)
    }

    /// The anchor is inside: a browser that follows a link to it opens the part.
    pub(super) fn folded(self) -> Element {
        let summary = Element::new("summary").child(Element::new("h3").text(flowing(&self.heading)));
        let content = Element::new("div").with("id", self.id).children(self.content);
        Element::new("details").class("part").child(summary).child(content)
    }
}

/// Sentences as a list, each after its mark.
pub(super) fn said(sentences: &[Sentence], class: &str) -> Element {
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

pub(super) fn paragraph(class: &str, text: &str) -> Element {
    Element::new("p").class(class).text(flowing(text))
}

/// Text that does not break between a number and its unit or within an interval.
pub(super) fn flowing(text: &str) -> String {
    const DASH: &str = "\u{2013}";
    const UNBROKEN_DASH: &str = "\u{2013}\u{2060}";
    let unbroken = |word: &String| word.replace(' ', "\u{a0}").replace(DASH, UNBROKEN_DASH);
    unbreakable(text).iter().map(unbroken).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_with_their_units() {
        assert_eq!(flowing("costs 3.11 × the time: 612 µs"), "costs 3.11\u{a0}× the time: 612\u{a0}µs");
        assert_eq!(flowing("of plain (0.97–1.77)"), "of plain (0.97–\u{2060}1.77)");
    }
}
