//! The terms of the cost model.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ciphertoll_model::{Metric, Treatment};
use ciphertoll_stats::Estimate;
use ciphertoll_stats::cost::{NamedTerm, Role, Term};
use serde::Serialize;

use super::{CostReport, in_unit_of, plain_number};
use crate::view::{Column, ColumnKind, Table, TableEntry};
use crate::{Style, terminal};

const ROLES: [Role; 4] = [Role::Client, Role::Middle, Role::Server, Role::Total];

/// The terms for a terminal of `width` columns.
pub fn terms(report: &CostReport<'_>, style: Style, width: u16) -> String {
    let all = report.model.terms();
    let mut text = format!("Terms of the cost model, measured in {}\n", report.run);
    for server in report.servers() {
        let label = report.labels(server);
        let of_server = all.iter().filter(|term| term.treatment.server == *server);
        let columns =
            ["clients", "between", "server", "total"].map(|heading| Column::new(ColumnKind::Level, heading));
        let row = |term: &NamedTerm<'_>| {
            let entry = |role: Role| {
                let found = term.by_role.iter().find(|(of, _)| *of == role);
                found.map_or_else(TableEntry::blank, |(_, estimate)| value(term.term, estimate))
            };
            (format!("{}: {}", label(term.treatment), term.term.label()), ROLES.map(entry).to_vec())
        };
        let _ = writeln!(text, "\n{}", report.server_name(server));
        text += &terminal::table(&Table::new("term", columns, of_server.map(row)), style, width);
    }
    text
}

/// A cost that may be 0 is an upper limit.
fn value(term: Term, estimate: &Estimate) -> TableEntry {
    let shown = shown(term, estimate);
    match estimate.interval() {
        Some(interval) if interval.low <= 0.0 => {
            let Estimate { blocks, .. } = *estimate;
            let limit = Estimate { value: interval.high.max(0.0), ci_low: None, ci_high: None, blocks };
            let limit = self::shown(term, &limit).lines.first().cloned().unwrap_or_default();
            TableEntry::new(["≈ 0".to_owned(), format!("below {limit}")])
        }
        None if estimate.value <= 0.0 => TableEntry::absent(),
        _ => shown,
    }
}

fn shown(term: Term, estimate: &Estimate) -> TableEntry {
    match term {
        Term::ConnectRoundTrips | Term::QueryRoundTrips => plain_number(estimate),
        Term::ConnectionMemory => in_unit_of(Metric::WalBytesPerOperation, estimate),
        _ => in_unit_of(Metric::CpuUsPerOpTotal, estimate),
    }
}

#[derive(Serialize)]
struct TermDocument<'a> {
    #[serde(flatten)]
    treatment: &'a Treatment,
    term: &'static str,
    /// CPU time, µs; a number of round trips, or bytes.
    by_role: BTreeMap<&'static str, Estimate>,
}

pub fn terms_json(report: &CostReport<'_>) -> Result<String, serde_json::Error> {
    let document = |term: NamedTerm<'_>| {
        serde_json::to_value(TermDocument {
            treatment: term.treatment,
            term: term.term.label(),
            by_role: term.by_role.iter().map(|(role, estimate)| (role.label(), *estimate)).collect(),
        })
    };
    let terms = report.model.terms().into_iter().map(document).collect::<Result<Vec<_>, _>>()?;
    let version = ciphertoll_model::SCHEMA_VERSION;
    serde_json::to_string_pretty(&serde_json::json!({
        "schema_version": version, "run": report.run, "terms": terms
    }))
}
