//! A load in every configuration of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ciphertoll_model::{Metric, ServerLevel, Treatment};
use ciphertoll_stats::Estimate;
use ciphertoll_stats::cost::{Limit, MissingTerm, Prediction, Profile, Role};
use serde::Serialize;

use super::{CostReport, entry, in_unit_of, load_in_words, plain_number, remedy};
use crate::lists::grouped;
use crate::view::{Column, ColumnKind, Table, TableEntry};
use crate::{Style, terminal};

/// Predictions of a load for a terminal of `width` columns.
pub fn predictions(report: &CostReport<'_>, style: Style, width: u16) -> String {
    let mut text = format!("Predicted from {}: {}\n", report.run, load_in_words(report.load));
    for ServerPredictions { name, table, notes } in by_server(report) {
        let _ = writeln!(text, "\n{name}");
        text += &terminal::table(&table, style, width);
        text += &notes
            .iter()
            .flat_map(|note| terminal::wrap(note, usize::from(width)))
            .fold(String::new(), |text, line| text + &line + "\n");
    }
    text
}

pub(super) const ASSUMPTION: &str =
    "Throughput assumes linear cores. Times are without waiting for a processor.";

/// What is predicted for the configurations of one server.
pub(crate) struct ServerPredictions {
    /// Of the server.
    pub(crate) name: String,
    /// One row for each configuration.
    pub(crate) table: Table,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn by_server(report: &CostReport<'_>) -> Vec<ServerPredictions> {
    let predicted = |server: &ServerLevel| {
        let all = of_server(report, server);
        ServerPredictions {
            name: report.server_name(server),
            table: table(report, server, &all),
            notes: notes(report, server, &all),
        }
    };
    report.servers().into_iter().map(predicted).collect()
}

fn of_server<'a>(report: &CostReport<'a>, server: &ServerLevel) -> Vec<(&'a Profile, Prediction)> {
    let profiles = report.model.profiles.iter().filter(|profile| profile.treatment.server == *server);
    profiles.map(|profile| (profile, report.model.predict(profile, report.load))).collect()
}

fn table(report: &CostReport<'_>, server: &ServerLevel, all: &[(&Profile, Prediction)]) -> Table {
    let label = report.labels(server);
    let mut headings = vec!["connect", "query", "session", "most\nsessions/s", "CPU per\nsession"];
    let has_rate = report.load.connects_per_s.is_some();
    if has_rate {
        headings.extend(["cores:\nclients", "cores:\nbetween", "cores:\nserver"]);
    }
    let has_memory = all.iter().any(|(_, prediction)| !prediction.memory_bytes.is_empty());
    if has_memory {
        headings.push("memory:\nserver");
    }
    let columns = headings.iter().map(|heading| Column::new(ColumnKind::Level, heading));
    let row = |(profile, prediction): &(&Profile, Prediction)| {
        let of = |role: Role, values: &[(Role, Result<Estimate, MissingTerm>)]| {
            values.iter().find(|(of, _)| *of == role).and_then(|(_, found)| found.as_ref().ok().copied())
        };
        let mut entries = vec![
            entry(Metric::LatencyNsMean, &prediction.connect_ns),
            entry(Metric::LatencyNsMean, &prediction.query_ns),
            entry(Metric::LatencyNsMean, &prediction.session_ns),
            entry(Metric::RatePerS, &prediction.throughput.map(|most| most.sessions_per_s)),
            of(Role::Total, &prediction.cpu_us)
                .map_or_else(TableEntry::absent, |cpu| in_unit_of(Metric::CpuUsPerOpTotal, &cpu)),
        ];
        if has_rate {
            let cores = |role| {
                of(role, &prediction.cores).map_or_else(TableEntry::absent, |cores| plain_number(&cores))
            };
            entries.extend([Role::Client, Role::Middle, Role::Server].map(cores));
        }
        if has_memory {
            let memory = prediction.memory_bytes.iter().find(|(role, _)| *role == Role::Server);
            let bytes = memory.map_or(Err(MissingTerm::Memory), |(_, bytes)| *bytes);
            entries.push(entry(Metric::RssBytesServer, &bytes));
        }
        (label(&profile.treatment), entries)
    };
    Table::new("path", columns, all.iter().map(row))
}

/// What limits the throughput, what the load exceeds, and what is missing.
fn notes(report: &CostReport<'_>, server: &ServerLevel, all: &[(&Profile, Prediction)]) -> Vec<String> {
    let label = report.labels(server);
    let limits = all.iter().filter_map(|(profile, prediction)| {
        Some((limit_in_words(prediction.throughput.ok()?.limit).to_owned(), label(&profile.treatment)))
    });
    let mut notes: Vec<String> = grouped(limits)
        .into_iter()
        .map(|(limit, labels)| format!("Limited by {limit}: {}.", labels.join(", ")))
        .collect();
    if !notes.is_empty() {
        notes.push(ASSUMPTION.to_owned());
    }
    if let Some(rate) = report.load.connects_per_s {
        let overloaded = all.iter().filter(|(_, prediction)| {
            prediction.throughput.is_ok_and(|most| most.sessions_per_s.value < rate)
        });
        let overloaded: Vec<String> = overloaded.map(|(profile, _)| label(&profile.treatment)).collect();
        if !overloaded.is_empty() {
            notes.push(format!("More than it can serve: {}.", overloaded.join(", ")));
        }
    }
    let missing = all.iter().flat_map(|(profile, prediction)| {
        missing(prediction).into_iter().map(|term| (term, label(&profile.treatment)))
    });
    let missing = grouped(missing);
    notes.extend(
        missing
            .iter()
            .map(|(term, labels)| format!("Not predicted for {}: the run lacks {term}.", labels.join(", "))),
    );
    for remedy in missing.iter().filter_map(|(term, _)| remedy(*term, server)) {
        if !notes.contains(&remedy) {
            notes.push(remedy);
        }
    }
    notes
}

fn limit_in_words(limit: Limit) -> &'static str {
    match limit {
        Limit::Clients => "the number of clients",
        Limit::SharedCores => "the cores",
        Limit::ServerCores => "the server's cores",
        Limit::ClientCores => "the clients' cores",
    }
}

fn missing(prediction: &Prediction) -> Vec<MissingTerm> {
    let times = [&prediction.connect_ns, &prediction.query_ns, &prediction.session_ns];
    let total = prediction.cpu_us.iter().filter(|(role, _)| *role == Role::Total).map(|(_, cpu)| cpu);
    let mut missing: Vec<MissingTerm> =
        times.into_iter().chain(total).filter_map(|found| found.as_ref().err().copied()).collect();
    missing.extend(prediction.throughput.as_ref().err());
    missing.extend(prediction.memory_bytes.iter().filter_map(|(_, bytes)| bytes.as_ref().err()));
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Predictions as JSON.
#[derive(Debug, Serialize)]
struct PredictionsDocument<'a> {
    schema_version: u32,
    run: &'a str,
    load: LoadDocument,
    predictions: Vec<PredictionDocument<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct LoadDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    connects_per_s: Option<f64>,
    queries_per_connection: f64,
    rtt_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<u32>,
    row_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_cores: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct PredictionDocument<'a> {
    #[serde(flatten)]
    treatment: &'a Treatment,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_ns: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_sessions_per_s: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<&'static str>,
    cpu_us_per_session: BTreeMap<&'static str, Estimate>,
    cores: BTreeMap<&'static str, Estimate>,
    memory_bytes: BTreeMap<&'static str, Estimate>,
    missing: Vec<&'static str>,
}

impl LoadDocument {
    pub(super) fn of(load: &ciphertoll_stats::cost::Load) -> Self {
        use ciphertoll_stats::cost::Cores;
        let (shared_cores, server_cores, client_cores) = match load.cores {
            Cores::Shared(cores) => (Some(cores), None, None),
            Cores::Separate { server, clients } => (None, Some(server), clients),
        };
        Self {
            connects_per_s: load.connects_per_s,
            queries_per_connection: load.queries.mean(),
            rtt_ns: load.rtt_ns,
            clients: load.clients.map(std::num::NonZeroU32::get),
            row_bytes: load.row_bytes,
            shared_cores,
            server_cores,
            client_cores,
        }
    }
}

impl<'a> PredictionDocument<'a> {
    pub(super) fn of(treatment: &'a Treatment, prediction: &Prediction) -> Self {
        let known = |values: &[(Role, Result<Estimate, MissingTerm>)]| {
            values.iter().filter_map(|(role, found)| Some((role.label(), (*found).ok()?))).collect()
        };
        Self {
            treatment,
            connect_ns: prediction.connect_ns.ok(),
            query_ns: prediction.query_ns.ok(),
            session_ns: prediction.session_ns.ok(),
            most_sessions_per_s: prediction.throughput.ok().map(|most| most.sessions_per_s),
            limited_by: prediction.throughput.ok().map(|most| most.limit.label()),
            cpu_us_per_session: known(&prediction.cpu_us),
            cores: known(&prediction.cores),
            memory_bytes: known(&prediction.memory_bytes),
            missing: missing(prediction).into_iter().map(MissingTerm::label).collect(),
        }
    }
}

pub fn predictions_json(report: &CostReport<'_>) -> Result<String, serde_json::Error> {
    let of_server = |server| of_server(report, server);
    let all: Vec<(&Profile, Prediction)> = report.servers().into_iter().flat_map(of_server).collect();
    serde_json::to_string_pretty(&PredictionsDocument {
        schema_version: ciphertoll_model::SCHEMA_VERSION,
        run: report.run,
        load: LoadDocument::of(report.load),
        predictions: all
            .iter()
            .map(|(profile, prediction)| PredictionDocument::of(&profile.treatment, prediction))
            .collect(),
    })
}
