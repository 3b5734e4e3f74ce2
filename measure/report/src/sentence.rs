//! Turns verdicts into sentences: the answer first, then the figures, then the doubt.

use ciphertoll_model::Metric;
use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_stats::{Comparison, Doubt, Estimate, PairedRatio, Verdict, headline_metrics};

use crate::cost_ratio::{cost, noun_of};
use crate::lists::listed;
use crate::number::{
    effect, is_certain, no_interval, percent, plural, quantity, ratio, ratio_interval, uncertainty,
};
use crate::subject::{object, subject};
use crate::view::{Sentence, StratumView, Tone, certain_ratio};

/// The cost of one configuration, the most important metric first; `None` if no ratio is known.
pub(crate) fn treatment<'a>(stratum: &'a StratumView<'_>, comparison: &'a Comparison) -> Option<Sentence> {
    let cell = &comparison.cell;
    let ratios: Vec<(Metric, &'a PairedRatio)> =
        comparison.headline().filter(|(_, ratio)| is_certain(&ratio.ratio)).collect();
    let subject = subject(&cell.cell, &stratum.rows, &stratum.heading_factors());
    if ratios.iter().any(|(_, ratio)| doubt(ratio) == Some(Doubt::TooManyVoided)) {
        let text = format!(
            "{subject}: inconclusive, because more than 20 % of the trials were voided (reasons below)."
        );
        return Some(Sentence::new(Tone::Unsure, text));
    }
    let tone = ratios.iter().map(|(metric, ratio)| tone(*metric, ratio)).max()?;
    let clause = |(metric, ratio): (Metric, &'a PairedRatio)| Clause {
        stratum,
        comparison,
        metric,
        ratio,
        cost: cost(metric, &ratio.ratio),
    };
    let clauses: Vec<Clause<'_>> = ratios.into_iter().map(clause).collect();
    let mut text = subject;
    let mut previous = None;
    for alike in clauses.chunk_by(|one, next| one.is_undecided() && next.is_undecided()) {
        match alike {
            [clause] => text.push_str(&clause.text(previous)),
            several => text.push_str(&undecided(several, previous)),
        }
        previous = alike.last().map(Clause::kind);
    }
    text.push_str(no_verdict(stratum, comparison));
    Some(Sentence::new(tone, text + "."))
}

pub(crate) fn tone(metric: Metric, ratio: &PairedRatio) -> Tone {
    let worse = cost(metric, &ratio.ratio).value > 1.0;
    match ratio.verdict {
        None => Tone::Neutral,
        Some(Verdict::SameWithin { .. }) => Tone::Same,
        Some(Verdict::RealButNegligible { .. }) => Tone::Negligible,
        Some(Verdict::Inconclusive { .. }) => Tone::Unsure,
        Some(Verdict::Differs) if worse => Tone::Worse,
        Some(Verdict::Differs) => Tone::Better,
    }
}

struct Clause<'a> {
    stratum: &'a StratumView<'a>,
    comparison: &'a Comparison,
    metric: Metric,
    ratio: &'a PairedRatio,
    /// Above 1 is more.
    cost: Estimate,
}

/// Two consecutive clauses of the same kind share their verb.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClauseKind {
    Ratio { verb: &'static str },
    Same,
    Negligible,
    Inconclusive,
}

/// Only the first clause names the baseline and the confidence level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClausePosition {
    First,
    Later,
}

const NEUTRAL_VERB: &str = "takes";

impl Clause<'_> {
    /// The clause, joined to the previous one or to the subject.
    fn text(&self, previous: Option<ClauseKind>) -> String {
        let kind = self.kind();
        let place = if previous.is_none() { ClausePosition::First } else { ClausePosition::Later };
        let is_alike = previous == Some(kind) && matches!(kind, ClauseKind::Ratio { .. } | ClauseKind::Same);
        let joiner = match (place, kind) {
            (ClausePosition::First, ClauseKind::Inconclusive) => ": ",
            (ClausePosition::First, _) => " ",
            (ClausePosition::Later, _) if is_alike => ", and ",
            (ClausePosition::Later, _) => "; ",
        };
        let verb = match kind {
            _ if is_alike => "",
            ClauseKind::Ratio { verb } => verb,
            ClauseKind::Same | ClauseKind::Negligible => NEUTRAL_VERB,
            ClauseKind::Inconclusive => "inconclusive for",
        };
        let space = if verb.is_empty() { "" } else { " " };
        format!("{joiner}{verb}{space}{}", self.body(place))
    }

    fn kind(&self) -> ClauseKind {
        match self.ratio.verdict {
            None => ClauseKind::Ratio { verb: NEUTRAL_VERB },
            Some(Verdict::SameWithin { .. }) => ClauseKind::Same,
            Some(Verdict::RealButNegligible { .. }) => ClauseKind::Negligible,
            Some(Verdict::Inconclusive { .. }) => ClauseKind::Inconclusive,
            Some(Verdict::Differs) => match tone(self.metric, self.ratio) {
                Tone::Worse => ClauseKind::Ratio { verb: "costs" },
                _ => ClauseKind::Ratio { verb: "takes only" },
            },
        }
    }

    fn is_undecided(&self) -> bool {
        doubt(self.ratio) == Some(Doubt::TooFewBlocks)
    }

    /// The smallest detectable difference and the blocks needed, if inconclusive.
    fn prospect(&self) -> Option<(f64, Option<u32>)> {
        match self.ratio.verdict {
            Some(Verdict::Inconclusive { smallest_detectable_difference, blocks_needed, .. }) => {
                Some((smallest_detectable_difference, blocks_needed))
            }
            _ => None,
        }
    }

    fn body(&self, place: ClausePosition) -> String {
        let noun = self.noun();
        match (self.ratio.verdict, place) {
            (None | Some(Verdict::Differs), ClausePosition::First) => {
                format!("{}{}", self.numbers(place), self.levels())
            }
            (None | Some(Verdict::Differs), ClausePosition::Later) => self.numbers(place),
            (Some(Verdict::SameWithin { margin }), ClausePosition::First) => {
                format!("the same {noun} as {} within ±{}", self.baseline(), percent(margin))
            }
            (Some(Verdict::SameWithin { margin }), ClausePosition::Later) => {
                format!("the same {noun} within ±{}", percent(margin))
            }
            (Some(Verdict::RealButNegligible { margin }), _) => {
                let (numbers, margin) = (self.numbers(place), percent(margin));
                format!("{numbers}: a real difference, but negligible (under {margin})")
            }
            (
                Some(Verdict::Inconclusive { smallest_detectable_difference: effect, blocks_needed, why }),
                _,
            ) => {
                let because = self.because(effect, blocks_needed, why);
                let (value, interval) = (ratio(&self.cost), ratio_interval(&self.cost));
                let compared = match place {
                    ClausePosition::First => format!(" compared with {}", self.baseline()),
                    ClausePosition::Later => String::new(),
                };
                format!("the {noun}{compared} ({value} ×, {interval}): {because}")
            }
        }
    }

    /// `3.11 × the latency of a plain one (2.93–3.30, 95 %)`.
    fn numbers(&self, place: ClausePosition) -> String {
        let (value, interval) = (ratio(&self.cost), ratio_interval(&self.cost));
        let noun = self.noun();
        match (place, self.cost.interval()) {
            (ClausePosition::First, Some(_)) => {
                let level = percent(self.stratum.report.analysis.confidence_level);
                format!("{value} × the {noun} of {} ({interval}, {level})", self.baseline())
            }
            (ClausePosition::First, None) => {
                format!("{value} × the {noun} of {}, {}", self.baseline(), no_interval(&self.cost))
            }
            (ClausePosition::Later, Some(_)) => format!("{value} × the {noun} ({interval})"),
            (ClausePosition::Later, None) => format!("{value} × the {noun}"),
        }
    }

    /// `: 612 µs (±1.8 %) against 197 µs (±1.8 %)`, whose quotient is the ratio.
    fn levels(&self) -> String {
        let level = |estimate: &Estimate| {
            let value = quantity(self.metric, estimate.value);
            let interval = estimate.interval().map(|_| format!(" ({})", uncertainty(self.metric, estimate)));
            format!("{value}{}", interval.unwrap_or_default())
        };
        match self.comparison.levels.get(&self.metric) {
            Some(both) if both.iter().all(is_certain) => {
                let [own, baseline] = both.each_ref().map(level);
                format!(": {own} against {baseline}")
            }
            _ => String::new(),
        }
    }

    fn noun(&self) -> &'static str {
        noun_of(self.metric, self.stratum.cell().workload)
    }

    /// The reason for an inconclusive verdict, and what would help.
    fn because(&self, smallest_detectable_difference: f64, blocks_needed: Option<u32>, why: Doubt) -> String {
        match (why, self.stratum.noise_floor.get(&self.metric)) {
            (Doubt::BelowNoiseFloor, Some(floor)) => {
                format!(
                    "two copies of {} differ by up to {} (the noise floor)",
                    self.stratum.baseline_label(),
                    effect(*floor)
                )
            }
            (Doubt::BelowNoiseFloor, None) => "the difference is below the noise floor".to_owned(),
            (Doubt::TooManyVoided, _) => "more than 20 % of the trials were voided".to_owned(),
            (Doubt::TooFewBlocks, _) => {
                format!("{}; {}", detectable(&[smallest_detectable_difference]), remedy(blocks_needed))
            }
        }
    }

    fn baseline(&self) -> String {
        object(self.stratum.cell(), &self.stratum.rows)
    }
}

/// Several inconclusive metrics in one clause.
fn undecided(clauses: &[Clause<'_>], previous: Option<ClauseKind>) -> String {
    let metric = |clause: &Clause<'_>| {
        let (value, interval) = (ratio(&clause.cost), ratio_interval(&clause.cost));
        format!("{} ({value} ×, {interval})", clause.noun())
    };
    let (joiner, compared) = match (previous, clauses) {
        (None, [first, ..]) => (": ", format!(" compared with {}", first.baseline())),
        _ => ("; ", String::new()),
    };
    let metrics = listed(&clauses.iter().map(metric).collect::<Vec<_>>());
    let prospects: Vec<(f64, Option<u32>)> = clauses.iter().filter_map(Clause::prospect).collect();
    let effects: Vec<f64> = prospects.iter().map(|(effect, _)| *effect).collect();
    let blocks = prospects.iter().map(|(_, blocks)| *blocks).collect::<Option<Vec<u32>>>();
    let remedy = remedy(blocks.and_then(|blocks| blocks.into_iter().max()));
    format!("{joiner}inconclusive for {metrics}{compared}: {}; {remedy}", detectable(&effects))
}

/// The smallest detectable difference of each metric: as a percentage below a doubling, as a factor from there on.
fn detectable(differences: &[f64]) -> String {
    if differences.iter().any(|difference| !difference.is_finite()) {
        let which = if differences.len() > 1 { " in one of them" } else { "" };
        return format!("no difference is detectable{which}");
    }
    let plural = if differences.len() > 1 { "s" } else { "" };
    let all = listed(&differences.iter().map(|share| effect(*share)).collect::<Vec<_>>());
    format!("smallest detectable difference{plural} {all}")
}

/// What would make an inconclusive verdict conclusive.
fn remedy(blocks_needed: Option<u32>) -> String {
    match blocks_needed {
        Some(blocks) => format!("about {} would be enough", plural(u64::from(blocks), "block")),
        None => "no practicable number of blocks would be enough (longer trials may help)".to_owned(),
    }
}

/// Why a verdict is missing in a run that gives verdicts.
fn no_verdict(stratum: &StratumView<'_>, comparison: &Comparison) -> &'static str {
    let run_gives_them = stratum.report.analysis.blocks_completed >= MIN_BLOCKS_FOR_VERDICTS;
    let is_missing =
        |metric: &Metric| certain_ratio(comparison, *metric).is_some_and(|ratio| ratio.verdict.is_none());
    if run_gives_them && headline_metrics(&comparison.cell.cell).iter().any(is_missing) {
        " (numbers only: too few of its blocks count for a verdict)"
    } else {
        ""
    }
}

fn doubt(ratio: &PairedRatio) -> Option<Doubt> {
    match ratio.verdict {
        Some(Verdict::Inconclusive { why, .. }) => Some(why),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detectable_differences_are_percentages_or_factors() {
        assert_eq!(detectable(&[0.14]), "smallest detectable difference 14 %");
        assert_eq!(detectable(&[0.2, 0.994, 0.19]), "smallest detectable differences 20 %, 99 % and 19 %");
        assert_eq!(detectable(&[0.27, 1.44]), "smallest detectable differences 27 % and a factor of 2.4");
        assert_eq!(detectable(&[1.0]), "smallest detectable difference a factor of 2");
        assert_eq!(detectable(&[f64::INFINITY]), "no difference is detectable");
        assert_eq!(detectable(&[0.1, f64::INFINITY]), "no difference is detectable in one of them");
    }
}
