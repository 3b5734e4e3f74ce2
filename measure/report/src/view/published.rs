//! A published study compared with this run: ratios, because the machines differ.

use ciphertoll_model::presets::{Preset, Published};
use ciphertoll_model::{AtRest, Link, Metric};
use ciphertoll_stats::{CellAnalysis, Estimate, Interval};

use super::{Column, ColumnKind, Section, Sentence, Table, TableEntry, certain_ratio};
use crate::number::{no_interval, ratio, ratio_interval, significant};
use crate::{RunReport, names};

/// A published ratio agrees with an interval within this many of its standard deviations.
const AGREEING_SDS: f64 = 2.0;
/// A ratio agrees with almost anything if one limit of its interval is this many times the other.
const WIDE: f64 = 2.0;

/// A published ratio and the one measured here.
struct Pair<'a> {
    cell: &'a CellAnalysis,
    published: Published,
    here: Option<&'a Estimate>,
}

impl Pair<'_> {
    /// Whether both belong to the same cell and the same published build.
    fn is_beside(&self, other: &Self) -> bool {
        self.cell.id == other.cell.id && self.published.of == other.published.of
    }

    fn clear(&self) -> &'static str {
        if self.is_at_rest() { "unencrypted files" } else { "plain" }
    }

    fn is_at_rest(&self) -> bool {
        self.published.at_rest != AtRest::None
    }

    /// Tables ÷ buffers, published and here.
    fn data_to_cache(&self, report: &RunReport<'_>) -> Option<[f64; 2]> {
        Some([self.published.data_to_cache?, self.cell.cell.data_to_cache(&report.plan.settings)?])
    }
}

/// The comparison with the source, explanations and deviations among its notes.
pub(crate) fn section(report: &RunReport<'_>) -> Option<Section> {
    let (mut section, background) = section_and_background(report)?;
    section.notes.extend(background);
    Some(section)
}

/// The study that the run repeats; `None` for presets without published figures.
pub(crate) fn study(report: &RunReport<'_>) -> Option<&'static Preset> {
    ciphertoll_model::presets::find(&report.plan.name).filter(|preset| !preset.published().is_empty())
}

/// The comparison, and apart from it its source, explanations and deviations.
pub(crate) fn section_and_background(report: &RunReport<'_>) -> Option<(Section, Vec<Sentence>)> {
    let preset = study(report)?;
    let pairs = pairs(report);
    if pairs.is_empty() {
        return None;
    }
    let metrics = metrics(&pairs);
    let has_data = pairs.iter().any(|pair| pair.published.data_to_cache.is_some());
    let data = has_data.then_some("data ÷\ncache");
    let names = data.into_iter().chain(metrics.iter().map(|metric| metric.title()));
    let columns = names.flat_map(|name| [format!("{name}\npublished"), format!("{name}\nhere")]);
    let columns = columns.map(|heading| Column::new(ColumnKind::Ratio, &heading));
    let clear = pairs.first().map_or("plain", Pair::clear);
    let section = Section {
        heading: format!("Compared with the published study: {} · encrypted ÷ {clear}", preset.name),
        table: Some(Table::new("configuration", columns, rows(report, &pairs, &metrics))),
        notes: disagreement(&pairs, report).into_iter().chain(losses(&pairs)).collect(),
    };
    Some((section, background(preset)))
}

/// The published figures that correspond to a cell; none if the run repeats no study.
pub(crate) fn of_cell(report: &RunReport<'_>, cell: &CellAnalysis) -> Vec<Published> {
    let Some(preset) = study(report) else { return Vec::new() };
    if !preset.is_of(cell.cell.treatment.server.engine) {
        return Vec::new();
    }
    let is_equal = |published: &Published| published.has_equal(&cell.cell, &report.plan.settings);
    preset.published().into_iter().filter(is_equal).collect()
}

fn pairs<'a>(report: &RunReport<'a>) -> Vec<Pair<'a>> {
    let analysis = report.analysis;
    let pairs_of = |cell: &'a CellAnalysis| {
        let comparison = analysis.comparison_of(cell);
        let pair = move |published: Published| {
            let here = comparison.and_then(|comparison| certain_ratio(comparison, published.metric));
            Pair { cell, here: here.map(|here| &here.ratio), published }
        };
        of_cell(report, cell).into_iter().map(pair).collect::<Vec<_>>()
    };
    analysis.cells().into_iter().flat_map(pairs_of).collect()
}

fn metrics(pairs: &[Pair<'_>]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = pairs.iter().map(|pair| pair.published.metric).collect();
    metrics.sort_unstable();
    metrics.dedup();
    metrics
}

/// One for each cell and published build, in the plan's order.
fn rows(report: &RunReport<'_>, pairs: &[Pair<'_>], metrics: &[Metric]) -> Vec<(String, Vec<TableEntry>)> {
    let mut kinds: Vec<&Pair<'_>> = Vec::new();
    for pair in pairs {
        if !kinds.iter().any(|known| known.is_beside(pair)) {
            kinds.push(pair);
        }
    }
    let entries = |kind: &Pair<'_>, metric: Metric| {
        let found = pairs.iter().find(|pair| pair.is_beside(kind) && pair.published.metric == metric);
        match found {
            Some(pair) => [published_entry(&pair.published), here(pair.here)],
            None => [TableEntry::blank(), TableEntry::blank()],
        }
    };
    let row = |kind: &&Pair<'_>| {
        let data = kind.data_to_cache(report).into_iter().flatten();
        let data = data.map(|data| TableEntry::text(format!("{} ×", significant(data))));
        let figures = metrics.iter().flat_map(|&metric| entries(kind, metric));
        (name(report, kind), data.chain(figures).collect())
    };
    kinds.iter().map(row).collect()
}

/// `connect at 1 client, rsa2048`, with server and published build if there are several, and with the link if there is one.
fn name(report: &RunReport<'_>, pair: &Pair<'_>) -> String {
    let treatment = &pair.cell.cell.treatment;
    let encrypted = if pair.is_at_rest() { treatment.at_rest.to_string() } else { name_of_path(pair) };
    let link = (treatment.link != Link::Local).then(|| treatment.link.to_string());
    let build = pair.published.of.map(ToOwned::to_owned);
    let has_other_drivers = report.plan.cells.iter().any(|cell| cell.treatment.driver != treatment.driver);
    let driver = has_other_drivers.then(|| format!("driver {}", treatment.driver));
    // A load that all cells have is in the heading.
    let own = names::load(&pair.cell.cell);
    let has_others = report.plan.cells.iter().any(|cell| names::load(cell) != own);
    let load = has_others.then_some(own);
    let parts = [load, Some(encrypted), driver, link, build];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if report.plan.servers().len() > 1 { format!("{}: {name}", treatment.server.short_name()) } else { name }
}

/// [`name`] with the cached share of the data.
fn name_with_data(report: &RunReport<'_>, pair: &Pair<'_>) -> String {
    match pair.data_to_cache(report) {
        Some([_, here]) => format!("{}, data {} × the cache", name(report, pair), significant(here)),
        None => name(report, pair),
    }
}

/// The part that differs from other published paths: the key, or the whole path.
fn name_of_path(pair: &Pair<'_>) -> String {
    let path = pair.cell.cell.treatment.path;
    match path.as_tls().and_then(|tls| tls.key) {
        Some(key) => key.label().to_owned(),
        None => path.to_string(),
    }
}

fn published_entry(published: &Published) -> TableEntry {
    let sd = published.ratio_sd.map(|sd| format!("±{} (sd)", significant(sd)));
    TableEntry::new(std::iter::once(format!("{} ×", significant(published.ratio))).chain(sd))
}

fn here(estimate: Option<&Estimate>) -> TableEntry {
    match estimate {
        Some(estimate) => TableEntry::new([format!("{} ×", ratio(estimate)), ratio_interval(estimate)]),
        None => TableEntry::absent(),
    }
}

fn background(preset: &Preset) -> Vec<Sentence> {
    let explained = preset.explanation.iter().map(|line| format!("Explanation: {line}."));
    let deviations = preset.deviations.iter().map(|line| format!("Deviation: {line}."));
    let source = format!("Source: {}.", preset.source);
    std::iter::once(source).chain(explained).chain(deviations).map(Sentence::neutral).collect()
}

/// How many ratios differ from the published ones, and the largest difference.
fn disagreement(pairs: &[Pair<'_>], report: &RunReport<'_>) -> Option<Sentence> {
    let measured = pairs.iter().filter_map(|pair| Some((pair, pair.here?)));
    let (known, without_interval): (Vec<(&Pair<'_>, &Estimate)>, Vec<_>) =
        measured.partition(|(_, here)| here.interval().is_some());
    if known.is_empty() {
        let (_, here) = without_interval.first()?;
        let why = format!("Not compared with the published ratios: {}.", no_interval(here));
        return Some(Sentence::neutral(why));
    }
    let apart = |(pair, here): &&(&Pair<'_>, &Estimate)| !agrees(&pair.published, here);
    let count = known.iter().filter(apart).count();
    let distance = |(pair, here): &(&Pair<'_>, &Estimate)| (here.value / pair.published.ratio).ln().abs();
    let farthest = known.iter().filter(apart).max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some((pair, here)) = farthest else {
        let is_wide = |(_, here): &&(&Pair<'_>, &Estimate)| here.high() > here.low() * WIDE;
        let reserve = match known.iter().filter(is_wide).count() {
            0 => String::new(),
            wide => format!(", but {wide} of their intervals span more than a factor of {WIDE}"),
        };
        return Some(Sentence::neutral(format!(
            "All {} ratios agree with the published ones{reserve}.",
            known.len()
        )));
    };
    // A lower rate is a higher cost, and so is a higher latency.
    let factor = here.value / pair.published.ratio;
    let costs_more = (factor > 1.0) != (pair.published.metric == Metric::RatePerS);
    let encrypts = pair.published.path.as_proxy().is_none();
    let so = match (encrypts, costs_more) {
        (true, true) => "encryption costs more here",
        (true, false) => "encryption costs less here",
        // A proxy saves the cost of connects.
        (false, true) => "the proxy gains less here",
        (false, false) => "the proxy gains more here",
    };
    Some(Sentence::neutral(format!(
        "{count} of {} ratios differ from the published ones. The largest difference is {}: the {} compared with {} was {} × \
         and is {} × ({}) here: {so}.",
        known.len(),
        name_with_data(report, pair),
        pair.published.metric.title(),
        pair.clear(),
        significant(pair.published.ratio),
        ratio(here),
        ratio_interval(here),
    )))
}

/// Published connect rates as lost connects, one sentence for each cell.
fn losses(pairs: &[Pair<'_>]) -> Vec<Sentence> {
    let lost = |ratio: f64| (1.0 - 1.0 / ratio) * 100.0;
    let mut cells: Vec<&Pair<'_>> = Vec::new();
    // Studies over a link counted connects; the study of driver phases did not.
    let is_loss = |pair: &&Pair<'_>| {
        pair.published.metric == Metric::LatencyNsMean && pair.published.link != Link::Local
    };
    for pair in pairs.iter().filter(is_loss) {
        if !cells.iter().any(|known| known.cell.id == pair.cell.id) {
            cells.push(pair);
        }
    }
    let sentence = |first: &&Pair<'_>| {
        let here = first.here?;
        let builds = pairs.iter().filter(|pair| pair.cell.id == first.cell.id);
        let then: Vec<f64> = builds.map(|pair| lost(pair.published.ratio)).collect();
        let least = then.iter().copied().fold(f64::INFINITY, f64::min);
        let most = then.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let treatment = &first.cell.cell.treatment;
        let doubt = match here.interval() {
            Some(Interval { low, high }) => format!(" ({:.1}–{:.1} %)", lost(low), lost(high)),
            None => format!(", {},", no_interval(here)),
        };
        Some(Sentence::neutral(format!(
            "Connects lost on {} over {} with {}: {:.1} %{doubt} here, {least:.1}–{most:.1} % published.",
            treatment.server.short_name(),
            treatment.link,
            name_of_path(first),
            lost(here.value),
        )))
    };
    cells.iter().filter_map(sentence).collect()
}

/// Whether the published ratio lies in the interval, with its own deviation.
fn agrees(published: &Published, here: &Estimate) -> bool {
    let reach = AGREEING_SDS * published.ratio_sd.unwrap_or(0.0);
    published.ratio + reach >= here.low() && published.ratio - reach <= here.high()
}
