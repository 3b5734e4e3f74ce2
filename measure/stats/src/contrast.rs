//! Judges the comparisons of one stratum together: they share a baseline, an A/A comparison and a Holm family.

use std::collections::BTreeMap;

use ciphertoll_model::plan::MIN_BLOCKS_FOR_VERDICTS;
use ciphertoll_model::{Arm, Margins, Metric, Verdicts};

use crate::analysis::PairedRatio;
use crate::holm::holm;
use crate::interval::{LogSummary, hodges_lehmann};
use crate::verdict::{Evidence, Losses, margin, noise_floor, verdict};

/// The paired blocks of one comparison.
#[derive(Debug)]
pub(crate) struct Contrast {
    /// [`Arm::Repeat`] for the A/A comparison.
    pub(crate) arm: Arm,
    /// One log-ratio for each paired block, by metric.
    pub(crate) log_ratios: BTreeMap<Metric, Vec<f64>>,
    pub(crate) losses: Losses,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The metrics that get verdicts.
    pub(crate) headline: &'static [Metric],
    pub(crate) margins: Margins,
    pub(crate) verdicts: Verdicts,
}

/// The result of [`judge`].
#[derive(Debug)]
pub(crate) struct JudgedStratum {
    /// By metric, in the order of the contrasts.
    pub(crate) ratios: Vec<BTreeMap<Metric, PairedRatio>>,
    /// Upper 95 % limit of |A/A|, as a share; absent below six blocks.
    pub(crate) noise_floor: BTreeMap<Metric, f64>,
}

/// Turns the paired blocks of a stratum into ratios. Metrics with fewer than two pairs are absent.
pub(crate) fn judge(contrasts: &[Contrast], rules: &Rules) -> JudgedStratum {
    let summaries: Vec<LogSummaries> = contrasts.iter().map(summaries).collect();
    let repeat = contrasts.iter().position(|contrast| contrast.arm == Arm::Repeat).map(|at| &summaries[at]);
    let adjusted = adjusted_p_values(&summaries, rules);
    let ratios = contrasts.iter().zip(&summaries).enumerate().map(|(position, (contrast, summaries))| {
        let ratio = |(&metric, log_ratio): (&Metric, &LogSummary)| {
            // The A/A comparison is not held to its own noise floor.
            let repeat = repeat.filter(|_| contrast.arm == Arm::Main).and_then(|repeat| repeat.get(&metric));
            let p_adjusted = adjusted.get(&(position, metric)).copied();
            let verdict = p_adjusted.and_then(|p_adjusted| {
                verdict(&Evidence {
                    log_ratio,
                    p_adjusted,
                    family: adjusted.len() as u32,
                    margin: margin(metric, &rules.margins),
                    repeat,
                    losses: contrast.losses,
                })
            });
            let robust = contrast.log_ratios.get(&metric).and_then(|logs| hodges_lehmann(logs));
            let ratio = PairedRatio {
                ratio: log_ratio.estimate(),
                hodges_lehmann: robust.unwrap_or(log_ratio.mean()).exp(),
                pairs: log_ratio.count(),
                p_adjusted,
                verdict,
            };
            (metric, ratio)
        };
        summaries.iter().map(ratio).collect()
    });
    JudgedStratum { ratios: ratios.collect(), noise_floor: repeat.map(noise_floors).unwrap_or_default() }
}

type LogSummaries = BTreeMap<Metric, LogSummary>;

fn summaries(contrast: &Contrast) -> LogSummaries {
    let of = |(&metric, logs): (&Metric, &Vec<f64>)| Some((metric, LogSummary::of(logs)?));
    contrast.log_ratios.iter().filter_map(of).collect()
}

fn noise_floors(repeat: &LogSummaries) -> BTreeMap<Metric, f64> {
    let known = repeat.iter().filter(|(_, summary)| summary.count() >= MIN_BLOCKS_FOR_VERDICTS);
    known.map(|(&metric, summary)| (metric, noise_floor(summary).exp_m1())).collect()
}

/// Holm-adjusted p by position of the comparison and metric. The family is every headline ratio of the stratum,
/// including those of the A/A comparison and those that get no verdict later.
fn adjusted_p_values(summaries: &[LogSummaries], rules: &Rules) -> BTreeMap<(usize, Metric), f64> {
    if rules.verdicts == Verdicts::Withheld {
        return BTreeMap::new();
    }
    let headline = |(position, summaries): (usize, &LogSummaries)| {
        let known = rules.headline.iter().filter_map(|metric| Some((*metric, summaries.get(metric)?)));
        known.map(|(metric, summary)| ((position, metric), summary.p_value())).collect::<Vec<_>>()
    };
    let (family, p_values): (Vec<_>, Vec<f64>) = summaries.iter().enumerate().flat_map(headline).unzip();
    family.into_iter().zip(holm(&p_values)).collect()
}
