//! Pairs of real runs: two of the same must seldom be called a regression, one that was slowed down
//! by us must be.

use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_experiment::Injection;
use ciphertoll_model::duration::Span;
use ciphertoll_model::{
    Grid, Link, LinkShape, Metric, Path, Plan, ServerKey, Size, Spec, TimestampedEvent, TlsVersion, Workload,
};
use ciphertoll_stats::{Change, ChangeVerdict, Comparison, Run, analyse, compare};

use crate::real::RealRuns;

/// The planted slowdown, as a share of the time that a TLS connect takes.
pub const SLOWDOWN: f64 = 0.05;
/// The path whose toll is compared.
const SLOWED: Path = Path::tls(TlsVersion::Tls13, ServerKey::P256);
/// What is compared waits for most of its time, as connects do out there: a shared machine's processors run now faster and
/// now slower, by more than what is planted, and nothing can be found in what is theirs alone.
const RTT_US: u32 = 5_000;
/// What a single client is held against.
pub const TIME: Metric = Metric::LatencyNsMean;
const WINDOW: Span = Span::from_millis(400);
const BLOCKS: u32 = 8;
/// Identical pairs in twenty that may be called a regression: at 5 % with half of the false alarms
/// improvements, more are bad luck of less than one in five hundred.
const MOST_CALLED_OF_20: u32 = 3;
/// Slowed pairs in twenty that must be found.
const LEAST_FOUND_OF_20: u32 = 16;

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Ran {
    plan: Plan,
    events: Vec<TimestampedEvent>,
}

/// One base run, and two runs compared with it.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Base against the same again.
    pub identical: Comparison,
    /// Base against one whose TLS connects took longer by `delay`.
    pub slowed: Comparison,
    /// What was planted: [`SLOWDOWN`] of the time that a TLS connect of the base run took.
    pub delay: Duration,
}

impl Ran {
    /// Plain against TLS 1.3 connects. As two runs of a user's, each has an order of its own.
    pub fn carry_out(runs: &RealRuns, seed: u64, injection: Option<Injection>) -> Result<Self> {
        let plan = Plan::new(&spec(), seed)?;
        let events = runs.carry_out(&plan, injection)?;
        Ok(Self { plan, events })
    }

    fn against(&self, base: &Self) -> Comparison {
        let [base, new] = [base, self].map(|Self { plan, events }| Run { plan, events });
        compare(&base, &new)
    }

    fn delay(&self) -> Option<Duration> {
        let analysis = analyse(&self.plan, &self.events);
        let tls = analysis.cells.iter().find(|cell| cell.cell.treatment.path == SLOWED)?;
        let time_ns = tls.metrics.get(&Metric::LatencyNsMean)?.value;
        Some(Duration::from_nanos((time_ns * SLOWDOWN) as u64))
    }
}

impl Pair {
    /// Two more runs, and the identical one, which is the next pair's base. Pairs of an odd `number` run the
    /// slowed one first, so that a machine that changes favours neither.
    pub fn carry_out(runs: &RealRuns, base: &Ran, number: u32, seed: u64) -> Result<(Self, Ran)> {
        let delay = base.delay().context("the base run has no time of a TLS connect")?;
        let injection = Some(Injection::into_path(SLOWED, delay));
        let run =
            |offset: u64, injection| Ran::carry_out(runs, seed + u64::from(number) * 2 + offset, injection);
        let (identical, slowed) = if number.is_multiple_of(2) {
            let identical = run(0, None)?;
            (identical, run(1, injection)?)
        } else {
            let slowed = run(1, injection)?;
            (run(0, None)?, slowed)
        };
        let pair = Self { identical: identical.against(base), slowed: slowed.against(base), delay };
        Ok((pair, identical))
    }
}

/// Whether anything in the comparison is called a regression: what `ciphertoll compare` exits with 3
/// for.
pub fn is_called_regression(comparison: &Comparison) -> bool {
    comparison.changes.iter().any(|change| change.verdict == ChangeVerdict::Regression)
}

/// The change of the time. There is but one cell with a toll.
pub fn time(comparison: &Comparison) -> Option<&Change> {
    comparison.changes.iter().find(|change| change.metric == TIME)
}

/// How often `compare` was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pairs so far.
    pub pairs: u32,
    /// Identical pairs in which anything was called a regression.
    pub called: u32,
    /// Slowed pairs in which anything was, by the same measure.
    pub found: u32,
}

impl Tally {
    /// Counts one more pair. An error where it says nothing of the time: silence is no right answer.
    pub fn add(&mut self, identical: &Comparison, slowed: &Comparison) -> Result<()> {
        time(identical).context("the runs have no toll of the time in common")?;
        time(slowed).context("the slowed run has no toll of the time in common with its base")?;
        self.pairs += 1;
        self.called += u32::from(is_called_regression(identical));
        self.found += u32::from(is_called_regression(slowed));
        Ok(())
    }

    /// The most identical pairs that may be called a regression: 3 in 20, rounded down.
    pub fn most_called(&self) -> u32 {
        self.pairs * MOST_CALLED_OF_20 / 20
    }

    /// The fewest slowed pairs that must be found: 16 in 20, rounded up.
    pub fn least_found(&self) -> u32 {
        (self.pairs * LEAST_FOUND_OF_20).div_ceil(20)
    }

    /// Whether both bounds hold.
    pub fn is_sound(&self) -> bool {
        self.called <= self.most_called() && self.found >= self.least_found()
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

    /// A comparison with these verdicts on time and CPU.
    fn verdicts(time: ChangeVerdict, cpu: ChangeVerdict) -> Comparison {
        let id = Plan::new(&spec(), 1).unwrap().cells[1].id();
        let estimate = Estimate { value: 1.0, ci_low: Some(0.9), ci_high: Some(1.1), blocks: 8 };
        let change = |(metric, verdict)| Change {
            id: id.clone(),
            metric,
            base: estimate,
            new: estimate,
            ratio: estimate,
            p_adjusted: 0.5,
            verdict,
        };
        let changes = [(Metric::CpuUsPerOpTotal, cpu), (TIME, time)].map(change);
        Comparison { changes: changes.into(), only_in_base: Vec::new(), only_in_new: Vec::new() }
    }

    const SAME: ChangeVerdict = ChangeVerdict::SameWithin { margin: 0.05 };
    const WORSE: ChangeVerdict = ChangeVerdict::Regression;

    #[test]
    fn two_cells_one_toll() {
        let plan = Plan::new(&spec(), 1).unwrap();
        assert_eq!(
            plan.cells.iter().map(|cell| cell.treatment.path).collect::<Vec<_>>(),
            [Path::Plain, SLOWED]
        );
        assert_eq!((plan.strata.len(), plan.counted_blocks()), (1, BLOCKS));
    }

    #[test]
    fn any_regression_is_an_alarm_and_any_is_a_find() {
        let mut tally = Tally::default();
        tally.add(&verdicts(SAME, WORSE), &verdicts(SAME, SAME)).unwrap();
        assert_eq!(tally, Tally { pairs: 1, called: 1, found: 0 });
        tally.add(&verdicts(SAME, SAME), &verdicts(SAME, WORSE)).unwrap();
        assert_eq!(tally, Tally { pairs: 2, called: 1, found: 1 });
    }

    #[test]
    fn silence_is_an_error() {
        let silent = Comparison { changes: Vec::new(), only_in_base: Vec::new(), only_in_new: Vec::new() };
        let mut tally = Tally::default();
        assert!(tally.add(&silent, &verdicts(WORSE, SAME)).is_err());
        assert!(tally.add(&verdicts(SAME, SAME), &silent).is_err());
        assert_eq!(tally, Tally::default());
    }

    #[test]
    fn the_bounds_scale() {
        let bounds = |pairs| {
            let tally = Tally { pairs, ..Tally::default() };
            (tally.most_called(), tally.least_found())
        };
        assert_eq!([20, 40, 5, 3].map(bounds), [(3, 16), (6, 32), (0, 4), (0, 3)]);
        let sound = |called, found| Tally { pairs: 20, called, found }.is_sound();
        assert!(sound(3, 16) && !sound(4, 16) && !sound(3, 15));
    }
}
