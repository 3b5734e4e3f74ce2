//! A chart with its explanation and numbers, and what charts share.

use ciphertoll_model::{Arm, Metric};
use ciphertoll_stats::{CellAnalysis, Comparison, Estimate};

use crate::markup::Element;
use crate::names;
use crate::number::measured;
use crate::svg::{ChartWidth, Drawing, Shape, dot, group, tooltip, upright_whisker};
use crate::view::{Column, ColumnKind, Sentence, StratumView, Table, level};

/// A chart with its explanation and its numbers.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Unique in the page.
    pub(crate) id: String,
    pub(crate) heading: String,
    /// How to read it.
    pub(crate) reading: String,
    /// The same picture in each width; the style sheet shows one.
    pub(crate) pictures: [Element; 2],
    pub(crate) numbers: Table,
    pub(crate) notes: Vec<Sentence>,
}

/// The picture in each width, with its name and its text alternative.
pub(super) fn pictures(
    id: &str,
    title: &str,
    description: &str,
    draw: impl Fn(&mut Drawing),
) -> [Element; 2] {
    ChartWidth::ALL.map(|width| {
        let mut drawing = Drawing::new(width);
        draw(&mut drawing);
        drawing.finish(id, title, description)
    })
}

pub(super) const TOTAL_WHISKER: &str = "the whisker is the 95 % interval of the total";

/// The explanation of the whiskers, if any of the estimates has one.
pub(super) fn whiskers<'a>(
    estimates: impl IntoIterator<Item = &'a Estimate>,
    explanation: &'static str,
) -> &'static str {
    if estimates.into_iter().any(|estimate| estimate.interval().is_some()) {
        explanation
    } else {
        "there are no intervals below 6 blocks"
    }
}

/// The name of a comparison among those of its stratum.
pub(super) fn comparison_label(stratum: &StratumView<'_>, comparison: &Comparison) -> String {
    match comparison.arm {
        Arm::Main => stratum.row_label(&comparison.cell),
        Arm::Repeat => format!("{} again (A/A)", stratum.baseline_label()),
    }
}

/// `plain 197 µs ±1.8 %; tls1.3-p256 612 µs ±1.8 %`: the text alternative of a chart.
pub(super) fn in_words(stratum: &StratumView<'_>, metric: Metric) -> String {
    let words = |cell: &CellAnalysis| {
        Some(format!("{} {}", stratum.row_label(cell), measured(metric, level(cell, metric)?)))
    };
    stratum.cells().filter_map(words).collect::<Vec<_>>().join("; ")
}

/// The table under a chart: a row for each cell that has any of `metrics`.
pub(super) fn table_of(stratum: &StratumView<'_>, metrics: &[Metric]) -> Table {
    let seen = |metric: &&Metric| stratum.cells().any(|cell| level(cell, **metric).is_some());
    let metrics: Vec<Metric> = metrics.iter().filter(seen).copied().collect();
    let row = |cell: &CellAnalysis| {
        (stratum.row_label(cell), metrics.iter().map(|metric| stratum.level_entry(cell, *metric)).collect())
    };
    let columns = metrics.iter().map(|metric| Column::new(ColumnKind::Level, metric.title()));
    let has_any = |cell: &&CellAnalysis| metrics.iter().any(|metric| level(cell, *metric).is_some());
    Table::new(&names::factors(&stratum.rows), columns, stratum.cells().filter(has_any).map(row))
}

/// The largest upper limit of `metrics` among the cells: the end of an axis.
pub(super) fn highest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::high).fold(0.0, f64::max)
}

/// The smallest lower limit.
pub(super) fn lowest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::low).fold(f64::INFINITY, f64::min)
}

/// Shape and colour, unique for 36 series. `first` is the number of the first colour.
pub(super) fn series_look(index: usize, first: usize) -> (Shape, String) {
    let all = Shape::ALL.len();
    (Shape::ALL[index % all], format!("series-{}", (index + first + index / all) % all + 1))
}

/// A point of a line with its vertical interval and its tooltip.
pub(super) fn point_of_line(
    (x, y): (f64, f64),
    interval: (f64, f64),
    look: &(Shape, String),
    said: String,
) -> Element {
    let (shape, colour) = look;
    let whisker = upright_whisker(x, interval.0, interval.1, colour);
    group("point").child(tooltip(said)).child(whisker).child(dot(*shape, (x, y), colour))
}

/// Moves blocks of these heights so that they neither overlap nor end below `bottom`. `places` ascend.
pub(super) fn apart(places: &[f64], heights: &[f64], bottom: f64) -> Vec<f64> {
    let mut moved = places.to_vec();
    for index in 1..moved.len() {
        moved[index] = moved[index].max(moved[index - 1] + heights[index - 1]);
    }
    // Push back from the bottom.
    let mut limit = bottom;
    for (place, height) in moved.iter_mut().zip(heights).rev() {
        *place = place.min(limit - height);
        limit = *place;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_names_do_not_meet_and_stay_inside() {
        assert_eq!(apart(&[20.0, 28.0, 90.0], &[30.0, 45.0, 30.0], 335.0), [20.0, 50.0, 95.0]);
        assert_eq!(apart(&[315.0, 320.0], &[30.0, 30.0], 335.0), [275.0, 305.0]);
    }

    #[test]
    fn no_two_of_many_series_look_alike() {
        let looks: Vec<(Shape, String)> = (0..36).map(|index| series_look(index, 0)).collect();
        assert!(looks.iter().enumerate().all(|(index, look)| !looks[..index].contains(look)));
    }
}
