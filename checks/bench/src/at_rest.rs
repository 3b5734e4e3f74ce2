//! Compares the cost of encryption at rest as measured by `pgbench` and by the native driver, on the same clusters and in
//! the same blocks.

use anyhow::{Context, Result};
use ciphertoll_model::{
    AtRest, Baseline, Clients, Driver, Engine, Grid, Metric, Path, Plan, Scale, ServerLevel, Size, Spec,
    StealLimit, Workload,
};
use ciphertoll_stats::{Analysis, CellAnalysis, Estimate, analyse};

use crate::real::RealRuns;

const CLIENTS: u16 = 2;
/// Six blocks were too few on a shared machine.
const BLOCKS: u32 = 16;
/// Maximum ratio between the limits of a useful interval.
const TOO_WIDE: f64 = 1.5;

/// The cost of one level, measured with two drivers.
#[derive(Clone, Debug)]
pub struct DriverComparison {
    pub workload: Workload,
    pub level: AtRest,
    /// Throughput with the native driver, as a share of that without encryption.
    pub native: Estimate,
    pub pgbench: Estimate,
}

impl DriverComparison {
    /// Whether both intervals are narrow enough.
    pub fn is_precise(&self) -> bool {
        [&self.native, &self.pgbench].iter().all(|estimate| estimate.high() / estimate.low() <= TOO_WIDE)
    }

    /// Whether both intervals together explain the difference.
    pub fn agrees(&self) -> bool {
        let half = |estimate: &Estimate| (estimate.high() / estimate.low()).ln() / 2.0;
        let apart = (self.native.value / self.pgbench.value).ln().abs();
        apart <= half(&self.native).hypot(half(&self.pgbench))
    }
}

/// Measures each of `levels` in one run on a private PostgreSQL, and compares the drivers for all levels but `none`.
pub fn compare_drivers(
    runs: &RealRuns,
    levels: &[AtRest],
    max_steal: StealLimit,
    seed: u64,
) -> Result<Vec<DriverComparison>> {
    let plan = Plan::new(&Spec { max_steal, ..spec(levels)? }, seed)?;
    let events = runs.carry_out(&plan, None)?;
    let analysis = analyse(&plan, &events);
    let treatments = analysis.cells().into_iter().filter(|cell| analysis.comparison_of(cell).is_some());
    let native = treatments.filter(|cell| cell.cell.treatment.driver == Driver::Native);
    native.map(|cell| comparison_of(&analysis, cell)).collect()
}

fn comparison_of(analysis: &Analysis, native: &CellAnalysis) -> Result<DriverComparison> {
    let (workload, level) = (native.cell.workload, native.cell.treatment.at_rest);
    let is_other = |cell: &CellAnalysis| {
        cell.cell.workload == workload
            && cell.cell.treatment.at_rest == level
            && cell.cell.treatment.driver != Driver::Native
    };
    let mut cells = analysis.cells().into_iter();
    let other = cells.find(|cell| is_other(cell)).context("pgbench was not measured")?;
    let rate = |cell: &CellAnalysis| {
        let ratio = analysis.comparison_of(cell).and_then(|of| of.ratios.get(&Metric::RatePerS));
        let voided = || cell.voided.iter().map(|trial| trial.reason.to_string()).collect::<Vec<_>>();
        ratio
            .map(|ratio| ratio.ratio)
            .with_context(|| format!("no results for {}: {}", cell.id.0, voided().join("; ")))
    };
    Ok(DriverComparison { workload, level, native: rate(native)?, pgbench: rate(other)? })
}

fn spec(levels: &[AtRest]) -> Result<Spec> {
    let grid = Grid {
        server: vec![ServerLevel::of(Engine::Postgres)],
        path: vec![Path::Plain],
        driver: vec![Driver::Native, "pgbench".parse()?],
        at_rest: levels.to_vec(),
        workload: vec!["select-only".parse()?, "tpcb-like".parse()?],
        clients: Clients::new(CLIENTS).into_iter().collect(),
        scale: vec![Scale::DEFAULT.in_whole_branches().into()],
        ..Grid::default()
    };
    let baseline = Some(Baseline::AtRest(AtRest::None));
    Ok(Spec {
        name: "at-rest".to_owned(),
        size: Size::Standard,
        blocks: Some(BLOCKS),
        baseline,
        grids: vec![grid],
        ..Spec::quick(&[])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, ci_low: f64, ci_high: f64) -> Estimate {
        Estimate { value, ci_low: Some(ci_low), ci_high: Some(ci_high), blocks: 8 }
    }

    #[test]
    fn drivers_agree_if_their_intervals_explain_the_difference() {
        let views = |pgbench| DriverComparison {
            workload: "select-only".parse().unwrap(),
            level: AtRest::Gocryptfs,
            native: estimate(0.9, 0.88, 0.92),
            pgbench,
        };
        assert!(views(estimate(0.91, 0.89, 0.93)).agrees());
        // The intervals touch, and the difference is too large for both together.
        assert!(!views(estimate(0.94, 0.919, 0.962)).agrees());
        let wide = views(estimate(0.7, 0.4, 1.2));
        assert!(wide.agrees() && !wide.is_precise() && views(estimate(0.91, 0.89, 0.93)).is_precise());
    }

    #[test]
    fn both_drivers_measure_every_level_in_the_same_run() {
        let plan = Plan::new(&spec(&[AtRest::None, AtRest::Gocryptfs]).unwrap(), 1).unwrap();
        assert_eq!((plan.cells.len(), plan.strata.len(), plan.skipped.len()), (8, 4, 0));
    }
}
