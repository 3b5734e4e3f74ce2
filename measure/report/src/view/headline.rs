//! The answer in one sentence: which configuration, its cost, and how sure that is.

use ciphertoll_model::{ConnectionUse, Metric};
use ciphertoll_stats::{Comparison, PairedRatio, Verdict, headline_metrics};

use super::advice::{self, Advice};
use super::{StratumView, Tone, certain_ratio, level};
use crate::cost_ratio::{cost, noun_of};
use crate::lists::{grouped, listed};
use crate::number::{measured, percent, ratio, ratio_interval};
use crate::{RunReport, names, sentence};

/// A ratio with a verdict in the most important metric of its load.
#[derive(Clone, Copy)]
struct Finding<'a> {
    stratum: &'a StratumView<'a>,
    comparison: &'a Comparison,
    metric: Metric,
    ratio: &'a PairedRatio,
    verdict: Verdict,
}

/// The cost of the advised configuration, or of the most expensive one if none is advised; `None` without verdicts.
pub(crate) fn headline(
    report: &RunReport<'_>,
    strata: &[StratumView<'_>],
    advice: Option<&Advice>,
) -> Option<String> {
    if let Some(alone) = alone(strata) {
        return Some(alone);
    }
    let mut about = findings(strata);
    let subject = if let Some(advice) = advice {
        about.retain(|found| advice::is_about(advice, found.stratum, &found.comparison.cell));
        advice.choice.clone()
    } else {
        let worst = *worst(&about)?;
        about.retain(|found| found.label() == worst.label());
        let factors = names::factors(&worst.stratum.rows);
        format!("{factors} {}, compared with {}", worst.label(), worst.stratum.baseline_label())
    };
    let all = about.len();
    about.retain(Finding::is_conclusive);
    let several = report.plan.servers().len() > 1;
    let of_server = |(server, findings): (String, Vec<Finding<'_>>)| {
        let uses = grouped(findings.into_iter().map(|found| (found.connection_use(), found)));
        let clauses: Vec<String> = uses.iter().filter_map(|(_, findings)| clause(findings)).collect();
        let place = if several { format!("on {server}, ") } else { String::new() };
        format!("{place}{}", listed(&clauses))
    };
    let undecided = match all - about.len() {
        0 => None,
        count if count == all => Some("inconclusive".to_owned()),
        count => Some(format!("inconclusive under {count} of {all} loads")),
    };
    let servers = grouped(about.into_iter().map(|found| (found.server(), found)));
    let costs: Vec<String> = servers.into_iter().map(of_server).chain(undecided).collect();
    (!costs.is_empty()).then(|| format!("{subject}: {}.", costs.join("; ")))
}

/// `7 of 8 comparisons are conclusive`; `None` without verdicts.
pub(crate) fn conclusive(strata: &[StratumView<'_>]) -> Option<String> {
    let all = findings(strata);
    let conclusive = all.iter().filter(|found| found.is_conclusive()).count();
    let count = headline_strata(strata).map(|stratum| stratum.treatments.len()).sum::<usize>();
    let are = if count == 1 { "1 comparison is".to_owned() } else { format!("{count} comparisons are") };
    let without = match count - all.len() {
        0 => String::new(),
        1 => ", 1 has no verdict".to_owned(),
        several => format!(", {several} have no verdict"),
    };
    (!all.is_empty()).then(|| format!("{conclusive} of {are} conclusive{without}"))
}

/// What was measured, if there is nothing to compare it with.
fn alone(strata: &[StratumView<'_>]) -> Option<String> {
    let value = |stratum: &StratumView<'_>| {
        let metric = *headline_metrics(stratum.cell()).first()?;
        let value = measured(metric, level(stratum.baseline, metric)?);
        Some(format!("{} {value}", stratum.name()))
    };
    let values: Vec<String> = strata.iter().filter_map(value).collect();
    let is_alone = strata.iter().all(|stratum| stratum.treatments.is_empty()) && !values.is_empty();
    is_alone.then(|| {
        let path =
            strata.first().map_or_else(String::new, |stratum| stratum.cell().treatment.path.to_string());
        format!("Only {path} was measured, so there is nothing to compare it with: {}.", values.join("; "))
    })
}

/// Everything compared with the run's own baseline.
fn findings<'a>(strata: &'a [StratumView<'a>]) -> Vec<Finding<'a>> {
    let of_stratum = |stratum: &'a StratumView<'a>| {
        stratum.treatments.iter().filter_map(move |comparison| {
            let metric = *headline_metrics(stratum.cell()).first()?;
            let ratio = certain_ratio(comparison, metric)?;
            Some(Finding { stratum, comparison, metric, ratio, verdict: ratio.verdict? })
        })
    };
    headline_strata(strata).flat_map(of_stratum).collect()
}

fn headline_strata<'a>(strata: &'a [StratumView<'a>]) -> impl Iterator<Item = &'a StratumView<'a>> {
    strata.iter().filter(|stratum| stratum.plan.factor.is_none())
}

/// The highest cost of several findings about the same use of connections.
fn clause(findings: &[Finding<'_>]) -> Option<String> {
    let worst = worst(findings)?;
    let of_several = findings.len() > 1 && worst.verdict == Verdict::Differs;
    let load = if of_several { format!(" in the worst case ({})", worst.load()) } else { String::new() };
    Some(format!("{}{load}", worst.text()))
}

fn worst<'a, 'b>(findings: &'b [Finding<'a>]) -> Option<&'b Finding<'a>> {
    findings.iter().max_by(|left, right| left.weight().total_cmp(&right.weight()))
}

impl Finding<'_> {
    /// Proven costs outweigh other conclusive verdicts, and those the inconclusive ones; then the higher cost counts.
    fn weight(&self) -> f64 {
        /// More than any logarithm of a cost.
        const STEP: f64 = 1e3;
        let rank = match sentence::tone(self.metric, self.ratio) {
            Tone::Worse => 2.0,
            Tone::Unsure => 0.0,
            _ => 1.0,
        };
        rank * STEP + cost(self.metric, &self.ratio.ratio).value.ln()
    }

    fn is_conclusive(&self) -> bool {
        !matches!(self.verdict, Verdict::Inconclusive { .. })
    }

    fn server(&self) -> String {
        self.stratum.cell().treatment.server.short_name()
    }

    fn label(&self) -> String {
        self.stratum.row_label(&self.comparison.cell)
    }

    /// The load and its context, without the server.
    fn load(&self) -> String {
        let Self { stratum, .. } = self;
        let mut context = names::context(stratum.report.plan, stratum.plan, &stratum.rows);
        context.retain(|level| *level != self.server());
        std::iter::once(names::load(stratum.cell())).chain(context).collect::<Vec<_>>().join(", ")
    }

    fn connection_use(&self) -> ConnectionUse {
        self.stratum.cell().workload.connection_use()
    }

    fn text(&self) -> String {
        let noun = self.noun();
        match self.verdict {
            Verdict::SameWithin { margin } => format!("the {noun} is the same within ±{}", percent(margin)),
            Verdict::RealButNegligible { margin } => {
                format!("the {noun} changes by less than {}", percent(margin))
            }
            Verdict::Differs | Verdict::Inconclusive { .. } => format!("the {noun} {}", self.change()),
        }
    }

    fn noun(&self) -> &'static str {
        match (self.connection_use(), self.metric) {
            (_, Metric::RatePerS) => noun_of(self.metric, self.stratum.cell().workload),
            (ConnectionUse::PerOperation, _) => "time to open a connection",
            (ConnectionUse::Pooled, _) => "latency on open connections",
        }
    }

    /// `rises to 6.86 × (5.92–7.95)`, or `falls by 18 % (8–27 %)`, because small changes read more easily as percentages.
    fn change(&self) -> String {
        const DOUBLING: f64 = 2.0;
        let estimate = &cost(self.metric, &self.ratio.ratio);
        let verb = if estimate.value > 1.0 { "rises" } else { "falls" };
        match estimate.interval() {
            Some(interval) if estimate.value < DOUBLING && estimate.value > DOUBLING.recip() => {
                let [value, one, other] =
                    [estimate.value, interval.low, interval.high].map(|limit| (limit - 1.0).abs());
                format!(
                    "{verb} by {} ({}–{})",
                    percent(value),
                    percent(one.min(other)).trim_end_matches(" %"),
                    percent(one.max(other))
                )
            }
            _ => format!("{verb} to {} × ({})", ratio(estimate), ratio_interval(estimate)),
        }
    }
}
