//! Horizontal bars of parts that add up, one for each path.

use ciphertoll_stats::Estimate;

use crate::number::measured_in;
use crate::svg::{
    Anchor, Drawing, Scale, Swatch, across, group, hatch, rect, text, tooltip, whisker, width_of,
};

pub(super) const HEIGHT: f64 = 19.0;
pub(super) const GAP: f64 = 1.5;
/// Even the shortest part is visible.
pub(super) const NARROWEST: f64 = 0.8;
/// Bold letters are wider.
const BOLD: f64 = 1.08;

pub(super) struct StackedBar<'a> {
    pub(super) label: String,
    pub(super) total: &'a Estimate,
    /// In the order in which they add up.
    pub(super) parts: Vec<BarPart>,
}

pub(super) struct BarPart {
    pub(super) size: f64,
    pub(super) class: &'static str,
    /// The first name that fits is shown inside; none in a hatched part.
    pub(super) names: Vec<String>,
    pub(super) tooltip: String,
    pub(super) is_hatched: bool,
}

/// The position of the names of parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BarNames {
    Centred,
    /// At the left, and the total has a tooltip.
    Left,
}

/// Draws the bars over their axis, each with the interval of its total. `unit` is a divisor and its name.
pub(super) fn draw(drawing: &mut Drawing, bars: &[StackedBar<'_>], unit: (f64, &str), names: BarNames) {
    let highest = bars.iter().map(|bar| bar.total.high()).fold(0.0, f64::max);
    let axis = Scale::linear((0.0, highest / unit.0), (0.0, drawing.width() - 8.0));
    let at = |value: f64| axis.at(value / unit.0);
    for StackedBar { label, total, parts } in bars {
        let measured = measured_in(unit, total);
        drawing.caption(label, &measured, "");
        let top = drawing.advance(HEIGHT + 13.0);
        let mut spent = 0.0;
        for part in parts {
            let left = at(spent);
            spent += part.size;
            drawing.mark(part.drawn(left, top, (at(spent) - left - GAP).max(NARROWEST), names));
        }
        let interval = whisker(at(total.low()), at(total.high()), top + HEIGHT + 5.0, "total");
        drawing.mark(match names {
            BarNames::Centred => interval,
            BarNames::Left => group("mark").child(tooltip(format!("total: {measured}"))).child(interval),
        });
    }
    drawing.behind(across(&axis, (0.0, drawing.bottom()), drawing.width(), unit.1.trim()));
    drawing.advance(16.0);
}

impl BarPart {
    pub(super) fn drawn(&self, left: f64, top: f64, width: f64, names: BarNames) -> crate::markup::Element {
        let part =
            group("mark").child(tooltip(&self.tooltip)).child(rect(left, top, width, HEIGHT, self.class));
        if self.is_hatched {
            return part.child(hatch(left, top, width, HEIGHT, "hatch"));
        }
        let (x, anchor, wider) = match names {
            BarNames::Centred => (left + width / 2.0, Anchor::Middle, BOLD),
            BarNames::Left => (left + 6.0, Anchor::Start, 1.0),
        };
        match self.names.iter().find(|name| width_of(name) * wider < width) {
            Some(name) => part.child(text(x, top + 13.5, anchor, "inside", name)),
            None => part,
        }
    }
}

pub(super) fn swatch(class: &str, label: &str, is_hatched: bool) -> Swatch {
    if is_hatched { Swatch::hatched(class, label, "hatch") } else { Swatch::filled(class, label) }
}
