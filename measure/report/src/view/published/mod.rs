//! A published study compared with this run: costs, because the machines differ.

mod claims;
mod rows;

use ciphertoll_model::presets::{Preset, Published, Study};
use ciphertoll_model::{AtRest, Link, Metric};
use ciphertoll_stats::{CellAnalysis, Interval};

pub(crate) use self::claims::Standing;
pub(crate) use self::rows::{Agreement, StudyRow};
use super::{Column, ColumnKind, Section, Sentence, Table, TableEntry};
use crate::number::{no_interval, quantity, significant, uncertainty};
use crate::{RunReport, names};

/// A study and this run, in the order of a page.
pub(crate) struct StudyView<'a> {
    pub(crate) preset: &'static Preset,
    /// Who, on what machine, what was asked, what was found, what was advised.
    pub(crate) told: Section,
    /// How many costs differ, and which differs most.
    pub(crate) answer: Sentence,
    /// By server: the numbers that are compared.
    pub(crate) compared: Vec<Section>,
    pub(crate) conclusions: Section,
    /// By server: the other numbers, with the reasons.
    pub(crate) others: Vec<Section>,
    /// Source, explanations and deviations.
    pub(crate) background: Section,
    /// By server: every published number.
    pub(crate) rows: Vec<Vec<StudyRow<'a>>>,
}

/// A conclusion on a server, or on none.
pub(crate) struct Tested {
    pub(crate) said: &'static str,
    pub(crate) server: Option<String>,
    pub(crate) standing: Standing,
    pub(crate) reason: String,
}

/// The study that the run repeats; `None` for presets that repeat none.
pub(crate) fn study(report: &RunReport<'_>) -> Option<&'static Preset> {
    ciphertoll_model::presets::find(&report.plan.name).filter(|preset| preset.study.is_some())
}

/// `None` if nothing in the run corresponds to the study.
pub(crate) fn of_report<'a>(report: &RunReport<'a>) -> Option<StudyView<'a>> {
    let preset = study(report)?;
    let study = preset.study.as_ref()?;
    let servers = rows::servers(report, preset);
    let rows: Vec<Vec<StudyRow<'_>>> =
        servers.iter().map(|server| rows::of_server(report, preset, server)).collect();
    if !rows.iter().flatten().any(StudyRow::is_repeated) {
        return None;
    }
    let mut compared: Vec<Section> = rows.iter().filter_map(|rows| compared(report, preset, rows)).collect();
    if let Some(first) = compared.first_mut() {
        first.notes.insert(0, Sentence::neutral(rows::RULE));
    }
    Some(StudyView {
        preset,
        told: told(preset, study),
        answer: answer(report, rows.iter().flatten()),
        compared,
        conclusions: conclusions(report, study, &rows),
        others: rows.iter().filter_map(|rows| others(report, rows)).collect(),
        background: background(preset),
        rows,
    })
}

/// The whole comparison, for reports without folds.
pub(crate) fn sections(report: &RunReport<'_>) -> Vec<Section> {
    let Some(view) = of_report(report) else { return Vec::new() };
    let StudyView { mut told, answer, compared, conclusions, others, background, .. } = view;
    told.notes.push(answer);
    let left_out: usize =
        others.iter().filter_map(|section| section.table.as_ref()).map(|table| table.rows.len()).sum();
    let page = format!(
        "{left_out} more published numbers, without a counterpart here, are in the HTML page, with the reasons."
    );
    let mut sections = vec![told];
    sections.extend(compared);
    sections.extend([conclusions, background]);
    if let Some(last) = sections.last_mut().filter(|_| left_out > 0) {
        last.notes.push(Sentence::neutral(page));
    }
    sections
}

/// The published ratios that correspond to a cell; none if the run repeats no study.
pub(crate) fn of_cell(report: &RunReport<'_>, cell: &CellAnalysis) -> Vec<Published> {
    let Some(preset) = study(report) else { return Vec::new() };
    if !preset.is_of(cell.cell.treatment.server.engine) {
        return Vec::new();
    }
    let is_equal = |published: &Published| published.has_equal(&cell.cell, &report.plan.settings);
    preset.published().into_iter().filter(is_equal).collect()
}

/// Every conclusion, on each server that can test it.
pub(crate) fn tested(report: &RunReport<'_>, study: &Study, rows: &[Vec<StudyRow<'_>>]) -> Vec<Tested> {
    let mut all: Vec<Tested> = Vec::new();
    for conclusion in study.conclusions {
        for rows in rows {
            let (standing, reason) = claims::judged(conclusion.claim, rows);
            let server = rows.first().and_then(|row| server_name(report, row));
            // What no server can test is said once.
            let is_again =
                all.last().is_some_and(|last| last.said == conclusion.said && last.reason == reason);
            match all.last_mut().filter(|_| is_again && standing == Standing::NotTested) {
                Some(last) => last.server = None,
                None => all.push(Tested { said: conclusion.said, server, standing, reason }),
            }
        }
    }
    all
}

fn told(preset: &Preset, study: &Study) -> Section {
    let sentences = study.sentences.iter().map(|sentence| Sentence::neutral(format!("{sentence}.")));
    Section {
        heading: format!("The published study {}", preset.name),
        table: None,
        notes: sentences.collect(),
    }
}

/// The server, if there are several.
fn server_name(report: &RunReport<'_>, row: &StudyRow<'_>) -> Option<String> {
    (report.plan.servers().len() > 1).then(|| row.server.short_name())
}

fn heading(report: &RunReport<'_>, what: &str, rows: &[StudyRow<'_>]) -> String {
    let server =
        rows.first().map_or(String::new(), |row| format!(" · {}", names::server(report, row.server)));
    format!("{what}{server}")
}

fn compared(report: &RunReport<'_>, preset: &Preset, rows: &[StudyRow<'_>]) -> Option<Section> {
    let shown: Vec<&StudyRow<'_>> = rows.iter().filter(|row| row.is_repeated()).collect();
    let what = format!("Compared with the published study: {}", preset.name);
    let table = (!shown.is_empty()).then(|| table(&shown));
    Some(Section { heading: heading(report, &what, rows), table: Some(table?), notes: losses(&shown) })
}

fn others(report: &RunReport<'_>, rows: &[StudyRow<'_>]) -> Option<Section> {
    let shown: Vec<&StudyRow<'_>> = rows.iter().filter(|row| !row.is_repeated()).collect();
    let heading = heading(report, "Published numbers without a counterpart", rows);
    (!shown.is_empty()).then(|| Section { heading, table: Some(table(&shown)), notes: Vec::new() })
}

/// One row for each published number.
fn table(rows: &[&StudyRow<'_>]) -> Table {
    let columns = [
        (ColumnKind::Level, "published"),
        (ColumnKind::Level, "here"),
        (ColumnKind::Ratio, "cost,\npublished"),
        (ColumnKind::Ratio, "cost,\nhere"),
        (ColumnKind::Text, "comparison"),
    ];
    let columns = columns.map(|(kind, heading)| Column::new(kind, heading));
    let row = |row: &&StudyRow<'_>| {
        let entries = [
            TableEntry::text(&row.number.printed),
            here(row),
            published_cost(row),
            cost_here(row),
            TableEntry::new([row.agreement.label().to_owned(), row.reason.clone()]),
        ];
        (row.number.subject.clone(), entries.to_vec())
    };
    Table::new("configuration", columns, rows.iter().map(row))
}

fn here(row: &StudyRow<'_>) -> TableEntry {
    let metric = row.number.place.as_ref().map(|place| place.metric);
    let Some((metric, level)) = metric.zip(row.level) else { return TableEntry::absent() };
    let interval = level.interval().map(|_| uncertainty(metric, level));
    TableEntry::new([quantity(metric, level.value)].into_iter().chain(interval))
}

fn published_cost(row: &StudyRow<'_>) -> TableEntry {
    let Some((cost, sd)) = row.published_cost() else { return TableEntry::absent() };
    let sd = sd.map(|sd| format!("±{} (sd)", significant(sd)));
    TableEntry::new(std::iter::once(format!("{} ×", significant(cost))).chain(sd))
}

fn cost_here(row: &StudyRow<'_>) -> TableEntry {
    let Some((place, ratio)) = row.number.place.as_ref().zip(row.ratio) else { return TableEntry::absent() };
    let cost = rows::cost(place.metric, ratio);
    let interval = ratio.interval().map(|_| format!("{}–{}", significant(cost.low), significant(cost.high)));
    TableEntry::new(std::iter::once(format!("{} ×", significant(cost.value))).chain(interval))
}

fn conclusions(report: &RunReport<'_>, study: &Study, rows: &[Vec<StudyRow<'_>>]) -> Section {
    let row = |tested: Tested| {
        let server = tested.server.map_or(String::new(), |server| format!(" ({server})"));
        let standing = format!("{}{server}", tested.standing.label());
        (tested.said.to_owned(), vec![TableEntry::text(standing), TableEntry::text(tested.reason)])
    };
    let columns = ["here", "why"].map(|heading| Column::new(ColumnKind::Text, heading));
    let table = Table::new("conclusion", columns, tested(report, study, rows).into_iter().map(row));
    Section { heading: "The authors' conclusions".to_owned(), table: Some(table), notes: Vec::new() }
}

fn background(preset: &Preset) -> Section {
    let explained = preset.explanation.iter().map(|line| format!("Explanation: {line}."));
    let deviations = preset.deviations.iter().map(|line| format!("Deviation: {line}."));
    let source = format!("Source: {}.", preset.source);
    let notes = std::iter::once(source).chain(explained).chain(deviations).map(Sentence::neutral).collect();
    Section { heading: "Source, explanation and deviations".to_owned(), table: None, notes }
}

/// How many costs differ from the published ones, and the largest difference.
fn answer<'a>(report: &RunReport<'_>, rows: impl Iterator<Item = &'a StudyRow<'a>>) -> Sentence {
    let repeated: Vec<&StudyRow<'_>> = rows.filter(|row| row.is_repeated()).collect();
    let why = repeated.first().map(|row| row.reason.as_str());
    let known: Vec<&StudyRow<'_>> = repeated.iter().copied().filter(|row| row.is_compared()).collect();
    let apart: Vec<&&StudyRow<'_>> = known.iter().filter(|row| row.agreement == Agreement::Differ).collect();
    let distance = |row: &StudyRow<'_>| {
        let (then, here) = row.published_cost().zip(row.cost())?;
        Some((here.value / then.0).ln().abs())
    };
    let farthest =
        apart.iter().max_by(|a, b| distance(a).unwrap_or(0.0).total_cmp(&distance(b).unwrap_or(0.0)));
    let numbers = farthest.and_then(|row| Some((row, row.published_cost()?.0, row.cost()?)));
    let Some((row, then, here)) = numbers else {
        let all = match known.len() {
            0 => format!("Not compared with the published costs: {}.", why.unwrap_or_default()),
            count => format!("All {count} compared costs agree with the published ones."),
        };
        return Sentence::neutral(all);
    };
    let place = row.compared();
    let encrypts = place.is_none_or(|place| place.path.as_proxy().is_none());
    let so = match (encrypts, here.value > then) {
        (true, true) => "encryption costs more here",
        (true, false) => "encryption costs less here",
        // A proxy saves the cost of connects.
        (false, true) => "the proxy gains less here",
        (false, false) => "the proxy gains more here",
    };
    let is_at_rest = place.is_some_and(|place| place.at_rest != AtRest::None);
    let baseline = if is_at_rest { "that of unencrypted files" } else { "that of plain" };
    let server = server_name(report, row).map_or(String::new(), |server| format!("{server}: "));
    Sentence::neutral(format!(
        "{} of {} costs differ from the published ones. The largest difference is {server}{}, whose cost was {} × {baseline} \
         and is {} × ({}–{}) here: {so}.",
        apart.len(),
        known.len(),
        row.number.subject,
        significant(then),
        significant(here.value),
        significant(here.low),
        significant(here.high),
    ))
}

/// Published connect rates as lost connects, one sentence for each cell.
fn losses(rows: &[&StudyRow<'_>]) -> Vec<Sentence> {
    let lost = |cost: f64| (1.0 - 1.0 / cost) * 100.0;
    // Studies over a link counted connects; the study of driver phases did not.
    let is_loss = |row: &&&StudyRow<'_>| {
        row.compared().is_some_and(|one| one.metric == Metric::LatencyNsMean && one.link != Link::Local)
    };
    let mut firsts: Vec<&StudyRow<'_>> = Vec::new();
    for row in rows.iter().filter(is_loss) {
        let is_same =
            |known: &&StudyRow<'_>| known.cell.map(|cell| &cell.id) == row.cell.map(|cell| &cell.id);
        if !firsts.iter().any(is_same) {
            firsts.push(row);
        }
    }
    let sentence = |first: &&StudyRow<'_>| {
        let (cell, here) = (first.cell?, first.ratio?);
        let builds = rows.iter().filter(|row| row.cell.is_some_and(|other| other.id == cell.id));
        let then: Vec<f64> = builds.filter_map(|row| Some(lost(row.published_cost()?.0))).collect();
        let least = then.iter().copied().fold(f64::INFINITY, f64::min);
        let most = then.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let doubt = match here.interval() {
            Some(Interval { low, high }) => format!(" ({:.1}–{:.1} %)", lost(low), lost(high)),
            None => format!(", {},", no_interval(here)),
        };
        let treatment = &cell.cell.treatment;
        let key = treatment.path.as_tls().and_then(|tls| tls.key);
        Some(Sentence::neutral(format!(
            "Connects lost on {} over {} with {}: {:.1} %{doubt} here, {least:.1}–{most:.1} % published.",
            treatment.server.short_name(),
            treatment.link,
            key.map_or_else(|| treatment.path.to_string(), |key| key.label().to_owned()),
            lost(here.value),
        )))
    };
    firsts.iter().filter_map(sentence).collect()
}
