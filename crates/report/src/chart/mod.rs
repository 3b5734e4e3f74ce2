//! The charts of a report, drawn from the same numbers as its tables. Each comes with a table of its numbers, for readers
//! who cannot see it or want exact values.

mod blocks;
mod connect_cost;
mod cpu;
mod crossings;
mod forest;
mod percentiles;
mod phases;
mod rates;
mod round_trips;

use ciphertoll_model::{Arm, Metric};
use ciphertoll_stats::{CellAnalysis, Comparison, Estimate};

use crate::markup::Element;
use crate::number::{is_certain, measured, quantity, uncertainty};
use crate::view::{Column, ColumnKind, Overflow, Sentence, StratumView, Table, TableEntry};

pub(crate) use blocks::ratios_by_block;
pub(crate) use connect_cost::of_servers as connect_costs;
pub(crate) use crossings::of_report as crossings;
pub(crate) use forest::tone_class;
pub(crate) use rates::{Rates, of_sweeps as rates};
pub(crate) use round_trips::of_loads as round_trips;

/// A chart with its explanation and its numbers.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Unique in the page.
    pub(crate) id: String,
    pub(crate) heading: String,
    /// How to read it.
    pub(crate) reading: String,
    pub(crate) picture: Element,
    pub(crate) numbers: Table,
    pub(crate) notes: Vec<Sentence>,
}

/// Every chart of a stratum that its numbers allow: first those of levels, then those of ratios. `id` is the stratum's.
pub(crate) fn of_stratum(stratum: &StratumView<'_>, id: &str) -> [Vec<Figure>; 2] {
    let levels = [phases::figure(stratum, id), percentiles::figure(stratum, id), cpu::figure(stratum, id)];
    let ratios = [forest::figure(stratum, id), blocks::figure(stratum, id)];
    [levels.into_iter().flatten().collect(), ratios.into_iter().flatten().collect()]
}

const TOTAL_WHISKER: &str = "the whisker is the 95 % interval of the total";

/// The explanation of the whiskers, if any of the estimates has one.
fn whiskers<'a>(
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
fn comparison_label(stratum: &StratumView<'_>, comparison: &Comparison) -> String {
    match comparison.arm {
        Arm::Main => stratum.row_label(&comparison.cell),
        Arm::Repeat => format!("{} again (A/A)", stratum.baseline_label()),
    }
}

fn level(cell: &CellAnalysis, metric: Metric) -> Option<&Estimate> {
    cell.metrics.get(&metric).filter(|estimate| is_certain(estimate))
}

/// `plain 197 µs ±1.8 %; tls1.3-p256 612 µs ±1.8 %`: the text alternative of a chart.
fn in_words(stratum: &StratumView<'_>, metric: Metric) -> String {
    let words = |cell: &CellAnalysis| {
        Some(format!("{} {}", stratum.row_label(cell), measured(metric, level(cell, metric)?)))
    };
    stratum.cells().filter_map(words).collect::<Vec<_>>().join("; ")
}

/// The table under a chart: a row for each cell that has any of `metrics`.
fn table_of(stratum: &StratumView<'_>, metrics: &[Metric]) -> Table {
    let entry = |cell: &CellAnalysis, metric: Metric| match level(cell, metric) {
        Some(estimate) => {
            let value = std::iter::once(quantity(metric, estimate.value));
            let has_interval = stratum.shows_interval(estimate);
            TableEntry::new(value.chain(has_interval.then(|| uncertainty(metric, estimate))))
        }
        None => TableEntry::absent(),
    };
    let seen = |metric: &&Metric| stratum.cells().any(|cell| level(cell, **metric).is_some());
    let metrics: Vec<Metric> = metrics.iter().filter(seen).copied().collect();
    let row = |cell: &CellAnalysis| {
        let entries = metrics.iter().map(|metric| entry(cell, *metric));
        std::iter::once(TableEntry::new([stratum.row_label(cell)])).chain(entries).collect()
    };
    let factors: Vec<&str> = stratum.rows.iter().map(|factor| factor.label()).collect();
    let columns = metrics.iter().map(|metric| Column::new(ColumnKind::Level, metric.title()));
    let has_any = |cell: &&CellAnalysis| metrics.iter().any(|metric| level(cell, *metric).is_some());
    Table {
        columns: std::iter::once(Column::new(ColumnKind::Label, &factors.join(", ")))
            .chain(columns)
            .collect(),
        rows: stratum.cells().filter(has_any).map(row).collect(),
        overflow: Overflow::SplitKinds,
    }
}

/// The largest upper limit of `metrics` among the cells: the end of an axis.
fn highest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::high).fold(0.0, f64::max)
}

/// The smallest lower limit.
fn lowest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::low).fold(f64::INFINITY, f64::min)
}
