//! The pictures of a report: what is compared, drawn from the same numbers as its tables. Each comes
//! with the table of its numbers, for who cannot see it or wants to know exactly.

mod blocks;
mod connect_cost;
mod cpu;
mod crossings;
mod forest;
mod percentiles;
mod phases;
mod rates;
mod round_trips;

use ciphertoll_model::Metric;
use ciphertoll_stats::assemble::Trials;
use ciphertoll_stats::{CellAnalysis, Estimate};

use crate::markup::Element;
use crate::number::{is_certain, measured, quantity, uncertainty};
use crate::view::{Column, Entry, Overflow, Part, Statement, StratumView, Table};

pub(crate) use blocks::ratios_by_block;
pub(crate) use connect_cost::of_servers as connect_costs;
pub(crate) use crossings::of_report as crossings;
pub(crate) use forest::tone_class;
pub(crate) use rates::{Rates, of_families as rates};
pub(crate) use round_trips::of_loads as round_trips;

/// A picture, what is needed to read it, and its numbers.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Unique in the page.
    pub(crate) id: String,
    /// What it shows.
    pub(crate) heading: String,
    /// How to read it.
    pub(crate) reading: String,
    /// The picture.
    pub(crate) picture: Element,
    /// The numbers in it.
    pub(crate) numbers: Table,
    /// What is worth saying about it.
    pub(crate) notes: Vec<Statement>,
}

/// Every picture of a stratum that its numbers allow, `id` being the stratum's: first those of what was
/// reached, then those of what was compared.
pub(crate) fn of_stratum(stratum: &StratumView<'_>, trials: &Trials<'_>, id: &str) -> [Vec<Figure>; 2] {
    let levels = [phases::figure(stratum, id), percentiles::figure(stratum, id), cpu::figure(stratum, id)];
    let tolls = [forest::figure(stratum, id), blocks::figure(stratum, trials, id)];
    [levels.into_iter().flatten().collect(), tolls.into_iter().flatten().collect()]
}

/// What the whisker under a bar is.
const TOTAL_WHISKER: &str = "the whisker is the 95 % interval of the total";

/// What whiskers are, where any of the estimates has one.
fn whiskers<'a>(
    estimates: impl IntoIterator<Item = &'a Estimate>,
    what_they_are: &'static str,
) -> &'static str {
    if estimates.into_iter().any(|estimate| estimate.interval().is_some()) {
        what_they_are
    } else {
        "there are no intervals below 6 blocks"
    }
}

/// What the second copy of the baseline is called.
fn repeat_label(stratum: &StratumView<'_>) -> String {
    format!("{} again (A/A)", stratum.baseline_label())
}

fn level(cell: &CellAnalysis, metric: Metric) -> Option<&Estimate> {
    cell.metrics.get(&metric).filter(|estimate| is_certain(estimate))
}

/// `plain 197 µs ±1.8 %; tls1.3-p256 612 µs ±1.8 %`: a picture in words.
fn in_words(stratum: &StratumView<'_>, metric: Metric) -> String {
    let words = |cell: &CellAnalysis| {
        Some(format!("{} {}", stratum.row_label(cell), measured(metric, level(cell, metric)?)))
    };
    stratum.cells().filter_map(words).collect::<Vec<_>>().join("; ")
}

/// The table under a picture: a row for each cell that has any of `metrics`.
fn table_of(stratum: &StratumView<'_>, metrics: &[Metric]) -> Table {
    let entry = |cell: &CellAnalysis, metric: Metric| match level(cell, metric) {
        Some(estimate) => {
            let value = std::iter::once(quantity(metric, estimate.value));
            let told = stratum.tells_interval(estimate);
            Entry::new(value.chain(told.then(|| uncertainty(metric, estimate))))
        }
        None => Entry::absent(),
    };
    let seen = |metric: &&Metric| stratum.cells().any(|cell| level(cell, **metric).is_some());
    let metrics: Vec<Metric> = metrics.iter().filter(seen).copied().collect();
    let row = |cell: &CellAnalysis| {
        let entries = metrics.iter().map(|metric| entry(cell, *metric));
        std::iter::once(Entry::new([stratum.row_label(cell)])).chain(entries).collect()
    };
    let factors: Vec<&str> = stratum.rows.iter().map(|factor| factor.label()).collect();
    let columns = metrics.iter().map(|metric| Column::new(Part::Level, metric.title()));
    let has_any = |cell: &&CellAnalysis| metrics.iter().any(|metric| level(cell, *metric).is_some());
    Table {
        columns: std::iter::once(Column::new(Part::Label, &factors.join(", "))).chain(columns).collect(),
        rows: stratum.cells().filter(has_any).map(row).collect(),
        overflow: Overflow::SplitParts,
    }
}

/// The largest upper limit of `metrics` among the cells: where an axis ends.
fn highest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::high).fold(0.0, f64::max)
}

/// The smallest lower limit.
fn lowest(stratum: &StratumView<'_>, metrics: &[Metric]) -> f64 {
    let cells = stratum.cells().flat_map(|cell| metrics.iter().filter_map(|metric| level(cell, *metric)));
    cells.map(Estimate::low).fold(f64::INFINITY, f64::min)
}
