//! The numbers of a plot as comma-separated values (RFC 4180), for a spreadsheet or another plot. Names carry units.
//! A number that does not apply or has no interval is empty, never 0.

use ciphertoll_model::{Arm, Factor, Metric, Phase, labelled};
use ciphertoll_stats::{CellAnalysis, CellRole, Doubt, Estimate, PairedRatio, Verdict, margin};

use crate::number::is_certain;
use crate::view::StratumView;
use crate::view::connect_cost::{self, Bar, CostPart};
use crate::view::round_trips;
use crate::{RunReport, chart, view};

labelled! {
    /// The plots that the charts of a report are made of, by their names on the command line.
    pub enum Plot {
        /// Rates, mean latencies and memory: a row for each cell.
        Levels = "levels",
        /// Ratios to the baseline, including A/A comparisons: a row for each comparison and metric.
        Tolls = "tolls",
        /// Breakdown of connect time by phase: a row for each cell that connects.
        Phases = "phases",
        /// Latency percentiles: a row for each cell.
        Percentiles = "percentiles",
        /// CPU time per operation by role: a row for each cell.
        Cpu = "cpu",
        /// Ratios to the baseline block by block: a row for each block, cell and metric.
        Blocks = "blocks",
        /// Breakdown of connect time by key and version: a row for each cell that has one.
        ConnectCost = "connect-cost",
        /// Pages, WAL or redo, checkpoints and sync latency: a row for each cell.
        Crossings = "crossings",
        /// Connect times and round trip of the link: a row for each cell with a known round trip.
        Rtt = "rtt",
    }
}

/// The numbers of `plot`, a header first; lines end in CR LF.
pub fn csv(report: &RunReport<'_>, plot: Plot) -> String {
    let mut rows = vec![cell_header()];
    match plot {
        Plot::Levels => levels(report, &LEVELS, &mut rows),
        Plot::Percentiles => levels(report, &PERCENTILES, &mut rows),
        Plot::Cpu => levels(report, &CPU, &mut rows),
        Plot::Phases => {
            let phases = Phase::ALL.into_iter().map(Metric::of_phase);
            let metrics: Vec<Metric> = phases.chain([Metric::LatencyNsMean]).collect();
            levels(report, &metrics, &mut rows);
            // A pooled load has a mean latency and no phases.
            let first = cell_header().len() + ABOUT.len();
            let last = first + 3 * Phase::ALL.len();
            rows.retain(|row| row[first..last].iter().any(|field| !field.is_empty()));
        }
        Plot::Tolls => tolls(report, &mut rows),
        Plot::Blocks => blocks(report, &mut rows),
        Plot::ConnectCost => connect_costs(report, &mut rows),
        Plot::Crossings => levels(report, &CROSSINGS, &mut rows),
        Plot::Rtt => over_links(report, &mut rows),
    }
    rows.iter().map(|row| line(row)).collect()
}

const LEVELS: [Metric; 8] = [
    Metric::RatePerS,
    Metric::StatementsPerS,
    Metric::LatencyNsMean,
    Metric::ServiceNsMean,
    Metric::ScheduleLagNsP99,
    Metric::SetUpNs,
    Metric::RssBytesClient,
    Metric::RssBytesServer,
];
const PERCENTILES: [Metric; 6] = [
    Metric::LatencyNsP50,
    Metric::LatencyNsP95,
    Metric::LatencyNsP99,
    Metric::ServiceNsP50,
    Metric::ServiceNsP95,
    Metric::ServiceNsP99,
];
const CPU: [Metric; 4] =
    [Metric::CpuUsPerOpClient, Metric::CpuUsPerOpMiddle, Metric::CpuUsPerOpServer, Metric::CpuUsPerOpTotal];

const CROSSINGS: [Metric; 11] = [
    Metric::PagesReadPerOperation,
    Metric::PagesWrittenPerOperation,
    Metric::PageCrossingsPerOperation,
    Metric::WalBytesPerOperation,
    Metric::FullPageImagesPerOperation,
    Metric::WalSyncsPerOperation,
    Metric::CheckpointsBegun,
    Metric::CheckpointsCompleted,
    Metric::CheckpointAgeBytes,
    Metric::FsyncNsP50,
    Metric::FsyncNsP99,
];

/// The columns between a cell and its levels.
const ABOUT: [&str; 2] = ["role", "blocks_used"];

type CsvRow = Vec<String>;

fn cell_header() -> CsvRow {
    let factors = Factor::ALL.into_iter().map(|factor| factor.label().replace('-', "_"));
    std::iter::once("cell".to_owned()).chain(factors).collect()
}

fn cell_fields(cell: &CellAnalysis) -> CsvRow {
    let factors = Factor::ALL.into_iter().map(|factor| cell.cell.level(factor).unwrap_or_default());
    std::iter::once(cell.id.0.clone()).chain(factors).collect()
}

fn levels(report: &RunReport<'_>, metrics: &[Metric], rows: &mut Vec<CsvRow>) {
    let names = metrics.iter().flat_map(|metric| {
        let name = metric.label();
        [name.to_owned(), format!("{name}_ci_low"), format!("{name}_ci_high")]
    });
    rows[0].extend(ABOUT.map(str::to_owned).into_iter().chain(names));
    let measured = |cell: &&CellAnalysis| cell.metrics.values().any(is_certain);
    for cell in report.analysis.cells().into_iter().filter(measured) {
        let role = match cell.role {
            CellRole::Baseline => "baseline",
            CellRole::Treatment => "treatment",
        };
        let levels = metrics.iter().flat_map(|metric| estimate(cell.metrics.get(metric)));
        let about = [role.to_owned(), cell.blocks_used.to_string()];
        rows.push(cell_fields(cell).into_iter().chain(about).chain(levels).collect());
    }
}

fn tolls(report: &RunReport<'_>, rows: &mut Vec<CsvRow>) {
    const HEADER: [&str; 13] = [
        "compared_with",
        "arm",
        "metric",
        "ratio",
        "ratio_ci_low",
        "ratio_ci_high",
        "hodges_lehmann_ratio",
        "pairs",
        "p_adjusted",
        "verdict",
        "doubt",
        "margin_share",
        "noise_floor_share",
    ];
    rows[0].extend(HEADER.map(str::to_owned));
    for stratum in &view::strata(report) {
        for comparison in stratum.comparisons() {
            let known = comparison.ratios.iter().filter(|(_, ratio)| is_certain(&ratio.ratio));
            rows.extend(known.map(|(metric, ratio)| {
                let compared = [stratum.baseline.id.0.clone(), arm_label(comparison.arm).to_owned()];
                let fields = ratio_fields(stratum, *metric, ratio);
                cell_fields(&comparison.cell).into_iter().chain(compared).chain(fields).collect()
            }));
        }
    }
}

fn ratio_fields(stratum: &StratumView<'_>, metric: Metric, ratio: &PairedRatio) -> CsvRow {
    let (verdict, doubt) = match ratio.verdict {
        None => ("", ""),
        Some(Verdict::Differs) => ("differs", ""),
        Some(Verdict::SameWithin { .. }) => ("same_within", ""),
        Some(Verdict::RealButNegligible { .. }) => ("real_but_negligible", ""),
        Some(Verdict::Inconclusive { why, .. }) => (
            "inconclusive",
            match why {
                Doubt::TooFewBlocks => "too_few_blocks",
                Doubt::BelowNoiseFloor => "below_noise_floor",
                Doubt::TooManyVoided => "too_many_voided",
            },
        ),
    };
    let mut fields = vec![metric.label().to_owned()];
    fields.extend(estimate(Some(&ratio.ratio)));
    fields.extend([
        ratio.hodges_lehmann.to_string(),
        ratio.pairs.to_string(),
        ratio.p_adjusted.map(|p| p.to_string()).unwrap_or_default(),
        verdict.to_owned(),
        doubt.to_owned(),
        margin(metric, &stratum.report.plan.margins).to_string(),
        stratum.noise_floor_of(metric).map(|floor| floor.to_string()).unwrap_or_default(),
    ]);
    fields
}

fn blocks(report: &RunReport<'_>, rows: &mut Vec<CsvRow>) {
    rows[0].extend(["compared_with", "arm", "block", "metric", "ratio"].map(str::to_owned));
    for stratum in &view::strata(report) {
        for comparison in stratum.comparisons() {
            for metric in Metric::ALL {
                let ratios = chart::ratios_by_block(report, comparison, *metric);
                rows.extend(ratios.into_iter().map(|(block, ratio)| {
                    let about = [
                        stratum.baseline.id.0.clone(),
                        arm_label(comparison.arm).to_owned(),
                        block.to_string(),
                        metric.label().to_owned(),
                        ratio.to_string(),
                    ];
                    cell_fields(&comparison.cell).into_iter().chain(about).collect()
                }));
            }
        }
    }
}

fn connect_costs(report: &RunReport<'_>, rows: &mut Vec<CsvRow>) {
    let total = Metric::LatencyNsMean.label();
    rows[0].extend(CostPart::ALL.map(|part| format!("{}_ns", part.label())));
    rows[0].extend([total.to_owned(), format!("{total}_ci_low"), format!("{total}_ci_high")]);
    for costs in &connect_cost::of(report) {
        let part = |bar: &Bar<'_>, part| bar.parts.get(&part).map(f64::to_string).unwrap_or_default();
        rows.extend(costs.bars.iter().map(|bar| {
            let parts = CostPart::ALL.map(|of| part(bar, of));
            cell_fields(bar.cell).into_iter().chain(parts).chain(estimate(Some(bar.total))).collect()
        }));
    }
}

fn over_links(report: &RunReport<'_>, rows: &mut Vec<CsvRow>) {
    const HEADER: [&str; 9] = [
        "rtt_ns",
        "round_trips",
        "round_trips_tcp",
        "latency_ns_mean",
        "latency_ns_mean_ci_low",
        "latency_ns_mean_ci_high",
        "beyond_ns",
        "beyond_ns_ci_low",
        "beyond_ns_ci_high",
    ];
    rows[0].extend(HEADER.map(str::to_owned));
    for over in &round_trips::of(report) {
        for series in &over.series {
            let known = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
            rows.extend(series.points.iter().map(|point| {
                let about = [
                    round_trips::rtt_ns(point.link).map(|rtt_ns| rtt_ns.to_string()).unwrap_or_default(),
                    known(series.total()),
                    known(series.round_trips.map(|round_trips| round_trips.tcp)),
                ];
                let beyond = estimate(series.beyond(point).as_ref());
                let times = estimate(Some(point.time)).into_iter().chain(beyond);
                cell_fields(point.cell).into_iter().chain(about).chain(times).collect()
            }));
        }
    }
}

fn arm_label(arm: Arm) -> &'static str {
    match arm {
        Arm::Main => "main",
        Arm::Repeat => "repeat",
    }
}

fn estimate(estimate: Option<&Estimate>) -> [String; 3] {
    match estimate.filter(|estimate| is_certain(estimate)) {
        Some(Estimate { value, ci_low, ci_high, .. }) => [Some(*value), *ci_low, *ci_high]
            .map(|number| number.map(|number| number.to_string()).unwrap_or_default()),
        None => Default::default(),
    }
}

pub(crate) fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    fields.join(",") + "\r\n"
}

/// Quoted if a reader would otherwise see more than one field.
fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stay_fields() {
        let fields = ["plain", "a,b", "say \"hi\"", "two\nlines", ""].map(str::to_owned);
        assert_eq!(line(&fields), "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\r\n");
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<&str> = Plot::ALL.into_iter().map(Plot::label).collect();
        assert_eq!(labels.len(), Plot::ALL.len());
    }
}
