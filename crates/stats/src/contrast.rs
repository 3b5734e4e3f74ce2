//! The tolls of one stratum, all judged together: they share a baseline, an A/A arm and a Holm family.

use std::collections::BTreeMap;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Margins, Metric, Verdicts};

use crate::analysis::Toll;
use crate::holm::holm;
use crate::interval::{Summary, hodges_lehmann};
use crate::verdict::{Evidence, Losses, margin, noise_floor, verdict};

/// One cell ÷ the stratum's baseline.
#[derive(Debug, Default)]
pub(crate) struct Contrast {
    /// One log-ratio for each paired block, by metric.
    pub(crate) log_ratios: BTreeMap<Metric, Vec<f64>>,
    /// Pairs lost.
    pub(crate) losses: Losses,
}

/// How to judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// What verdicts are given on.
    pub(crate) headline: &'static [Metric],
    /// Half-widths of "the same".
    pub(crate) margins: Margins,
    /// Whether there are any.
    pub(crate) verdicts: Verdicts,
}

/// What [`judge`] says of a stratum.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The baseline's second copy ÷ the baseline.
    pub(crate) repeat: BTreeMap<Metric, Toll>,
    /// Upper 95 % limit of |A/A|, as a share; absent below six blocks.
    pub(crate) noise_floor: BTreeMap<Metric, f64>,
    /// In the order in which they were given.
    pub(crate) treatments: Vec<BTreeMap<Metric, Toll>>,
    /// What verdicts are given on.
    pub(crate) headline: &'static [Metric],
}

impl Judged {
    /// The tolls that verdicts are given on: those of all treatments, and those of the A/A arm.
    pub(crate) fn headline_tolls(&self) -> impl Iterator<Item = &Toll> {
        let arms = self.treatments.iter().chain([&self.repeat]);
        arms.flat_map(|tolls| self.headline.iter().filter_map(|metric| tolls.get(metric)))
    }
}

/// Turns the paired blocks of a stratum into tolls. Metrics with fewer than two pairs are absent.
pub(crate) fn judge(repeat: &Contrast, treatments: &[Contrast], rules: &Rules) -> Judged {
    let repeat_summaries = summaries(repeat);
    let mut arms = vec![Arm { contrast: repeat, summaries: &repeat_summaries, repeat: None }];
    let treatment_summaries: Vec<_> = treatments.iter().map(summaries).collect();
    arms.extend(treatments.iter().zip(&treatment_summaries).map(|(contrast, summaries)| Arm {
        contrast,
        summaries,
        repeat: Some(&repeat_summaries),
    }));
    let adjusted = adjusted_p_values(&arms, rules);
    let mut tolls = arms.iter().enumerate().map(|(position, arm)| {
        let toll = |(&metric, summary)| (metric, toll(arm, metric, summary, &adjusted, position, rules));
        arm.summaries.iter().map(toll).collect()
    });
    Judged {
        repeat: tolls.next().unwrap_or_default(),
        noise_floor: repeat_summaries
            .iter()
            .filter(|(_, summary)| summary.count() >= MIN_BLOCKS_FOR_VERDICTS)
            .map(|(&metric, summary)| (metric, noise_floor(summary).exp_m1()))
            .collect(),
        treatments: tolls.collect(),
        headline: rules.headline,
    }
}

type Summaries = BTreeMap<Metric, Summary>;

struct Arm<'a> {
    contrast: &'a Contrast,
    summaries: &'a Summaries,
    /// What its noise floor comes from; absent for the A/A arm itself.
    repeat: Option<&'a Summaries>,
}

fn summaries(contrast: &Contrast) -> Summaries {
    let of = |(&metric, logs): (&Metric, &Vec<f64>)| Some((metric, Summary::of(logs)?));
    contrast.log_ratios.iter().filter_map(of).collect()
}

/// Holm-adjusted p by position of the arm and metric. The family is every headline comparison
/// of the stratum, the A/A arm's too, whether or not it then gets a verdict.
fn adjusted_p_values(arms: &[Arm<'_>], rules: &Rules) -> BTreeMap<(usize, Metric), f64> {
    if rules.verdicts == Verdicts::Withheld {
        return BTreeMap::new();
    }
    let headlines = |(position, arm): (usize, &Arm<'_>)| {
        let of_arm = rules.headline.iter().filter_map(|metric| Some((*metric, arm.summaries.get(metric)?)));
        of_arm.map(|(metric, summary)| ((position, metric), summary.p_value())).collect::<Vec<_>>()
    };
    let (comparisons, p_values): (Vec<_>, Vec<f64>) = arms.iter().enumerate().flat_map(headlines).unzip();
    comparisons.into_iter().zip(holm(&p_values)).collect()
}

fn toll(
    arm: &Arm<'_>,
    metric: Metric,
    log_ratio: &Summary,
    adjusted: &BTreeMap<(usize, Metric), f64>,
    position: usize,
    rules: &Rules,
) -> Toll {
    let p_adjusted = adjusted.get(&(position, metric)).copied();
    let robust = arm.contrast.log_ratios.get(&metric).and_then(|logs| hodges_lehmann(logs));
    Toll {
        ratio: log_ratio.estimate(),
        hodges_lehmann: robust.unwrap_or(log_ratio.mean()).exp(),
        pairs: log_ratio.count(),
        p_adjusted,
        verdict: p_adjusted.and_then(|p_adjusted| {
            verdict(&Evidence {
                log_ratio,
                p_adjusted,
                family: adjusted.len() as u32,
                margin: margin(metric, &rules.margins),
                repeat: arm.repeat.and_then(|repeat| repeat.get(&metric)),
                losses: arm.contrast.losses,
            })
        }),
    }
}
