//! What was negotiated, as observed on every connection.

use std::collections::BTreeSet;

use ciphertoll_model::{Leg, LegCount, Path};

use super::{Section, Statement, StratumView, Tone, clean};
use crate::names;
use crate::number::plural;

/// Whose legs begin with the connections that are counted; others begin in a tunnel, or in a proxy.
const CLIENT: &str = "client";

/// One line: the connections of equal cells under different loads are counted together.
struct Row<'a> {
    name: String,
    leg: Leg,
    /// What the program of a tunnel or a proxy said that it is.
    version: Option<&'a str>,
    between: Between,
    connections: u64,
}

/// What is between a client and its server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Tunnel,
    Proxy,
}

impl Between {
    fn of(path: Path) -> Self {
        match path {
            Path::Plain | Path::Compressed(_) | Path::Unix | Path::Tls(_) => Self::Nothing,
            Path::Tunnel(_) => Self::Tunnel,
            Path::Proxy(_) => Self::Proxy,
        }
    }
}

pub(crate) fn section(strata: &[StratumView<'_>]) -> Option<Section> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    // A cell that is compared twice, among paths and among drivers, has made its connections once.
    let mut told = BTreeSet::new();
    let mut silent = BTreeSet::new();
    for stratum in strata {
        let context = names::context(stratum.report.plan, stratum.plan, &stratum.rows);
        for cell in stratum.cells().filter(|cell| told.insert(&cell.id.0)).collect::<Vec<_>>() {
            let name =
                [stratum.row_label(cell)].into_iter().chain(context.clone()).collect::<Vec<_>>().join(", ");
            if cell.legs.is_empty() && !cell.metrics.is_empty() {
                silent.insert(cell.cell.treatment.driver.to_string());
            }
            for LegCount { leg, connections } in &cell.legs {
                if let Some(row) = rows.iter_mut().find(|row| row.name == name && row.leg == *leg) {
                    row.connections += connections;
                } else {
                    let path = cell.cell.treatment.path;
                    let version = stratum.report.program_version(path);
                    let between = Between::of(path);
                    let (name, leg, connections) = (name.clone(), leg.clone(), *connections);
                    rows.push(Row { name, leg, version, between, connections });
                }
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(Section {
        heading: "What was negotiated, as seen on every connection".to_owned(),
        table: None,
        notes: rows.iter().map(statement).chain(silent.iter().map(|driver| unseen(driver))).collect(),
    })
}

/// Other people's clients need not tell what they have agreed on.
fn unseen(driver: &str) -> Statement {
    Statement::neutral(format!("driver {driver}: not seen, as it does not tell"))
}

/// `tls1.3-p256: TLS 1.3, TLS_AES_256_GCM_SHA384, X25519, p256 certificate, full handshake (48 connections)`.
fn statement(row: &Row<'_>) -> Statement {
    let Leg { from, to, tls_version, suite, group, key, resumed, chain, hello_retry, .. } = &row.leg;
    if from != CLIENT {
        let key = key.as_ref().map(|key| match row.between {
            Between::Proxy => format!("{key} certificate"),
            Between::Nothing | Between::Tunnel => key.clone(),
        });
        let parts = [suite, group, &key].into_iter().flatten().map(|part| clean(part));
        let version = tls_version.as_deref().map(|version| clean(version).replace("tls", "TLS "));
        let parts: Vec<String> = version.into_iter().chain(parts).collect();
        let ends = [Some(format!("{} to {}", clean(from), clean(to))), row.version.map(clean)];
        let ends = ends.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let counted = plural(
            row.connections,
            match row.between {
                Between::Proxy => "server connection",
                Between::Nothing | Between::Tunnel => "tunnel",
            },
        );
        return Statement::neutral(format!("{} ({ends}): {} ({counted})", row.name, parts.join(", ")));
    }
    let handshake = resumed.map(|resumed| if resumed { "resumed" } else { "full handshake" }.to_owned());
    let parts: Vec<String> = match tls_version {
        Some(version) => [
            Some(clean(version).replace("tls", "TLS ")),
            suite.as_deref().map(clean),
            group.as_deref().map(clean),
            key.as_deref().map(|key| format!("{} certificate", clean(key))),
            chain.filter(|chain| *chain > 1).map(|chain| format!("{chain} certificates sent")),
            handshake,
        ]
        .into_iter()
        .flatten()
        .collect(),
        None if row.between == Between::Proxy => vec!["not encrypted in front".to_owned()],
        None => vec!["not encrypted".to_owned()],
    };
    let compressed = row.leg.compressor.as_deref().map(|by| format!("compressed by {}", clean(by)));
    let parts: Vec<String> = parts.into_iter().chain(compressed).collect();
    let text = format!("{}: {} ({})", row.name, parts.join(", "), plural(row.connections, "connection"));
    match hello_retry {
        // A better choice of groups would save it.
        Some(true) => {
            // The group that the server asked for, and that was agreed on in the end.
            let cure = group.as_deref().map_or_else(String::new, |group| {
                format!(": the server does not take the group that the client tries first, and +group={group} saves it")
            });
            Statement::new(
                Tone::Caution,
                format!("{text}. A HelloRetryRequest cost one round trip more{}.", clean(&cure)),
            )
        }
        Some(false) | None => Statement::neutral(text),
    }
}
