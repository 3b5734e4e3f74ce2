//! Shapes of charts, with fixed decimals so that the same numbers give the same bytes. Colours are classes with values for
//! each theme in the style sheet.

mod axis;
mod drawing;
mod scale;

pub(crate) use axis::{across, upright};
pub(crate) use drawing::{Drawing, Swatch};
pub(crate) use scale::Scale;

use std::fmt::Write as _;

use crate::markup::Element;

/// Every chart is drawn twice, because its text must neither shrink on a phone nor grow on a desktop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChartWidth {
    /// For a phone, and half a page of paper.
    Narrow,
    /// For the full width of a desktop.
    Wide,
}

/// From one line of text to the next.
pub(crate) const LINE: f64 = 17.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The shapes of dots: colour is never the only difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
    Ring,
}

impl ChartWidth {
    pub(crate) const ALL: [Self; 2] = [Self::Narrow, Self::Wide];

    /// The width of a chart in its own units.
    pub(crate) fn units(self) -> f64 {
        match self {
            Self::Narrow => 420.0,
            Self::Wide => 1_040.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Narrow => "chart narrow",
            Self::Wide => "chart wide",
        }
    }
}

impl Shape {
    pub(crate) const ALL: [Self; 6] =
        [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::Wedge, Self::Ring];
}

/// A coordinate: one decimal, no negative zero, no `.0`.
pub(crate) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A generous estimate of the width of a text, because the reader's font is unknown.
pub(crate) fn width_of(text: &str) -> f64 {
    const PER_CHARACTER: f64 = 7.3;
    text.chars().count() as f64 * PER_CHARACTER
}

pub(crate) fn group(class: &str) -> Element {
    Element::new("g").class(class)
}

pub(crate) fn tooltip(text: impl Into<String>) -> Element {
    Element::new("title").text(text)
}

pub(crate) fn text(x: f64, y: f64, anchor: Anchor, class: &str, content: impl Into<String>) -> Element {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    Element::new("text")
        .class(class)
        .with("x", coordinate(x))
        .with("y", coordinate(y))
        .with("text-anchor", anchor)
        .text(content)
}

pub(crate) fn rect(left: f64, top: f64, width: f64, height: f64, class: &str) -> Element {
    Element::new("rect")
        .class(class)
        .with("x", coordinate(left))
        .with("y", coordinate(top))
        .with("width", coordinate(width.max(0.0)))
        .with("height", coordinate(height.max(0.0)))
}

pub(crate) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> Element {
    Element::new("line")
        .class(class)
        .with("x1", coordinate(from.0))
        .with("y1", coordinate(from.1))
        .with("x2", coordinate(to.0))
        .with("y2", coordinate(to.1))
}

pub(crate) fn polyline(points: &[(f64, f64)], class: &str) -> Element {
    let points: Vec<String> =
        points.iter().map(|(x, y)| format!("{},{}", coordinate(*x), coordinate(*y))).collect();
    Element::new("polyline").class(class).with("points", points.join(" "))
}

/// Slanted lines within a box, for areas that must differ without colour. Not an SVG pattern, whose id must be unique in
/// the page.
pub(crate) fn hatch(left: f64, top: f64, width: f64, height: f64, class: &str) -> Element {
    const STEP: f64 = 5.0;
    let count = ((width.max(0.0) + height) / STEP).ceil() as u32;
    let mut path = String::new();
    // Writing to a string cannot fail.
    for sum in (1..count).map(|index| f64::from(index) * STEP) {
        let (from, to) = ((sum - height).max(0.0), sum.min(width));
        let _ = write!(
            path,
            "M{} {}L{} {}",
            coordinate(left + from),
            coordinate(top + sum - from),
            coordinate(left + to),
            coordinate(top + sum - to)
        );
    }
    Element::new("path").class(class).with("d", path)
}

/// A horizontal interval with caps.
pub(crate) fn whisker(low: f64, high: f64, y: f64, class: &str) -> Element {
    const CAP: f64 = 4.0;
    if (high - low).abs() < f64::EPSILON {
        return no_whisker();
    }
    let path = format!(
        "M{low} {top}V{bottom}M{low} {y}H{high}M{high} {top}V{bottom}",
        low = coordinate(low),
        high = coordinate(high),
        y = coordinate(y),
        top = coordinate(y - CAP),
        bottom = coordinate(y + CAP),
    );
    Element::new("path").class(format!("whisker {class}")).with("d", path)
}

/// Without an interval both limits equal the value.
fn no_whisker() -> Element {
    group("no-interval")
}

/// A vertical interval with caps.
pub(crate) fn upright_whisker(x: f64, low: f64, high: f64, class: &str) -> Element {
    const CAP: f64 = 3.0;
    if (high - low).abs() < f64::EPSILON {
        return no_whisker();
    }
    let path = format!(
        "M{left} {low}H{right}M{x} {low}V{high}M{left} {high}H{right}",
        low = coordinate(low),
        high = coordinate(high),
        x = coordinate(x),
        left = coordinate(x - CAP),
        right = coordinate(x + CAP),
    );
    Element::new("path").class(format!("whisker {class}")).with("d", path)
}

/// A dot of some shape around a point.
pub(crate) fn dot(shape: Shape, (x, y): (f64, f64), class: &str) -> Element {
    const RADIUS: f64 = 4.2;
    let polygon = |corners: &[(f64, f64)]| {
        let points: Vec<String> = corners
            .iter()
            .map(|(right, down)| {
                format!("{},{}", coordinate(x + right * RADIUS), coordinate(y + down * RADIUS))
            })
            .collect();
        Element::new("polygon").with("points", points.join(" "))
    };
    let circle = || {
        Element::new("circle")
            .with("cx", coordinate(x))
            .with("cy", coordinate(y))
            .with("r", coordinate(RADIUS))
    };
    let dot = match shape {
        Shape::Circle => circle(),
        Shape::Ring => return circle().class(format!("dot ring {class}")),
        Shape::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        Shape::Triangle => polygon(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
        Shape::Diamond => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        Shape::Wedge => polygon(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)]),
    };
    dot.class(format!("dot {class}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_carry_no_noise() {
        let texts = [0.1 + 0.2, -0.04, 12.0, 419.96, -3.25].map(coordinate);
        assert_eq!(texts, ["0.3", "0", "12", "420", "-3.2"]);
    }

    #[test]
    fn every_shape_is_another() {
        let drawn: std::collections::BTreeSet<String> =
            Shape::ALL.into_iter().map(|shape| dot(shape, (10.0, 10.0), "a").render()).collect();
        assert_eq!(drawn.len(), Shape::ALL.len());
    }
}
