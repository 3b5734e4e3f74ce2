//! A chart under construction, row by row.

use super::{Anchor, LINE, WIDTH, coordinate, hatch, rect, text, width_of};
use crate::markup::Element;

/// Grows downwards. The background may be added last.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    behind: Vec<Element>,
    marks: Vec<Element>,
    bottom: f64,
}

#[derive(Debug)]
pub(crate) struct Swatch {
    /// The mark, drawn around the middle of a box of 14 by 12 whose corner is at the origin.
    pub(crate) marks: Vec<Element>,
    pub(crate) label: String,
}

impl Drawing {
    /// The top of the next row.
    pub(crate) fn bottom(&self) -> f64 {
        self.bottom
    }

    /// Reserves `height` for the caller.
    pub(crate) fn advance(&mut self, height: f64) -> f64 {
        let top = self.bottom;
        self.bottom += height;
        top
    }

    pub(crate) fn mark(&mut self, mark: Element) {
        self.marks.push(mark);
    }

    pub(crate) fn behind(&mut self, mark: Element) {
        self.behind.push(mark);
    }

    /// A name on the left and its value on the right, in one line if it fits.
    pub(crate) fn caption(&mut self, name: &str, value: &str, tone: &str) {
        self.lines(name, "name");
        if !value.is_empty() {
            let last = name_lines(name).last().map_or(0.0, |line| width_of(line));
            if last + width_of(value) + LINE > WIDTH {
                self.bottom += LINE;
            }
            self.mark(text(WIDTH, self.bottom - 4.0, Anchor::End, &format!("value {tone}"), value));
        }
    }

    pub(crate) fn lines(&mut self, content: &str, class: &str) {
        for line in name_lines(content) {
            self.bottom += LINE;
            self.mark(text(0.0, self.bottom - 4.0, Anchor::Start, class, line));
        }
    }

    pub(crate) fn key(&mut self, swatches: impl IntoIterator<Item = Swatch>) {
        const BOX: f64 = 18.0;
        const GAP: f64 = 12.0;
        let mut left = 0.0;
        let mut top = self.advance(LINE + 4.0) + 6.0;
        for Swatch { marks, label } in swatches {
            let width = BOX + width_of(&label);
            if left > 0.0 && left + width > WIDTH {
                left = 0.0;
                self.bottom += LINE;
                top += LINE;
            }
            let place = format!("translate({} {})", coordinate(left), coordinate(top));
            let entry = Element::new("g").class("key").with("transform", place).children(marks);
            self.mark(entry.child(text(BOX, 10.0, Anchor::Start, "tick", label)));
            left += width + GAP;
        }
    }

    /// The chart with a name and a text alternative.
    pub(crate) fn finish(self, id: &str, title: &str, description: &str) -> Element {
        let (title_id, description_id) = (format!("{id}-title"), format!("{id}-desc"));
        let height = self.bottom.ceil() + 2.0;
        let text = |name: &'static str, id: &str, text: &str| Element::new(name).with("id", id).text(text);
        Element::new("svg")
            .class("chart")
            .with("viewBox", format!("0 0 {} {}", coordinate(WIDTH), coordinate(height)))
            .with("role", "img")
            .with("aria-labelledby", format!("{title_id} {description_id}"))
            .child(text("title", &title_id, title))
            .child(text("desc", &description_id, description))
            .children(self.behind)
            .children(self.marks)
    }
}

impl Swatch {
    pub(crate) fn filled(class: &str, label: impl Into<String>) -> Self {
        Self { marks: vec![rect(0.0, 0.0, 13.0, 12.0, class)], label: label.into() }
    }

    /// A filled box with slanted lines.
    pub(crate) fn hatched(class: &str, label: impl Into<String>, lines: &str) -> Self {
        let mut swatch = Self::filled(class, label);
        swatch.marks.push(hatch(0.0, 0.0, 13.0, 12.0, lines));
        swatch
    }

    pub(crate) fn drawn(mark: Element, label: impl Into<String>) -> Self {
        Self { marks: vec![mark], label: label.into() }
    }
}

fn name_lines(text: &str) -> Vec<String> {
    crate::terminal::wrap(text, (WIDTH / width_of("x")) as usize)
}
