//! The matrix: what each configuration takes under each load, and its cost compared with the baseline, in the most
//! important metric.

use ciphertoll_model::{Cell, ConnectionUse, Metric};
use ciphertoll_stats::{Comparison, Estimate, headline_metrics};

use super::advice::{Levels, is_at};
use super::levels::verdict_word;
use super::{Column, ColumnKind, StratumView, Table, TableEntry, Tone, certain_ratio, level};
use crate::cost_ratio::{cost, noun_of};
use crate::lists::distinct;
use crate::number::{is_certain, larger_side, measured, quantity, ratio, ratio_interval, uncertainty_in};
use crate::{names, sentence};

/// What the matrix says about one configuration under one load.
struct MatrixField {
    /// Its own value: `1.69 ms`.
    value: Option<String>,
    /// Its cost, with its mark.
    cost: Option<(String, Estimate)>,
    word: String,
    tone: Tone,
}

/// Which way a matrix lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Configurations,
    Loads,
}

/// How the interval of a cost is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// `(8.53–10.56)`
    Limits,
    /// `±11 %`, unless that is misleading.
    PlusMinus,
    /// `±64 %`, the larger of both sides, where limits leave no room for a load.
    LargerSide,
    /// Limits in a line of their own.
    Below,
}

/// A matrix of lines for a terminal: how much each row and column matters.
pub(crate) struct Ranked {
    pub(crate) table: Table,
    pub(crate) rows: Vec<f64>,
    /// Without the label.
    pub(crate) columns: Vec<f64>,
}

/// A row for each configuration, a column for each load and context; `None` without numbers.
pub(crate) fn table(strata: &[StratumView<'_>]) -> Option<Table> {
    let Matrix { shown, levels } = Matrix::of(strata)?;
    let entry = |stratum: &&StratumView<'_>, levels: &Levels| {
        let MatrixField { value, cost, word, tone } = field(stratum, levels);
        let lines = match (cost, value) {
            (Some((cost, estimate)), value) => {
                let word = value.into_iter().chain([word]).collect::<Vec<_>>().join(", ");
                vec![cost, ratio_interval(&estimate), word]
            }
            (None, Some(value)) => vec![value, word],
            (None, None) => vec!["–".to_owned(), word],
        };
        TableEntry { lines, tone }
    };
    let row = |levels: &Levels| {
        (label(levels), shown.iter().map(|stratum| entry(stratum, levels)).collect::<Vec<_>>())
    };
    let columns = shown.iter().map(|stratum| Column::new(ColumnKind::Ratio, &heading(stratum)));
    Some(Table::new(&factors(&shown), columns, levels.iter().map(row)))
}

/// The same for a terminal: `1.69 ms ▲ 9.49 × (8.53–10.56)`.
pub(crate) fn ranked(strata: &[StratumView<'_>], rows: Rows, spread: Spread) -> Option<Ranked> {
    let Matrix { shown, levels } = Matrix::of(strata)?;
    let entry = |stratum: &StratumView<'_>, levels: &Levels| in_lines(field(stratum, levels), spread);
    let by_load = weights_of_loads(&shown, &levels);
    // Everything is compared with the baseline: it is never left out.
    let of_configuration = |levels: &Levels| {
        // One that stands alone, as its own baseline, is none.
        let is_baseline = shown
            .iter()
            .any(|stratum| !stratum.treatments.is_empty() && is_at(levels, stratum, stratum.baseline));
        let weights = shown.iter().map(|stratum| weight(stratum, levels));
        if is_baseline { f64::INFINITY } else { weights.fold(0.0, f64::max) }
    };
    let by_configuration: Vec<f64> = levels.iter().map(of_configuration).collect();
    Some(match rows {
        Rows::Configurations => {
            let columns = shown.iter().map(|stratum| Column::new(ColumnKind::Ratio, &heading(stratum)));
            let row = |levels: &Levels| {
                (label(levels), shown.iter().map(|stratum| entry(stratum, levels)).collect::<Vec<_>>())
            };
            let table = Table::new(&factors(&shown), columns, levels.iter().map(row));
            Ranked { table, rows: by_configuration, columns: by_load }
        }
        Rows::Loads => {
            let columns = levels.iter().map(|levels| Column::new(ColumnKind::Ratio, &label(levels)));
            let row = |stratum: &&StratumView<'_>| {
                let context = context(stratum);
                let load = names::load(stratum.cell());
                let name = if context.is_empty() { load } else { format!("{load}, {context}") };
                (name, levels.iter().map(|levels| entry(stratum, levels)).collect::<Vec<_>>())
            };
            let table = Table::new("load", columns, shown.iter().map(row));
            Ranked { table, rows: by_load, columns: by_configuration }
        }
    })
}

/// The load with the largest difference in each use of connections to each server comes before all others.
fn weights_of_loads(shown: &[&StratumView<'_>], levels: &[Levels]) -> Vec<f64> {
    const FIRST: f64 = 1e6;
    let largest = |stratum: &&StratumView<'_>| {
        let weights = levels.iter().map(|levels| weight(stratum, levels));
        let Cell { treatment, workload, .. } = stratum.cell();
        ((treatment.server.short_name(), workload.connection_use()), weights.fold(0.0, f64::max))
    };
    let all: Vec<_> = shown.iter().map(largest).collect();
    let is_first = |(number, (group, weight)): (usize, &((String, ConnectionUse), f64))| {
        let mut rivals = all.iter().enumerate().filter(|(other, (of, _))| *other != number && of == group);
        rivals.all(|(other, (_, rival))| rival.total_cmp(weight).then(number.cmp(&other)).is_lt())
    };
    let weights = all.iter().enumerate();
    weights.map(|(number, of)| of.1 + if is_first((number, of)) { FIRST } else { 0.0 }).collect()
}

/// The `rows` and `columns` that matter most, in their order.
pub(crate) fn keep(ranked: &Ranked, rows: usize, columns: usize) -> Table {
    let most = |weights: &[f64], count: usize| {
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|&left, &right| weights[right].total_cmp(&weights[left]));
        order.truncate(count);
        order.sort_unstable();
        order
    };
    let columns = most(&ranked.columns, columns).into_iter().map(|column| column + 1);
    let mut table = ranked.table.select(&[0].into_iter().chain(columns).collect::<Vec<_>>());
    let rows = most(&ranked.rows, rows);
    let mut number = 0..;
    table.rows.retain(|_| number.next().is_some_and(|row| rows.contains(&row)));
    table
}

/// What the marks of a table mean: `▲ costs more, ▼ costs less, ? inconclusive`.
pub(crate) fn legend(table: &Table) -> Vec<(Tone, &'static str)> {
    let tones = distinct(table.rows.iter().flatten().map(|entry| entry.tone));
    let mut meanings: Vec<(Tone, &str)> =
        tones.into_iter().filter_map(|tone| Some((tone, meaning(tone)?))).collect();
    meanings.sort_by_key(|(tone, _)| std::cmp::Reverse(*tone));
    meanings
}

/// What a cost is, in one sentence.
pub(crate) fn reading(strata: &[StratumView<'_>]) -> Option<String> {
    let Matrix { shown, .. } = Matrix::of(strata)?;
    let compared = shown.iter().find(|stratum| !stratum.treatments.is_empty())?;
    let baseline = names::divisor(&compared.baseline_label());
    Some(format!("× is the time of one operation ÷ that of {baseline}; above 1 costs more"))
}

fn meaning(tone: Tone) -> Option<&'static str> {
    Some(match tone {
        Tone::Neutral | Tone::Caution => return None,
        Tone::Same => "no difference",
        Tone::Negligible => "negligible",
        Tone::Unsure => "inconclusive",
        Tone::Better => "costs less",
        Tone::Worse => "costs more",
    })
}

struct Matrix<'a, 'b> {
    shown: Vec<&'a StratumView<'b>>,
    /// Of each configuration.
    levels: Vec<Levels>,
}

impl<'a, 'b> Matrix<'a, 'b> {
    fn of(strata: &'a [StratumView<'b>]) -> Option<Self> {
        let is_shown =
            |stratum: &&StratumView<'_>| stratum.plan.factor.is_none() && metric(stratum).is_some();
        let shown: Vec<&StratumView<'_>> = strata.iter().filter(is_shown).collect();
        let levels = configurations(&shown);
        (!shown.is_empty()).then_some(Self { shown, levels })
    }
}

fn factors(strata: &[&StratumView<'_>]) -> String {
    names::factors(&distinct(strata.iter().flat_map(|stratum| stratum.rows.iter().copied())))
}

fn label(levels: &Levels) -> String {
    levels.iter().filter_map(|(_, level)| level.as_deref()).collect::<Vec<_>>().join(" ")
}

/// The levels of each configuration in the factors that vary. Those with the most factors come first: a cell of another
/// stratum, in which fewer vary, then belongs to several rows.
fn configurations(strata: &[&StratumView<'_>]) -> Vec<Levels> {
    let mut strata = strata.to_vec();
    strata.sort_by_key(|stratum| std::cmp::Reverse(stratum.rows.len()));
    let mut rows: Vec<Levels> = Vec::new();
    for (stratum, cell) in
        strata.into_iter().flat_map(|stratum| stratum.cells().map(move |cell| (stratum, cell)))
    {
        if !rows.iter().any(|known| is_at(known, stratum, cell)) {
            rows.push(stratum.rows.iter().map(|factor| (*factor, cell.cell.level(*factor))).collect());
        }
    }
    rows
}

/// The most important metric, if any treatment has a ratio in it, or if the baseline is all that there is.
fn metric(stratum: &StratumView<'_>) -> Option<Metric> {
    let first = *headline_metrics(stratum.cell()).first()?;
    let is_compared = stratum.treatments.iter().any(|comparison| certain_ratio(comparison, first).is_some());
    let is_alone = stratum.treatments.is_empty() && level(stratum.baseline, first).is_some();
    (is_compared || is_alone).then_some(first)
}

fn context(stratum: &StratumView<'_>) -> String {
    names::context(stratum.report.plan, stratum.plan, &stratum.rows).join(", ")
}

/// `connect at 1 client`, `mariadb`, `latency ÷ plain`.
fn heading(stratum: &StratumView<'_>) -> String {
    let noun = metric(stratum).map_or("", |metric| noun_of(metric, stratum.cell().workload));
    let ratio = match stratum.treatments.as_slice() {
        [] => String::new(),
        _ => format!("{noun} ÷ {}", names::divisor(&stratum.baseline_label())),
    };
    let lines = [names::load(stratum.cell()), context(stratum), ratio];
    lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn found<'a>(stratum: &StratumView<'a>, levels: &Levels) -> Option<&'a Comparison> {
    stratum.treatments.iter().copied().find(|comparison| is_at(levels, stratum, &comparison.cell))
}

fn field(stratum: &StratumView<'_>, levels: &Levels) -> MatrixField {
    let absent =
        |word: &str| MatrixField { value: None, cost: None, word: word.to_owned(), tone: Tone::Neutral };
    let Some(metric) = metric(stratum) else { return absent("") };
    let quantity = |estimate: &Estimate| quantity(metric, estimate.value);
    if is_at(levels, stratum, stratum.baseline) {
        let value = match stratum.treatments.as_slice() {
            [] => level(stratum.baseline, metric).map(|estimate| measured(metric, estimate)),
            _ => baseline(stratum, metric).map(quantity),
        };
        return MatrixField { value, ..absent("baseline") };
    }
    let comparison = found(stratum, levels);
    let Some((comparison, found)) =
        comparison.and_then(|comparison| Some((comparison, certain_ratio(comparison, metric)?)))
    else {
        return absent("not measured");
    };
    let tone = sentence::tone(metric, found);
    let mark = found.verdict.map(|_| format!("{} ", tone.mark())).unwrap_or_default();
    let word = found.verdict.map(|verdict| verdict_word(metric, found, verdict));
    let cost = cost(metric, &found.ratio);
    let own = comparison.levels.get(&metric).map(|[own, _]| own).filter(|own| is_certain(own));
    MatrixField {
        value: own.map(quantity),
        cost: Some((format!("{mark}{} ×", ratio(&cost)), cost)),
        word: word.unwrap_or_else(|| "no verdict".to_owned()),
        tone,
    }
}

/// In the pairs of the comparison with the most: geometric means, as the ratios are.
fn baseline<'a>(stratum: &StratumView<'a>, metric: Metric) -> Option<&'a Estimate> {
    let paired = stratum.treatments.iter().filter_map(|comparison| Some(&comparison.levels.get(&metric)?[1]));
    let paired = paired.filter(|estimate| is_certain(estimate)).max_by_key(|estimate| estimate.blocks);
    paired.or_else(|| level(stratum.baseline, metric))
}

fn in_lines(field: MatrixField, spread: Spread) -> TableEntry {
    let MatrixField { value, cost, tone, .. } = field;
    let Some((cost, estimate)) = cost else {
        return TableEntry { lines: vec![value.unwrap_or_else(|| "–".to_owned())], tone };
    };
    let line = value.into_iter().chain([cost]).collect::<Vec<_>>().join(" ");
    let lines = match spread {
        _ if estimate.interval().is_none() => vec![line],
        Spread::Limits => vec![format!("{line} ({})", ratio_interval(&estimate))],
        Spread::PlusMinus => {
            let uncertainty = uncertainty_in(1.0, &estimate);
            let limits = format!("({})", ratio_interval(&estimate));
            vec![format!("{line} {}", if uncertainty.starts_with('±') { uncertainty } else { limits })]
        }
        Spread::LargerSide => vec![format!("{line} {}", larger_side(&estimate))],
        Spread::Below => vec![line, ratio_interval(&estimate)],
    };
    TableEntry { lines, tone }
}

/// How far a cost is from none; conclusive ones outweigh the others.
fn weight(stratum: &StratumView<'_>, levels: &Levels) -> f64 {
    /// More than any logarithm of a cost.
    const STEP: f64 = 1e3;
    if is_at(levels, stratum, stratum.baseline) {
        return 0.0;
    }
    let ratio = metric(stratum).and_then(|metric| {
        let ratio = certain_ratio(found(stratum, levels)?, metric)?;
        Some((ratio.ratio.value.ln().abs(), sentence::tone(metric, ratio)))
    });
    match ratio {
        Some((distance, Tone::Worse | Tone::Better)) => STEP + distance,
        Some((distance, _)) => distance,
        None => 0.0,
    }
}
