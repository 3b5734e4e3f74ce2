//! A chart under construction, row by row.

use super::{Anchor, ChartWidth, LINE, coordinate, hatch, rect, text, width_of};
use crate::markup::Element;

/// Grows downwards. The background may be added last.
#[derive(Debug)]
pub(crate) struct Drawing {
    width: ChartWidth,
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

/// Bold letters are wider.
const BOLD: f64 = 1.08;
/// Between a caption and the marks below it: letters like p and g reach below their line.
const CAPTION_GAP: f64 = 4.0;

impl Drawing {
    pub(crate) fn new(width: ChartWidth) -> Self {
        Self { width, behind: Vec::new(), marks: Vec::new(), bottom: 0.0 }
    }

    pub(crate) fn width(&self) -> f64 {
        self.width.units()
    }

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

    /// A name and its value above the marks of a row, in one line if they fit. On a wide chart the value follows its name,
    /// because the eye would lose the line on the way to the right edge.
    pub(crate) fn caption(&mut self, name: &str, value: &str, tone: &str) {
        self.lines(name, "name");
        if !value.is_empty() {
            let last = self.name_lines(name).last().map_or(0.0, |line| width_of(line)) * BOLD;
            if last + width_of(value) + LINE > self.width() {
                self.bottom += LINE;
            }
            let (x, anchor) = match self.width {
                ChartWidth::Narrow => (self.width(), Anchor::End),
                ChartWidth::Wide => (last + LINE, Anchor::Start),
            };
            self.mark(text(x, self.bottom - 4.0, anchor, &format!("value {tone}"), value));
        }
        self.bottom += CAPTION_GAP;
    }

    pub(crate) fn lines(&mut self, content: &str, class: &str) {
        for line in self.name_lines(content) {
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
            if left > 0.0 && left + width > self.width() {
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
        let id = match self.width {
            ChartWidth::Narrow => id.to_owned(),
            ChartWidth::Wide => format!("{id}-wide"),
        };
        let (title_id, description_id) = (format!("{id}-title"), format!("{id}-desc"));
        let height = self.bottom.ceil() + 2.0;
        let text = |name: &'static str, id: &str, text: &str| Element::new(name).with("id", id).text(text);
        Element::new("svg")
            .class(self.width.class())
            .with("viewBox", format!("0 0 {} {}", coordinate(self.width()), coordinate(height)))
            .with("role", "img")
            .with("aria-labelledby", format!("{title_id} {description_id}"))
            .child(text("title", &title_id, title))
            .child(text("desc", &description_id, description))
            .children(self.behind)
            .children(self.marks)
    }

    fn name_lines(&self, text: &str) -> Vec<String> {
        crate::terminal::wrap(text, (self.width() / width_of("x")) as usize)
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
