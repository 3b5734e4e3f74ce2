//! Axes: a thin line and a label for each tick.

use super::{Anchor, Scale, group, line, text, width_of};
use crate::markup::Element;

/// The most labels of a horizontal axis.
const MOST_ACROSS: usize = 6;

/// A horizontal axis under a chart that goes from `top` to `bottom` and is `width` wide; its labels need one line below.
/// `unit` follows the last label.
pub(crate) fn across(scale: &Scale, (top, bottom): (f64, f64), width: f64, unit: &str) -> Element {
    let ticks = scale.ticks(MOST_ACROSS);
    let last = ticks.len().saturating_sub(1);
    let mut axis = group("axis");
    for (index, tick) in ticks.iter().enumerate() {
        let x = scale.at(tick.value);
        let label = if index == last { format!("{} {unit}", tick.label) } else { tick.label.clone() };
        let half = width_of(&label) / 2.0;
        let (place, anchor) = match x {
            x if x + half > width => (width, Anchor::End),
            x if x - half < 0.0 => (0.0, Anchor::Start),
            x => (x, Anchor::Middle),
        };
        axis = axis.child(line((x, top), (x, bottom), "grid")).child(text(
            place,
            bottom + 14.0,
            anchor,
            "tick",
            label.trim_end(),
        ));
    }
    axis
}

/// A vertical axis to the left of a chart that goes from `left` to `right`.
pub(crate) fn upright(scale: &Scale, left: f64, right: f64, most: usize, unit: &str) -> Element {
    /// Closer labels would overlap.
    const NEAREST: f64 = 11.0;
    let mut axis = group("axis");
    let mut named: Option<f64> = None;
    for tick in scale.ticks(most) {
        let y = scale.at(tick.value);
        axis = axis.child(line((left, y), (right, y), "grid"));
        if named.is_some_and(|named| (named - y).abs() < NEAREST) {
            continue;
        }
        named = Some(y);
        let label = format!("{}{unit}", tick.label);
        axis = axis.child(text(left - 6.0, y + 4.0, Anchor::End, "tick", label));
    }
    axis
}
