//! Groups cells into comparisons.

use super::Baseline;
use super::parts::{Stratum, Unlike};
use crate::cell::Cell;
use crate::factor::Factor;

impl Unlike {
    fn is_of(&self, cell: &Cell) -> bool {
        (&self.driver, self.workload) == (&cell.treatment.driver, cell.workload)
    }

    /// Whether the cells have the same workload by name, but do different things.
    fn parts(&self, cell: &Cell, other: &Cell) -> bool {
        let same_name = cell.workload == other.workload && cell.treatment.driver != other.treatment.driver;
        same_name && (self.is_of(cell) || self.is_of(other))
    }

    /// Whether it affects a comparison of these cells.
    pub(super) fn concerns(&self, cells: &[Cell]) -> bool {
        cells.iter().any(|cell| self.is_of(cell))
            && cells.iter().any(|cell| cell.workload == self.workload && !self.is_of(cell))
    }
}

/// Groups cells by the cell they are compared with.
pub(super) fn grouped(
    cells: &[Cell],
    baseline: &Baseline,
    factor: Option<Factor>,
    unlike: &[Unlike],
) -> Vec<Stratum> {
    let mut strata: Vec<Stratum> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let is_like = |other: &usize| !unlike.iter().any(|unlike| unlike.parts(cell, &cells[*other]));
        let against = compared_with(cell, cells, baseline).filter(is_like).unwrap_or(index);
        let position = strata.iter().position(|stratum| stratum.baseline == against).unwrap_or_else(|| {
            strata.push(Stratum { baseline: against, treatments: Vec::new(), factor });
            strata.len() - 1
        });
        if against != index {
            strata[position].treatments.push(index);
        }
    }
    strata
}

/// The baseline cell of `cell`. If `cell` builds no TLS context and the baseline does, the first such baseline.
fn compared_with(cell: &Cell, cells: &[Cell], baseline: &Baseline) -> Option<usize> {
    let mut counterpart = baseline.counterpart(cell);
    let any_ctx = counterpart.treatment.path.as_tls().is_some() && cell.treatment.ctx.is_none();
    let found = cells.iter().position(|other| {
        if any_ctx {
            counterpart.treatment.ctx = other.treatment.ctx;
        }
        other.is_asked_as(&counterpart)
    });
    found.or_else(|| first_path(cell, cells, baseline))
}

/// If a server at a URL does not support the baseline's path, its first path is the baseline.
fn first_path(cell: &Cell, cells: &[Cell], baseline: &Baseline) -> Option<usize> {
    let (Baseline::Path(_), Some(_)) = (baseline, &cell.treatment.server.url) else { return None };
    cells.iter().position(|other| {
        let mut like = other.clone();
        (like.treatment.path, like.treatment.ctx) = (cell.treatment.path, cell.treatment.ctx);
        like == *cell
    })
}
