//! Pairs of real runs: `compare` must rarely report a regression between identical runs, and must usually report one if
//! the second run was slowed down.

use anyhow::{Context, Result};
use ciphertoll_experiment::Injection;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Grid, Link, LinkShape, Metric, Path, Plan, ServerKey, Size, Spec, TimestampedEvent, TlsVersion, Workload,
};
use ciphertoll_stats::{Change, ChangeVerdict, ComparedRun, RunComparison, compare};

use crate::real::RealRuns;

/// The injected slowdown: TLS connects that do their work twice, as a share of all.
pub const SLOWDOWN: f64 = 0.05;
/// The path that is slowed down and compared.
const SLOWED: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);
/// With a long link, connects mostly wait, as in practice. The processor speed of a shared machine varies by more than the
/// slowdown, which could not be detected in CPU time alone.
const RTT_US: u32 = 5_000;
pub const TIME: Metric = Metric::LatencyNsMean;
const WINDOW: Span = Span::from_millis(400);
const BLOCKS: u32 = 8;
/// Maximum false alarms in 20 identical pairs. At 5 %, half of which are improvements, the probability of more is less
/// than 1 in 500.
const MAX_CALLED_OF_20: u32 = 3;
/// Minimum detections in 20 slowed pairs.
const MIN_FOUND_OF_20: u32 = 16;

#[derive(Clone, Debug)]
pub struct FinishedRun {
    plan: Plan,
    events: Vec<TimestampedEvent>,
}

/// Two runs, compared with the same base run.
#[derive(Clone, Debug)]
pub struct RunPair {
    pub identical: RunComparison,
    /// Compared with a run whose TLS connects took longer by [`SLOWDOWN`].
    pub slowed: RunComparison,
}

impl FinishedRun {
    /// Compares plain connects with TLS 1.3 connects. Each run has another random order, as runs of a user have.
    pub fn carry_out(runs: &RealRuns, seed: u64, injection: Option<Injection>) -> Result<Self> {
        let plan = Plan::new(&spec(), seed)?;
        let events = runs.carry_out(&plan, injection)?;
        Ok(Self { plan, events })
    }

    fn compare_with(&self, base: &Self) -> RunComparison {
        let [base, new] = [base, self].map(|Self { plan, events }| ComparedRun { plan, events });
        compare(&base, &new)
    }
}

impl RunPair {
    /// Also returns the identical run, which is the base of the next pair. Odd pairs run the slowed run first, so that
    /// drift of the machine favours neither.
    pub fn carry_out(
        runs: &RealRuns,
        base: &FinishedRun,
        number: u32,
        seed: u64,
    ) -> Result<(Self, FinishedRun)> {
        let injection = Some(Injection::into_path(SLOWED, SLOWDOWN));
        let run = |offset: u64, injection| {
            FinishedRun::carry_out(runs, seed + u64::from(number) * 2 + offset, injection)
        };
        let (identical, slowed) = if number.is_multiple_of(2) {
            let identical = run(0, None)?;
            (identical, run(1, injection)?)
        } else {
            let slowed = run(1, injection)?;
            (run(0, None)?, slowed)
        };
        let pair = Self { identical: identical.compare_with(base), slowed: slowed.compare_with(base) };
        Ok((pair, identical))
    }
}

/// Whether any metric has a regression, for which `ciphertoll compare` exits with 3.
pub fn is_called_regression(comparison: &RunComparison) -> bool {
    comparison.changes.iter().any(|change| change.verdict == ChangeVerdict::Regression)
}

/// The change of [`TIME`]; only one cell has it.
pub fn time(comparison: &RunComparison) -> Option<&Change> {
    comparison.changes.iter().find(|change| change.metric == TIME)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectionCounts {
    pub pairs: u32,
    /// Identical pairs with a reported regression.
    pub called: u32,
    /// Slowed pairs with a reported regression.
    pub found: u32,
}

impl DetectionCounts {
    /// Fails if a comparison lacks [`TIME`], because no result is not a correct result.
    pub fn add(&mut self, identical: &RunComparison, slowed: &RunComparison) -> Result<()> {
        time(identical).context("the identical runs have no comparison of the latency")?;
        time(slowed).context("the slowed run and its base have no comparison of the latency")?;
        self.pairs += 1;
        self.called += u32::from(is_called_regression(identical));
        self.found += u32::from(is_called_regression(slowed));
        Ok(())
    }

    /// Maximum false alarms: 3 in 20, rounded down.
    pub fn max_called(&self) -> u32 {
        self.pairs * MAX_CALLED_OF_20 / 20
    }

    /// Minimum detections: 16 in 20, rounded up.
    pub fn min_found(&self) -> u32 {
        (self.pairs * MIN_FOUND_OF_20).div_ceil(20)
    }

    pub fn is_sound(&self) -> bool {
        self.called <= self.max_called() && self.found >= self.min_found()
    }
}

fn spec() -> Spec {
    let grid = Grid {
        path: vec![Path::Plain, SLOWED],
        workload: vec![Workload::Connect],
        link: vec![Link::Emulated(LinkShape::of_rtt_us(RTT_US))],
        ..Grid::default()
    };
    Spec {
        name: "pair".to_owned(),
        size: Size::Standard,
        blocks: Some(BLOCKS),
        trial_time: Some(WINDOW),
        grids: vec![grid],
        ..Spec::quick(&[])
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_stats::Estimate;

    use super::*;

    /// A comparison with these verdicts for latency and CPU time.
    fn verdicts(time: ChangeVerdict, cpu: ChangeVerdict) -> RunComparison {
        let id = Plan::new(&spec(), 1).unwrap().cells[1].id();
        let estimate = Estimate { value: 1.0, ci_low: Some(0.9), ci_high: Some(1.1), blocks: 8 };
        let change = |(metric, verdict)| Change {
            id: id.clone(),
            compared_with: id.clone(),
            factor: None,
            metric,
            base: estimate,
            new: estimate,
            ratio: estimate,
            p_adjusted: 0.5,
            verdict,
        };
        let changes = [(Metric::CpuUsPerOpTotal, cpu), (TIME, time)].map(change);
        RunComparison { changes: changes.into(), only_in_base: Vec::new(), only_in_new: Vec::new() }
    }

    const SAME: ChangeVerdict = ChangeVerdict::SameWithin { margin: 0.05 };
    const WORSE: ChangeVerdict = ChangeVerdict::Regression;

    #[test]
    fn the_plan_has_two_cells_and_one_comparison() {
        let plan = Plan::new(&spec(), 1).unwrap();
        assert_eq!(
            plan.cells.iter().map(|cell| cell.treatment.path).collect::<Vec<_>>(),
            [Path::Plain, SLOWED]
        );
        assert_eq!((plan.strata.len(), plan.counted_blocks()), (1, BLOCKS));
    }

    #[test]
    fn a_regression_of_any_metric_counts() {
        let mut counts = DetectionCounts::default();
        counts.add(&verdicts(SAME, WORSE), &verdicts(SAME, SAME)).unwrap();
        assert_eq!(counts, DetectionCounts { pairs: 1, called: 1, found: 0 });
        counts.add(&verdicts(SAME, SAME), &verdicts(SAME, WORSE)).unwrap();
        assert_eq!(counts, DetectionCounts { pairs: 2, called: 1, found: 1 });
    }

    #[test]
    fn a_missing_comparison_is_an_error() {
        let silent = RunComparison { changes: Vec::new(), only_in_base: Vec::new(), only_in_new: Vec::new() };
        let mut counts = DetectionCounts::default();
        assert!(counts.add(&silent, &verdicts(WORSE, SAME)).is_err());
        assert!(counts.add(&verdicts(SAME, SAME), &silent).is_err());
        assert_eq!(counts, DetectionCounts::default());
    }

    #[test]
    fn the_bounds_scale_with_the_number_of_pairs() {
        let bounds = |pairs| {
            let counts = DetectionCounts { pairs, ..DetectionCounts::default() };
            (counts.max_called(), counts.min_found())
        };
        assert_eq!([20, 40, 5, 3].map(bounds), [(3, 16), (6, 32), (0, 4), (0, 3)]);
        let sound = |called, found| DetectionCounts { pairs: 20, called, found }.is_sound();
        assert!(sound(3, 16) && !sound(4, 16) && !sound(3, 15));
    }
}
