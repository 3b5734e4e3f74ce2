//! A stratum of a run as its sentences and tables need it.

use std::collections::BTreeMap;

use ciphertoll_model::{Cell, Driver, Factor, Metric, Pace, ServerLevel, Stratum, Workload};
use ciphertoll_stats::{CellAnalysis, Comparison, Estimate, PairedRatio, StratumAnalysis};

use super::table::TableEntry;
use crate::number::{is_certain, quantity, uncertainty};
use crate::{RunReport, names};

/// A stratum with everything that its sentences and tables need.
pub(crate) struct StratumView<'a> {
    pub(crate) report: &'a RunReport<'a>,
    pub(crate) plan: &'a Stratum,
    pub(crate) baseline: &'a CellAnalysis,
    /// By metric, as a share.
    pub(crate) noise_floor: &'a BTreeMap<Metric, f64>,
    pub(crate) treatments: Vec<&'a Comparison>,
    pub(crate) repeat: Option<&'a Comparison>,
    /// The factors that name a row.
    pub(crate) rows: Vec<Factor>,
}

impl<'a> StratumView<'a> {
    /// Every cell, the baseline first.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &'a CellAnalysis> {
        std::iter::once(self.baseline).chain(self.treatments.iter().map(|comparison| &comparison.cell))
    }

    /// The rows of a table: the baseline, then every comparison with its cell.
    pub(crate) fn table_rows(&self) -> impl Iterator<Item = (&'a CellAnalysis, Option<&'a Comparison>)> {
        let treatments = self.treatments.iter().map(|comparison| (&comparison.cell, Some(*comparison)));
        std::iter::once((self.baseline, None)).chain(treatments)
    }

    /// Every comparison, the A/A comparison last.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = &'a Comparison> {
        self.treatments.iter().copied().chain(self.repeat)
    }

    /// The finite noise floor of a metric, as a share.
    pub(crate) fn noise_floor_of(&self, metric: Metric) -> Option<f64> {
        self.noise_floor.get(&metric).copied().filter(|floor| floor.is_finite())
    }

    pub(crate) fn cell(&self) -> &'a Cell {
        &self.baseline.cell
    }

    /// Whether any cell has enough blocks for an interval. If none has, the headings say so.
    pub(crate) fn has_intervals(&self) -> bool {
        self.cells().any(|cell| cell.metrics.values().any(|estimate| estimate.interval().is_some()))
    }

    /// Whether a table shows the interval of a value, or that it has none.
    pub(crate) fn shows_interval(&self, estimate: &Estimate) -> bool {
        estimate.interval().is_some() || self.has_intervals()
    }

    /// The measured value and, if the table shows it, its uncertainty.
    pub(crate) fn level_entry(&self, cell: &CellAnalysis, metric: Metric) -> TableEntry {
        level(cell, metric).map_or_else(TableEntry::absent, |estimate| {
            let uncertainty = self.shows_interval(estimate).then(|| uncertainty(metric, estimate));
            TableEntry::new([quantity(metric, estimate.value)].into_iter().chain(uncertainty))
        })
    }

    pub(crate) fn row_label(&self, cell: &CellAnalysis) -> String {
        names::row_label(&cell.cell, &self.rows)
    }

    pub(crate) fn baseline_label(&self) -> String {
        self.row_label(self.baseline)
    }

    /// `tls1.3-p256, connect at 1 client`.
    pub(crate) fn cell_name(&self, cell: &CellAnalysis) -> String {
        format!("{}, {}", self.row_label(cell), self.name())
    }

    /// The factors in the heading above its sentences.
    pub(crate) fn heading_factors(&self) -> Vec<Factor> {
        names::context_factors(self.report.plan, self.plan, &self.rows)
    }

    pub(crate) fn name(&self) -> String {
        names::stratum(self.report.plan, self.plan, &self.rows)
    }
}

pub(crate) fn strata<'a>(report: &'a RunReport<'a>) -> Vec<StratumView<'a>> {
    let RunReport { plan, analysis, .. } = *report;
    let view = |(number, (stratum, analysed)): (usize, (&'a Stratum, &'a StratumAnalysis))| StratumView {
        report,
        plan: stratum,
        baseline: &analysed.baseline,
        noise_floor: &analysed.noise_floor,
        treatments: analysis.treatments(number).collect(),
        repeat: analysis.repeat(number),
        rows: names::row_factors(plan, stratum),
    };
    plan.strata.iter().zip(&analysis.strata).enumerate().map(view).collect()
}

/// The measured value of `metric`, if it can be printed.
pub(crate) fn level(cell: &CellAnalysis, metric: Metric) -> Option<&Estimate> {
    cell.metrics.get(&metric).filter(|estimate| is_certain(estimate))
}

/// Whether `cell` runs `workload` on `server` by our own client in a closed loop. In an open loop, latencies include
/// waiting, and phases do not add up to them.
pub(crate) fn is_plain_load(cell: &Cell, server: &ServerLevel, workload: Workload) -> bool {
    cell.treatment.server == *server
        && cell.workload == workload
        && cell.pace == Pace::Closed
        && cell.treatment.driver == Driver::Native
}

/// The ratio in `metric`, if it can be printed.
pub(crate) fn certain_ratio(comparison: &Comparison, metric: Metric) -> Option<&PairedRatio> {
    comparison.ratios.get(&metric).filter(|ratio| is_certain(&ratio.ratio))
}
