//! The advised configuration for a load: its cost, its saving, when another one costs less, and its settings.

use std::fmt::Write as _;

use ciphertoll_model::{Metric, ServerLevel, Treatment};
use ciphertoll_stats::Estimate;
use ciphertoll_stats::advice::{
    Advice, Choice, Excluded, Need, Rank, RefusedClients, SettingsFile, refused_clients, settings,
};
use ciphertoll_stats::cost::{BreakEven, MissingTerm, Role};
use serde::Serialize;

use super::advice_report::AdviceReport;
use super::predictions::{LoadDocument, PredictionDocument};
use super::today::{Comparison, TodayDocument};
use super::{CostReport, advice_words, entry, in_unit_of, load_in_words, plain_number, remedy};
use crate::lists::grouped;
use crate::view::{Column, ColumnKind, Table, TableEntry};
use crate::{Style, terminal};

/// The advice for a terminal of `width` columns.
pub fn advice(report: &AdviceReport<'_>, style: Style, width: u16) -> String {
    let mut text = String::new();
    if let Some(source) = report.load_source {
        text += &paragraphs(&[source.to_owned()], width);
    }
    let needs = report.needs.iter().map(|need| need.label()).filter(|need| *need != Need::Verify.label());
    let needs: Vec<&str> =
        ["encryption between hosts", "a verified server"].into_iter().chain(needs).collect();
    let first = format!("What to do, from {}: {}", report.costs.run, load_in_words(report.costs.load));
    let second = format!("Needs: {}.", needs.join(", "));
    text += &paragraphs(&[first, second], width);
    for server in report.costs.servers() {
        let _ = writeln!(text, "\n{}", report.costs.server_name(server));
        text += &match report.advice(server) {
            Ok(advice) => of_server(report, server, &advice, (style, width)),
            Err(term) => {
                let missing = format!("No advice: the run lacks {term}.");
                let all: Vec<String> = [missing].into_iter().chain(remedy(term, server)).collect();
                paragraphs(&all, width)
            }
        };
    }
    text
}

fn paragraphs(all: &[String], width: u16) -> String {
    let lines = all.iter().flat_map(|text| terminal::wrap(text, usize::from(width)));
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

fn of_server(
    report: &AdviceReport<'_>,
    server: &ServerLevel,
    advice: &Advice<'_>,
    (style, width): (Style, u16),
) -> String {
    let label = report.costs.labels(server);
    let mut text = match advice.choices.first() {
        None => paragraphs(&["No configuration of the run fulfils these needs.".to_owned()], width),
        Some(first) => {
            let sentences = advice_words::sentences(report, advice, first, &label);
            paragraphs(&sentences, width)
                + "\n"
                + &terminal::table(&table(report, advice, &label), style, width)
        }
    };
    text += &paragraphs(&excluded(&advice.excluded, &label), width);
    let Some(first) = advice.choices.first() else { return text };
    let treatment = &first.profile.treatment;
    let refused = refused_clients(treatment, report.today);
    if let Some(locked_out) = advice_words::locked_out(report, &refused) {
        text += "\n";
        text += &paragraphs(&[locked_out], width);
    }
    let files = settings(treatment, report.url);
    for SettingsFile { place, text: content } in &files {
        let _ = write!(text, "\n# ---- {place}\n{content}");
    }
    text
}

fn table(report: &AdviceReport<'_>, advice: &Advice<'_>, label: &impl Fn(&Treatment) -> String) -> Table {
    let rate = report.costs.load.connects_per_s;
    let mut headings = vec!["CPU per\nsession", "connect", "query"];
    headings.extend(rate.map(|_| "cores"));
    headings.extend(rate.and(report.core_price).map(|_| "per month"));
    let columns = headings.iter().map(|heading| Column::new(ColumnKind::Level, heading));
    let times = |estimate: &Estimate, factor: f64| Estimate {
        value: estimate.value * factor,
        ci_low: estimate.ci_low.map(|limit| limit * factor),
        ci_high: estimate.ci_high.map(|limit| limit * factor),
        ..*estimate
    };
    let row = |choice: &Choice<'_>| {
        let mut entries = vec![
            choice
                .cpu_us
                .as_ref()
                .map_or_else(TableEntry::absent, |cpu| in_unit_of(Metric::CpuUsPerOpTotal, cpu)),
            entry(Metric::LatencyNsMean, &choice.prediction.connect_ns),
            entry(Metric::LatencyNsMean, &choice.prediction.query_ns),
        ];
        if let Some(rate) = rate {
            let number =
                |found: Option<Estimate>| found.map_or_else(TableEntry::absent, |found| plain_number(&found));
            let cores = choice.cpu_us.map(|cpu| times(&cpu, rate * 1e-6));
            entries.push(number(cores));
            entries.extend(report.core_price.map(|price| number(cores.map(|cores| times(&cores, price)))));
        }
        (label(&choice.profile.treatment), entries)
    };
    let plain = advice.plain.iter().filter_map(|(profile, prediction)| {
        let cpu_us = prediction.cpu_us.iter().find(|(role, _)| *role == Role::Total)?.1.ok();
        let reference = Choice {
            profile,
            prediction: prediction.clone(),
            cpu_us,
            saving: None,
            break_even: None,
            rank: Rank::AsCheap,
        };
        let (name, entries) = row(&reference);
        Some((format!("({name}: not encrypted)"), entries))
    });
    let rows: Vec<_> = advice.choices.iter().map(row).chain(plain).collect();
    Table::new("configuration", columns, rows)
}

fn excluded(all: &[Excluded<'_>], label: &impl Fn(&Treatment) -> String) -> Vec<String> {
    let by_reason = grouped(all.iter().map(|excluded| (excluded.reason.clone(), label(excluded.treatment))));
    by_reason
        .into_iter()
        .map(|(reason, labels)| format!("Not considered: {} ({reason}).", labels.join(", ")))
        .collect()
}

#[derive(Serialize)]
struct AdviceDocument<'a> {
    schema_version: u32,
    run: &'a str,
    load: LoadDocument,
    needs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_price_per_month: Option<f64>,
    optimize: &'static str,
    /// Smaller savings do not count.
    min_cores: f64,
    min_time_ns: f64,
    servers: Vec<ServerDocument<'a>>,
}

#[derive(Serialize)]
struct ServerDocument<'a> {
    server: String,
    /// The first one is advised.
    choices: Vec<ChoiceDocument<'a>>,
    excluded: Vec<ExcludedDocument<'a>>,
    settings: Vec<FileDocument>,
    /// Clients that the settings refuse.
    locked_out: Vec<RefusedClients>,
    /// The most sessions per second of any choice, if none can serve the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    impossible_above_per_s: Option<f64>,
    /// Whether another choice costs less, and not so much less that a change is worth it.
    leave_as_it_is: bool,
    /// What the observed connections cost, and what the first choice saves of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    today: Option<TodayDocument>,
    /// What the run lacks for an advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'static str>,
}

#[derive(Serialize)]
struct ChoiceDocument<'a> {
    #[serde(flatten)]
    prediction: PredictionDocument<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_session_total: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_month: Option<f64>,
    /// What the first choice saves per session compared with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_us: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_connect_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_query_ns: Option<Estimate>,
    /// Queries per connection at which this one and the first choice cost the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    break_even_queries: Option<Estimate>,
}

#[derive(Serialize)]
struct ExcludedDocument<'a> {
    #[serde(flatten)]
    treatment: &'a Treatment,
    reason: &'a str,
}

#[derive(Serialize)]
struct FileDocument {
    place: String,
    text: String,
}

pub fn advice_json(report: &AdviceReport<'_>) -> Result<String, serde_json::Error> {
    let CostReport { run, load, .. } = report.costs;
    let of_server = |server| (server, report.advice(server));
    let advised: Vec<(&ServerLevel, Result<Advice<'_>, MissingTerm>)> =
        report.costs.servers().into_iter().map(of_server).collect();
    serde_json::to_string_pretty(&AdviceDocument {
        schema_version: ciphertoll_model::SCHEMA_VERSION,
        run,
        load: LoadDocument::of(load),
        needs: report.needs.iter().map(|need| need.label()).collect(),
        core_price_per_month: report.core_price,
        optimize: report.optimize.label(),
        min_cores: report.worth.cores,
        min_time_ns: report.worth.time_ns,
        servers: advised
            .iter()
            .map(|(server, found)| match found {
                Ok(advice) => server_document(report, server, advice),
                Err(term) => ServerDocument::lacking(server, *term),
            })
            .collect(),
    })
}

impl ServerDocument<'_> {
    fn lacking(server: &ServerLevel, term: MissingTerm) -> Self {
        Self {
            server: server.short_name(),
            choices: Vec::new(),
            excluded: Vec::new(),
            settings: Vec::new(),
            locked_out: Vec::new(),
            impossible_above_per_s: None,
            leave_as_it_is: false,
            today: None,
            missing: Some(term.label()),
        }
    }
}

fn server_document<'a>(
    report: &AdviceReport<'_>,
    server: &ServerLevel,
    advice: &'a Advice<'a>,
) -> ServerDocument<'a> {
    let rate = report.costs.load.connects_per_s;
    let choice = |choice: &'a Choice<'a>| {
        let cores_total = rate.zip(choice.cpu_us).map(|(rate, cpu)| cpu.value * rate * 1e-6);
        let saving = choice.saving.as_ref();
        ChoiceDocument {
            prediction: PredictionDocument::of(&choice.profile.treatment, &choice.prediction),
            cpu_us_per_session_total: choice.cpu_us,
            cores_total,
            price_per_month: cores_total.zip(report.core_price).map(|(cores, price)| cores * price),
            saving_us: saving.and_then(|saving| saving.cpu_us),
            saving_cores: saving.and_then(|saving| saving.cores),
            saving_connect_ns: saving.and_then(|saving| saving.connect_ns),
            saving_query_ns: saving.and_then(|saving| saving.query_ns),
            break_even_queries: choice.break_even.and_then(|found| match found {
                BreakEven::At { queries, interval, .. } => Some(Estimate {
                    value: queries,
                    ci_low: interval.map(|interval| interval.low),
                    ci_high: interval.map(|interval| interval.high),
                    blocks: choice.cpu_us.map_or(0, |cpu| cpu.blocks),
                }),
                BreakEven::Always(_) | BreakEven::Unknown => None,
            }),
        }
    };
    let excluded = |excluded: &'a Excluded<'a>| ExcludedDocument {
        treatment: excluded.treatment,
        reason: &excluded.reason,
    };
    let first = advice.choices.first().map(|first| &first.profile.treatment);
    let files = first.map(|first| settings(first, report.url)).unwrap_or_default();
    let refused = first.map(|first| refused_clients(first, report.today)).unwrap_or_default();
    let file = |file: SettingsFile| FileDocument { place: file.place, text: file.text };
    ServerDocument {
        server: server.short_name(),
        choices: advice.choices.iter().map(choice).collect(),
        excluded: advice.excluded.iter().map(excluded).collect(),
        settings: files.into_iter().map(file).collect(),
        locked_out: refused,
        impossible_above_per_s: advice.overload.map(|(_, most)| most.sessions_per_s.value),
        leave_as_it_is: advice_words::is_left_as_it_is(advice),
        today: advice
            .choices
            .first()
            .and_then(|first| Comparison::of(report, server, first.profile))
            .map(|observed| observed.document()),
        missing: None,
    }
}
