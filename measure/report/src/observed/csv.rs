//! An observation as comma-separated values (RFC 4180): a row for each pair and kind of encryption. Names carry units. A
//! value that does not apply is empty, never 0. Columns that begin with `pair_` repeat in all rows of a pair.

use ciphertoll_model::Phase;
use ciphertoll_observe::{
    Certificate, ClientProcess, Encryption, Estimated, Observation, Pair, PairCost, Quantiles, user_words,
};
use serde::Serialize;

use crate::csv::line;

/// A column and its value. The encryption is absent in the row of a pair of which none is known.
type ObservedColumn = (String, Box<dyn Fn(&Pair, Option<&Encryption>) -> String>);

/// The end of a column's name, and the number.
type NamedQuantile = (&'static str, fn(&Quantiles) -> f64);

/// A column's name, and the estimate.
type NamedEstimate = (&'static str, fn(&PairCost) -> Option<Estimated>);

/// The end of a column's name, and the number.
type NamedLimit = (&'static str, fn(Estimated) -> Option<f64>);

/// A header, then the rows; lines end in CR LF.
pub fn observation_csv(observation: &Observation) -> String {
    let columns = columns();
    let header: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
    let mut text = line(&header);
    for pair in &observation.pairs {
        let kinds: Vec<Option<&Encryption>> = match pair.encryption.as_slice() {
            [] => vec![None],
            kinds => kinds.iter().map(Some).collect(),
        };
        for encryption in kinds {
            let row: Vec<String> = columns.iter().map(|(_, value)| value(pair, encryption)).collect();
            text += &line(&row);
        }
    }
    text
}

/// The columns in their order. New ones are added at the end.
fn columns() -> Vec<ObservedColumn> {
    let mut columns = pair_columns();
    columns.extend(phase_columns());
    columns.extend(encryption_columns());
    columns.extend(certificate_columns());
    columns.extend(cost_columns());
    columns.extend(name_columns());
    columns.push(of_pair("pair_users", |pair| text(&users(pair))));
    columns.push(of_pair("pair_processes", |pair| {
        let process = |process: &ClientProcess| format!("{}: {}", process.words(), process.connections);
        text(&pair.processes.iter().map(process).collect::<Vec<_>>().join("; "))
    }));
    columns
}

fn name_columns() -> Vec<ObservedColumn> {
    vec![
        of_pair("client_name", |pair| optional_text(pair.client_name.as_deref())),
        of_pair("server_name", |pair| optional_text(pair.server_name.as_deref())),
    ]
}

fn pair_columns() -> Vec<ObservedColumn> {
    vec![
        of_pair("client", |pair| text(&pair.client)),
        of_pair("server", |pair| text(&pair.server)),
        of_pair("protocol", |pair| optional_text(pair.protocol.as_deref())),
        of_pair("pair_connections_begun", |pair| pair.connections.begun.to_string()),
        of_pair("pair_connections_began_before", |pair| pair.connections.began_before.to_string()),
        of_pair("pair_connections_open", |pair| pair.connections.open.to_string()),
        of_pair("pair_connections_unread", |pair| pair.connections.unread.to_string()),
        of_pair("pair_cancel_requests", |pair| pair.connections.cancel_requests.to_string()),
        of_pair("pair_connections_failed", |pair| {
            pair.failures.iter().map(|failure| failure.connections).sum::<u64>().to_string()
        }),
        of_pair("pair_connects_per_s", |pair| optional(pair.connects_per_s)),
        of_pair("pair_client_bytes", |pair| pair.bytes.by_client.to_string()),
        of_pair("pair_server_bytes", |pair| pair.bytes.by_server.to_string()),
        of_pair("pair_queries_counted_by", |pair| {
            let counted = |by_turns| if by_turns { "turns" } else { "messages" };
            pair.queries.as_ref().map(|queries| counted(queries.by_turns).to_owned()).unwrap_or_default()
        }),
        of_pair("pair_queries_median", |pair| optional(pair.queries.as_ref().map(|queries| queries.median))),
        of_pair("pair_queries_p95", |pair| optional(pair.queries.as_ref().map(|queries| queries.p95))),
        of_pair("pair_queries_max", |pair| optional(pair.queries.as_ref().map(|queries| queries.max))),
        of_pair("pair_round_trip_ms_median", |pair| optional(pair.round_trip_ms.map(|times| times.median))),
        of_pair("pair_round_trip_ms_p95", |pair| optional(pair.round_trip_ms.map(|times| times.p95))),
        of_pair("pair_connect_ms_median", |pair| optional(pair.connect_ms.map(|times| times.median))),
        of_pair("pair_connect_ms_p95", |pair| optional(pair.connect_ms.map(|times| times.p95))),
        of_pair("pair_connect_ms_max", |pair| optional(pair.connect_ms.map(|times| times.max))),
    ]
}

/// The median and the 95th percentile of each phase that an observer sees.
fn phase_columns() -> Vec<ObservedColumn> {
    const SEEN: [Phase; 6] = [
        Phase::TcpConnect,
        Phase::ServerGreeting,
        Phase::TlsRequest,
        Phase::TlsHandshake,
        Phase::Auth,
        Phase::FirstQuery,
    ];
    const QUANTILES: [NamedQuantile; 2] = [("median", |times| times.median), ("p95", |times| times.p95)];
    let mut columns = Vec::new();
    for phase in SEEN.into_iter().filter_map(label) {
        for (quantile, value) in QUANTILES {
            let name = format!("pair_{phase}_ms_{quantile}");
            let phase = phase.clone();
            let of = move |pair: &Pair, _: Option<&Encryption>| {
                let times = pair.phases.iter().find(|times| times.phase == phase);
                optional(times.map(|times| value(&times.ms)))
            };
            columns.push((name, Box::new(of) as Box<_>));
        }
    }
    columns
}

fn encryption_columns() -> Vec<ObservedColumn> {
    vec![
        of_kind("encryption", |kind| label(kind.kind).unwrap_or_default()),
        of_kind("tls_version", |kind| optional_text(kind.version.as_deref())),
        of_kind("cipher_suite", |kind| optional_text(kind.suite.as_deref())),
        of_kind("key_exchange_group", |kind| optional_text(kind.group.as_deref())),
        of_kind("signature", |kind| optional_text(kind.signature.as_deref())),
        of_kind("offered_groups", |kind| text(&kind.offered_groups.join(" "))),
        of_kind("connections", |kind| kind.connections.to_string()),
        of_kind("resumed", |kind| kind.resumed.to_string()),
        of_kind("offered_sessions", |kind| kind.offered_sessions.to_string()),
        of_kind("hello_retries", |kind| kind.hello_retries.to_string()),
        of_kind("unused_key_shares", |kind| kind.unused_key_shares.to_string()),
        of_kind("client_certificates", |kind| optional(kind.client_certificates)),
    ]
}

/// What connections cost by the cost model of a run, with 95 % intervals.
fn cost_columns() -> Vec<ObservedColumn> {
    const ESTIMATES: [NamedEstimate; 4] = [
        ("pair_cost_cores", |cost| cost.cores),
        ("pair_encryption_cores", |cost| cost.encryption_cores),
        ("pair_sidecar_saves_cores", |cost| cost.sidecar?.cores),
        ("pair_sidecar_saves_connect_ms", |cost| cost.sidecar?.connect_ms),
    ];
    const LIMITS: [NamedLimit; 3] =
        [("", |found| Some(found.value)), ("_low", |found| found.low), ("_high", |found| found.high)];
    let mut columns: Vec<ObservedColumn> = Vec::new();
    for (name, estimate) in ESTIMATES {
        for (suffix, limit) in LIMITS {
            let of = move |pair: &Pair, _: Option<&Encryption>| {
                optional(pair.cost.as_ref().and_then(estimate).and_then(limit))
            };
            columns.push((format!("{name}{suffix}"), Box::new(of)));
        }
    }
    columns
}

fn certificate_columns() -> Vec<ObservedColumn> {
    vec![
        of_certificate("certificate_subject", |certificate| text(&certificate.subject)),
        of_certificate("certificate_issuer", |certificate| text(&certificate.issuer)),
        of_certificate("certificate_key", |certificate| text(&certificate.key)),
        of_certificate("certificate_not_after", |certificate| text(&certificate.not_after)),
        of_certificate("certificate_days_left", |certificate| certificate.days_left.to_string()),
        of_certificate("certificate_sha256", |certificate| optional_text(certificate.sha256.as_deref())),
    ]
}

/// `app to shop; admin to postgres; 12 more`: the most frequent ones; a cell of a spreadsheet has not room for all.
fn users(pair: &Pair) -> String {
    const MOST: usize = 10;
    let named = pair.users.iter().take(MOST).map(user_words);
    let more = match (pair.users.len().saturating_sub(MOST), pair.other_users) {
        (0, 0) => None,
        (rest, 0) => Some(format!("{rest} more")),
        (rest, _) => Some(format!("at least {} more", rest + 1)),
    };
    named.chain(more).collect::<Vec<_>>().join("; ")
}

fn of_pair(name: &str, value: fn(&Pair) -> String) -> ObservedColumn {
    (name.to_owned(), Box::new(move |pair, _| value(pair)))
}

fn of_kind(name: &str, value: fn(&Encryption) -> String) -> ObservedColumn {
    (name.to_owned(), Box::new(move |_, encryption| encryption.map(value).unwrap_or_default()))
}

fn of_certificate(name: &str, value: fn(&Certificate) -> String) -> ObservedColumn {
    let of = move |_: &Pair, encryption: Option<&Encryption>| {
        encryption.and_then(|encryption| encryption.certificate.as_ref()).map(value).unwrap_or_default()
    };
    (name.to_owned(), Box::new(of))
}

fn optional(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn optional_text(value: Option<&str>) -> String {
    value.map(text).unwrap_or_default()
}

/// Text that came from a peer. An apostrophe before what a spreadsheet would run as a formula (CWE-1236).
fn text(value: &str) -> String {
    let clean: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) {
        format!("'{clean}")
    } else {
        clean
    }
}

/// The name of a value in JSON documents.
fn label(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_peers_is_no_formula() {
        assert_eq!(text("=HYPERLINK(\"http://a\")"), "'=HYPERLINK(\"http://a\")");
        assert_eq!(text(" \t@SUM(A1)"), "'  @SUM(A1)");
        assert_eq!(text("CN=db.example"), "CN=db.example");
    }

    #[test]
    fn columns_have_different_names() {
        let names: std::collections::BTreeSet<String> = columns().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), columns().len());
    }
}
