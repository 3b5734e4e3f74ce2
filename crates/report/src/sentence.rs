//! The grammar of verdicts: one honest sentence for each kind, in words a DBA uses.

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Metric, MetricDirection};
use ciphertoll_stats::{CellAnalysis, Doubt, Toll, Verdict};

use crate::names;
use crate::number::{
    FACTORS_FROM, effect, factor, is_certain, no_interval, percent, plural, quantity, ratio, ratio_interval,
    uncertainty,
};
use crate::subject::{object, subject};
use crate::view::{Statement, StratumView, Tone};

/// What one treatment costs, the most important metric first; `None` where nothing can be compared.
pub(crate) fn treatment(stratum: &StratumView<'_>, cell: &CellAnalysis) -> Option<Statement> {
    let known = |metric: &Metric| {
        let toll = cell.tolls.get(metric).filter(|toll| is_certain(&toll.ratio))?;
        Some((*metric, toll))
    };
    let tolls: Vec<(Metric, &Toll)> = names::headline(&cell.cell).iter().filter_map(known).collect();
    let subject = subject(&cell.cell, &stratum.rows, &stratum.heading_factors());
    if tolls.iter().any(|(_, toll)| doubt(toll) == Some(Doubt::TooManyVoided)) {
        let text = format!(
            "{subject}: can't tell, because more than 20 % of the trials were voided (reasons below)."
        );
        return Some(Statement::new(Tone::Unsure, text));
    }
    let tone = tolls.iter().map(|(metric, toll)| tone(*metric, toll)).max()?;
    let clauses: Vec<Clause<'_>> =
        tolls.into_iter().map(|(metric, toll)| Clause { stratum, cell, metric, toll }).collect();
    let mut text = subject;
    let mut previous = None;
    for alike in clauses.chunk_by(|one, next| one.is_undecided() && next.is_undecided()) {
        match alike {
            [clause] => text.push_str(&clause.text(previous)),
            several => text.push_str(&undecided(several, previous)),
        }
        previous = alike.last().map(Clause::kind);
    }
    text.push_str(no_verdict(stratum, cell));
    Some(Statement::new(tone, text + "."))
}

/// How a toll is meant.
pub(crate) fn tone(metric: Metric, toll: &Toll) -> Tone {
    let worse = match metric.direction() {
        MetricDirection::HigherIsBetter => toll.ratio.value < 1.0,
        MetricDirection::LowerIsBetter => toll.ratio.value > 1.0,
    };
    match toll.verdict {
        None => Tone::Neutral,
        Some(Verdict::SameWithin { .. }) => Tone::Same,
        Some(Verdict::RealButNegligible { .. }) => Tone::Negligible,
        Some(Verdict::Inconclusive { .. }) => Tone::Unsure,
        Some(Verdict::Differs) if worse => Tone::Worse,
        Some(Verdict::Differs) => Tone::Better,
    }
}

/// What a metric is called behind "the".
pub(crate) fn noun(metric: Metric) -> &'static str {
    match metric {
        Metric::RatePerS => "rate",
        Metric::LatencyNsMean => "time",
        Metric::LatencyNsP95 => "p95 time",
        Metric::CpuUsPerOpTotal => "CPU",
        other => other.title(),
    }
}

struct Clause<'a> {
    stratum: &'a StratumView<'a>,
    cell: &'a CellAnalysis,
    metric: Metric,
    toll: &'a Toll,
}

/// What a clause says; two of a kind in a row share their verb.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ratio { verb: &'static str },
    Same,
    Negligible,
    CannotTell,
}

/// Where a clause stands: only the first one names what is compared with and how sure it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Later,
}

impl Clause<'_> {
    /// The clause, with what joins it to the one before, or to the subject.
    fn text(&self, previous: Option<Kind>) -> String {
        let kind = self.kind();
        let place = if previous.is_none() { Place::First } else { Place::Later };
        let is_alike = previous == Some(kind) && matches!(kind, Kind::Ratio { .. } | Kind::Same);
        let joiner = match (place, kind) {
            (Place::First, Kind::CannotTell) => ": ",
            (Place::First, _) => " ",
            (Place::Later, _) if is_alike => ", and ",
            (Place::Later, _) => "; ",
        };
        let verb = match kind {
            _ if is_alike => "",
            Kind::Ratio { verb } => verb,
            Kind::Same | Kind::Negligible => self.neutral_verb(),
            Kind::CannotTell => "can't tell",
        };
        let space = if verb.is_empty() { "" } else { " " };
        format!("{joiner}{verb}{space}{}", self.body(place))
    }

    fn kind(&self) -> Kind {
        match self.toll.verdict {
            None => Kind::Ratio { verb: self.neutral_verb() },
            Some(Verdict::SameWithin { .. }) => Kind::Same,
            Some(Verdict::RealButNegligible { .. }) => Kind::Negligible,
            Some(Verdict::Inconclusive { .. }) => Kind::CannotTell,
            // "Costs N ×" is said of time and CPU only: of a rate it would read upside down.
            Some(Verdict::Differs) => match (self.metric.direction(), tone(self.metric, self.toll)) {
                (MetricDirection::HigherIsBetter, _) => Kind::Ratio { verb: "gives" },
                (MetricDirection::LowerIsBetter, Tone::Worse) => Kind::Ratio { verb: "costs" },
                (MetricDirection::LowerIsBetter, _) => Kind::Ratio { verb: "takes only" },
            },
        }
    }

    fn is_undecided(&self) -> bool {
        doubt(self.toll) == Some(Doubt::TooFewBlocks)
    }

    /// The smallest effect that would have been seen, and the blocks it would take; where undecided.
    fn prospect(&self) -> Option<(f64, Option<u32>)> {
        match self.toll.verdict {
            Some(Verdict::Inconclusive { smallest_visible_effect, blocks_needed, .. }) => {
                Some((smallest_visible_effect, blocks_needed))
            }
            _ => None,
        }
    }

    fn neutral_verb(&self) -> &'static str {
        match self.metric.direction() {
            MetricDirection::HigherIsBetter => "gives",
            MetricDirection::LowerIsBetter => "takes",
        }
    }

    fn body(&self, place: Place) -> String {
        let noun = noun(self.metric);
        match (self.toll.verdict, place) {
            (None | Some(Verdict::Differs), Place::First) => {
                format!("{}{}", self.numbers(place), self.levels())
            }
            (None | Some(Verdict::Differs), Place::Later) => self.numbers(place),
            (Some(Verdict::SameWithin { margin }), Place::First) => {
                format!("the same {noun} as {} within ±{}", self.baseline(), percent(margin))
            }
            (Some(Verdict::SameWithin { margin }), Place::Later) => {
                format!("the same {noun} within ±{}", percent(margin))
            }
            (Some(Verdict::RealButNegligible { margin }), _) => {
                let (numbers, margin) = (self.numbers(place), percent(margin));
                format!("{numbers}: a real difference, but too small to matter (under {margin})")
            }
            (Some(Verdict::Inconclusive { smallest_visible_effect: effect, blocks_needed, why }), _) => {
                let because = self.because(effect, blocks_needed, why);
                let (value, interval) = (ratio(&self.toll.ratio), ratio_interval(&self.toll.ratio));
                let that = match place {
                    Place::First => format!(" from that of {}", self.baseline()),
                    Place::Later => String::new(),
                };
                format!("whether the {noun} differs{that} ({value} ×, {interval}): {because}")
            }
        }
    }

    /// `3.11 × the time of a plain one (2.93–3.30, 95 %)`.
    fn numbers(&self, place: Place) -> String {
        let (value, interval) = (ratio(&self.toll.ratio), ratio_interval(&self.toll.ratio));
        let noun = noun(self.metric);
        match (place, self.toll.ratio.interval()) {
            (Place::First, Some(_)) => {
                let level = percent(self.stratum.report.analysis.confidence_level);
                format!("{value} × the {noun} of {} ({interval}, {level})", self.baseline())
            }
            (Place::First, None) => {
                format!("{value} × the {noun} of {}, {}", self.baseline(), no_interval(&self.toll.ratio))
            }
            (Place::Later, Some(_)) => format!("{value} × the {noun} ({interval})"),
            (Place::Later, None) => format!("{value} × the {noun}"),
        }
    }

    /// `: 612 µs (±1.8 %) against 197 µs (±1.8 %)`.
    fn levels(&self) -> String {
        let level = |cell: &CellAnalysis| {
            let estimate = cell.metrics.get(&self.metric).filter(|estimate| is_certain(estimate))?;
            let value = quantity(self.metric, estimate.value);
            let interval = estimate.interval().map(|_| format!(" ({})", uncertainty(self.metric, estimate)));
            Some(format!("{value}{}", interval.unwrap_or_default()))
        };
        match (level(self.cell), level(self.stratum.baseline)) {
            (Some(own), Some(baseline)) => format!(": {own} against {baseline}"),
            _ => String::new(),
        }
    }

    /// Why that is not enough, and what would be.
    fn because(&self, smallest_visible_effect: f64, blocks_needed: Option<u32>, why: Doubt) -> String {
        match (why, self.stratum.analysis.noise_floor.get(&self.metric)) {
            (Doubt::BelowNoiseFloor, Some(floor)) => {
                format!(
                    "two copies of {} already differ by up to {}",
                    self.stratum.baseline_label(),
                    effect(*floor)
                )
            }
            (Doubt::BelowNoiseFloor, None) => "that is within the noise".to_owned(),
            (Doubt::TooManyVoided, _) => "more than 20 % of the trials were voided".to_owned(),
            (Doubt::TooFewBlocks, _) => too_few(smallest_visible_effect, blocks_needed),
        }
    }

    fn baseline(&self) -> String {
        object(self.stratum.cell(), &self.stratum.rows)
    }
}

/// Several metrics that cannot be told apart from the baseline's, in one clause.
fn undecided(clauses: &[Clause<'_>], previous: Option<Kind>) -> String {
    let metric = |clause: &Clause<'_>| {
        let (value, interval) = (ratio(&clause.toll.ratio), ratio_interval(&clause.toll.ratio));
        format!("{} ({value} ×, {interval})", noun(clause.metric))
    };
    let (joiner, that) = match (previous, clauses) {
        (None, [first, ..]) => (": ", format!(" from those of {}", first.baseline())),
        _ => ("; ", String::new()),
    };
    let metrics = listed(clauses.iter().map(metric).collect(), "or");
    let prospects: Vec<(f64, Option<u32>)> = clauses.iter().filter_map(Clause::prospect).collect();
    let effects: Vec<f64> = prospects.iter().map(|(effect, _)| *effect).collect();
    let blocks = prospects.iter().map(|(_, blocks)| *blocks).collect::<Option<Vec<u32>>>();
    let settled = match blocks.and_then(|blocks| blocks.into_iter().max()) {
        Some(blocks) => format!("about {} would settle all of it", plural(u64::from(blocks), "block")),
        None => "no practicable number of blocks would settle all of it (longer trials may)".to_owned(),
    };
    format!("{joiner}can't tell whether {metrics} differ{that}: {}, and {settled}", visible(&effects))
}

/// `a, b or c`.
fn listed(mut items: Vec<String>, conjunction: &str) -> String {
    match items.pop() {
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} {conjunction} {last}", items.join(", ")),
        None => String::new(),
    }
}

/// What the run would have seen of each metric: of 20 % or more people know what it means, of 144 % they do
/// not, and a run that blind is to be called so.
fn visible(effects: &[f64]) -> String {
    if effects.iter().any(|effect| !effect.is_finite()) {
        let of_what = if effects.len() > 1 { " in one of them" } else { "" };
        return format!("this run could not have seen any difference{of_what}");
    }
    if effects.iter().any(|effect| *effect < FACTORS_FROM) {
        let effects = listed(effects.iter().map(|share| effect(*share)).collect(), "and");
        return format!("this run would have seen {effects} or more");
    }
    let factors = listed(effects.iter().map(|share| factor(*share)).collect(), "and");
    let noun = if effects.len() > 1 { "factors" } else { "a factor" };
    format!("this run would have seen nothing short of {noun} of {factors}")
}

fn too_few(smallest_visible_effect: f64, blocks_needed: Option<u32>) -> String {
    let seen = visible(&[smallest_visible_effect]);
    match blocks_needed {
        Some(blocks) => format!("{seen}, and about {} would settle it", plural(u64::from(blocks), "block")),
        None => format!("{seen}, and no practicable number of blocks would settle it (longer trials may)"),
    }
}

/// A run that gives verdicts owes a reason where one is missing.
fn no_verdict(stratum: &StratumView<'_>, cell: &CellAnalysis) -> &'static str {
    let run_gives_them = stratum.report.analysis.blocks_completed >= MIN_BLOCKS_FOR_VERDICTS;
    let missing = |metric: &Metric| {
        cell.tolls.get(metric).is_some_and(|toll| is_certain(&toll.ratio) && toll.verdict.is_none())
    };
    if run_gives_them && names::headline(&cell.cell).iter().any(missing) {
        " (numbers only: too few of its blocks count for a verdict)"
    } else {
        ""
    }
}

fn doubt(toll: &Toll) -> Option<Doubt> {
    match toll.verdict {
        Some(Verdict::Inconclusive { why, .. }) => Some(why),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_would_have_seen_is_said_so_that_it_is_understood() {
        assert_eq!(visible(&[0.14]), "this run would have seen 14 % or more");
        assert_eq!(visible(&[0.2, 0.994, 0.19]), "this run would have seen 20 %, 99 % and 19 % or more");
        assert_eq!(visible(&[0.27, 1.44]), "this run would have seen 27 % and a factor of 2.4 or more");
        assert_eq!(visible(&[1.0]), "this run would have seen nothing short of a factor of 2");
        assert_eq!(visible(&[1.44, 19.0]), "this run would have seen nothing short of factors of 2.4 and 20");
        assert_eq!(visible(&[f64::INFINITY]), "this run could not have seen any difference");
        assert_eq!(
            visible(&[0.1, f64::INFINITY]),
            "this run could not have seen any difference in one of them"
        );
    }
}
