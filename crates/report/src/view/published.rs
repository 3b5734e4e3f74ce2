//! A published study beside what was measured here: ratios, since machines are not the same.

use ciphertoll_model::{AtRest, Link, Metric};
use ciphertoll_presets::{Preset, Published};
use ciphertoll_stats::{CellAnalysis, Estimate};

use super::{Column, Entry, Overflow, Part, Section, Statement, Table};
use crate::number::{is_certain, ratio, ratio_interval, significant};
use crate::{RunReport, names};

/// Standard deviations that a published ratio may lie off an interval and still agree with it.
const AGREEING_SDS: f64 = 2.0;
/// With an interval of which one end is so many times the other, a ratio agrees with almost anything.
const WIDE: f64 = 2.0;

/// A published ratio and what was found for it here.
struct Pair<'a> {
    cell: &'a CellAnalysis,
    published: Published,
    here: Option<&'a Estimate>,
}

impl Pair<'_> {
    /// Whether both are of one cell, and of one build then.
    fn is_beside(&self, other: &Self) -> bool {
        self.cell.id == other.cell.id && self.published.of == other.published.of
    }

    /// What is not encrypted in what it is compared with.
    fn clear(&self) -> &'static str {
        if self.is_at_rest() { "files in the clear" } else { "plain" }
    }

    fn is_at_rest(&self) -> bool {
        self.published.at_rest != AtRest::None
    }

    /// The tables ÷ the buffers, then and here.
    fn data_to_cache(&self, report: &RunReport<'_>) -> Option<[f64; 2]> {
        Some([self.published.data_to_cache?, self.cell.cell.data_to_cache(&report.plan.settings)?])
    }
}

pub(crate) fn section(report: &RunReport<'_>) -> Option<Section> {
    let preset = ciphertoll_presets::find(&report.plan.name)?;
    let pairs = pairs(report);
    if pairs.is_empty() {
        return None;
    }
    let metrics = metrics(&pairs);
    let has_data = pairs.iter().any(|pair| pair.published.data_to_cache.is_some());
    let data = has_data.then_some("data ÷\ncache");
    let names = data.into_iter().chain(metrics.iter().map(|metric| metric.title()));
    let columns = names.flat_map(|name| [format!("{name}\nthen"), format!("{name}\nhere")]);
    let columns = columns.map(|heading| Column::new(Part::Toll, &heading));
    let clear = pairs.first().map_or("plain", Pair::clear);
    Some(Section {
        heading: format!("Published and measured: {} · encrypted ÷ {clear}", preset.name),
        table: Some(Table {
            columns: std::iter::once(Column::new(Part::Label, "")).chain(columns).collect(),
            rows: rows(report, &pairs, &metrics),
            overflow: Overflow::SplitParts,
        }),
        notes: notes(preset, &pairs, report),
    })
}

/// The published figures that a cell here is an equal of; none where the run repeats no study.
pub(crate) fn of_cell(report: &RunReport<'_>, cell: &CellAnalysis) -> Vec<Published> {
    let Some(preset) = ciphertoll_presets::find(&report.plan.name) else { return Vec::new() };
    if !preset.is_of(cell.cell.treatment.server.engine) {
        return Vec::new();
    }
    let is_equal = |published: &Published| published.has_equal(&cell.cell, &report.plan.settings);
    preset.published().into_iter().filter(is_equal).collect()
}

/// Each beside what was found here.
fn pairs<'a>(report: &RunReport<'a>) -> Vec<Pair<'a>> {
    let pairs_of = |cell: &'a CellAnalysis| {
        let pair = |published: Published| {
            let here = cell.tolls.get(&published.metric).map(|toll| &toll.ratio);
            Pair { cell, published, here: here.filter(|here| is_certain(here)) }
        };
        of_cell(report, cell).into_iter().map(pair).collect::<Vec<_>>()
    };
    report.analysis.cells.iter().flat_map(pairs_of).collect()
}

fn metrics(pairs: &[Pair<'_>]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = pairs.iter().map(|pair| pair.published.metric).collect();
    metrics.sort_unstable();
    metrics.dedup();
    metrics
}

/// One for each cell and each build of then, in the plan's order.
fn rows(report: &RunReport<'_>, pairs: &[Pair<'_>], metrics: &[Metric]) -> Vec<Vec<Entry>> {
    let mut kinds: Vec<&Pair<'_>> = Vec::new();
    for pair in pairs {
        if !kinds.iter().any(|known| known.is_beside(pair)) {
            kinds.push(pair);
        }
    }
    let entries = |kind: &Pair<'_>, metric: Metric| {
        let found = pairs.iter().find(|pair| pair.is_beside(kind) && pair.published.metric == metric);
        match found {
            Some(pair) => [then(&pair.published), here(pair.here)],
            None => [Entry::new([String::new()]), Entry::new([String::new()])],
        }
    };
    let row = |kind: &&Pair<'_>| {
        let label = Entry::new([name(report, kind)]);
        let data = kind.data_to_cache(report).into_iter().flatten();
        let data = data.map(|data| Entry::new([format!("{} ×", significant(data))]));
        std::iter::once(label)
            .chain(data)
            .chain(metrics.iter().flat_map(|&metric| entries(kind, metric)))
            .collect()
    };
    kinds.iter().map(row).collect()
}

/// `connect at 1 client, rsa2048`, with the server where there are several, the link where there is one, and the build of
/// then where there were several.
fn name(report: &RunReport<'_>, pair: &Pair<'_>) -> String {
    let treatment = &pair.cell.cell.treatment;
    let encrypted = if pair.is_at_rest() { treatment.at_rest.to_string() } else { name_of_path(pair) };
    let link = (treatment.link != Link::Local).then(|| treatment.link.to_string());
    let build = pair.published.of.map(ToOwned::to_owned);
    let has_other_drivers = report.plan.cells.iter().any(|cell| cell.treatment.driver != treatment.driver);
    let driver = has_other_drivers.then(|| format!("driver {}", treatment.driver));
    // Where all have the same load, the heading's words are enough.
    let own = names::load(&pair.cell.cell);
    let has_others = report.plan.cells.iter().any(|cell| names::load(cell) != own);
    let load = has_others.then_some(own);
    let name = load
        .into_iter()
        .chain([encrypted])
        .chain(driver)
        .chain(link)
        .chain(build)
        .collect::<Vec<_>>()
        .join(", ");
    if report.plan.servers().len() > 1 { format!("{}: {name}", treatment.server.short_name()) } else { name }
}

/// The same where no column says how much of the data is cached.
fn name_with_data(report: &RunReport<'_>, pair: &Pair<'_>) -> String {
    match pair.data_to_cache(report) {
        Some([_, here]) => format!("{}, with data of {} × the cache", name(report, pair), significant(here)),
        None => name(report, pair),
    }
}

/// By what it differs from the others of then: its key, or all of it.
fn name_of_path(pair: &Pair<'_>) -> String {
    let path = pair.cell.cell.treatment.path;
    match path.as_tls().and_then(|tls| tls.key) {
        Some(key) => key.label().to_owned(),
        None => path.to_string(),
    }
}

fn then(published: &Published) -> Entry {
    let sd = published.ratio_sd.map(|sd| format!("±{} (sd)", significant(sd)));
    Entry::new(std::iter::once(format!("{} ×", significant(published.ratio))).chain(sd))
}

fn here(estimate: Option<&Estimate>) -> Entry {
    match estimate {
        Some(estimate) => Entry::new([format!("{} ×", ratio(estimate)), ratio_interval(estimate)]),
        None => Entry::absent(),
    }
}

fn notes(preset: &Preset, pairs: &[Pair<'_>], report: &RunReport<'_>) -> Vec<Statement> {
    let mut notes: Vec<Statement> = disagreement(pairs, report).into_iter().collect();
    notes.extend(losses(pairs));
    notes.push(Statement::neutral(format!("Published by: {}.", preset.source)));
    let explained = preset.explanation.iter();
    notes.extend(explained.map(|line| Statement::neutral(format!("Explained: {line}."))));
    notes.extend(preset.deviations.iter().map(|line| Statement::neutral(format!("Deviation: {line}."))));
    notes
}

/// The one sentence that the two columns ask for, derived from them.
fn disagreement(pairs: &[Pair<'_>], report: &RunReport<'_>) -> Option<Statement> {
    let known: Vec<(&Pair<'_>, &Estimate)> =
        pairs.iter().filter_map(|pair| Some((pair, pair.here?))).collect();
    if known.is_empty() {
        return None;
    }
    let apart = |(pair, here): &&(&Pair<'_>, &Estimate)| !agrees(&pair.published, here);
    let count = known.iter().filter(apart).count();
    let distance = |(pair, here): &(&Pair<'_>, &Estimate)| (here.value / pair.published.ratio).ln().abs();
    let farthest = known.iter().filter(apart).max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some((pair, here)) = farthest else {
        let is_wide = |(_, here): &&(&Pair<'_>, &Estimate)| here.high() > here.low() * WIDE;
        let reserve = match known.iter().filter(is_wide).count() {
            0 => String::new(),
            wide => {
                format!(", which says little: {wide} of their intervals span more than a factor of {WIDE}")
            }
        };
        return Some(Statement::neutral(format!(
            "All {} ratios agree with the published ones{reserve}.",
            known.len()
        )));
    };
    // Of a rate less is dearer, of a time more.
    let factor = here.value / pair.published.ratio;
    let dearer = (factor > 1.0) != (pair.published.metric == Metric::RatePerS);
    let encrypts = pair.published.path.as_proxy().is_none();
    let so = match (encrypts, dearer) {
        (true, true) => "encryption takes more of it",
        (true, false) => "encryption takes less of it",
        // A proxy saves what the connect costs.
        (false, true) => "less is gained by it",
        (false, false) => "more is gained by it",
    };
    Some(Statement::neutral(format!(
        "{count} of {} ratios differ from the published ones, most of all {}: the {} was {} × that of {} then and is \
         {} × ({}) here, so that {so}.",
        known.len(),
        name_with_data(report, pair),
        pair.published.metric.title(),
        significant(pair.published.ratio),
        pair.clear(),
        ratio(here),
        ratio_interval(here),
    )))
}

/// Times of a connect that were published as a loss of connects, as that: one sentence for each cell.
fn losses(pairs: &[Pair<'_>]) -> Vec<Statement> {
    let lost = |ratio: f64| (1.0 - 1.0 / ratio) * 100.0;
    let mut cells: Vec<&Pair<'_>> = Vec::new();
    // A study over a link counted connects; one of a driver's phases did not.
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
        Some(Statement::neutral(format!(
            "Connects lost on {} over {} by {}: {least:.1}–{most:.1} % then, {:.1} % ({:.1}–{:.1} %) here.",
            treatment.server.short_name(),
            treatment.link,
            name_of_path(first),
            lost(here.value),
            lost(here.low()),
            lost(here.high()),
        )))
    };
    cells.iter().filter_map(sentence).collect()
}

/// Whether what was published lies in the interval, its own deviation counted.
fn agrees(published: &Published, here: &Estimate) -> bool {
    let reach = AGREEING_SDS * published.ratio_sd.unwrap_or(0.0);
    published.ratio + reach >= here.low() && published.ratio - reach <= here.high()
}
