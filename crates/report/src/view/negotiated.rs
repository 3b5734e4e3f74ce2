//! The negotiated parameters, as observed on every connection.

use std::collections::BTreeSet;

use ciphertoll_model::{Leg, LegCount};

use super::{Section, Sentence, StratumView, clean};
use crate::names;
use crate::number::plural;

/// The client end of a leg. Other legs begin in a tunnel or proxy.
const CLIENT: &str = "client";

/// The connections of equal cells under different loads, added up.
struct NegotiatedRow<'a> {
    name: String,
    leg: Leg,
    /// The version of the program of a tunnel or proxy.
    version: Option<&'a str>,
    is_proxied: bool,
    connections: u64,
}

pub(crate) fn section(strata: &[StratumView<'_>]) -> Option<Section> {
    let mut rows: Vec<NegotiatedRow<'_>> = Vec::new();
    // A cell that is compared with two baselines has made its connections once.
    let mut counted = BTreeSet::new();
    let mut silent = BTreeSet::new();
    for stratum in strata {
        let context = names::context(stratum.report.plan, stratum.plan, &stratum.rows);
        for cell in stratum.cells().filter(|cell| counted.insert(&cell.id.0)).collect::<Vec<_>>() {
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
                    let version = stratum.report.facts.program_version(path);
                    let is_proxied = path.as_proxy().is_some();
                    let (name, leg, connections) = (name.clone(), leg.clone(), *connections);
                    rows.push(NegotiatedRow { name, leg, version, is_proxied, connections });
                }
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(Section {
        heading: "Negotiated on every connection".to_owned(),
        table: None,
        notes: rows.iter().map(sentence).chain(silent.iter().map(|driver| unseen(driver))).collect(),
    })
}

/// Foreign drivers need not report the negotiated parameters.
fn unseen(driver: &str) -> Sentence {
    Sentence::neutral(format!("driver {driver}: unknown, because the driver does not report it"))
}

/// `tls1.3-p256: TLS 1.3, TLS_AES_256_GCM_SHA384, X25519, p256 certificate, full handshake (48 connections)`.
fn sentence(row: &NegotiatedRow<'_>) -> Sentence {
    let Leg { from, to, tls_version, suite, group, key, resumed, chain, hello_retry, .. } = &row.leg;
    if from != CLIENT {
        let key =
            key.as_ref().map(|key| if row.is_proxied { format!("{key} certificate") } else { key.clone() });
        let parts = [suite, group, &key].into_iter().flatten().map(|part| clean(part));
        let version = tls_version.as_deref().map(|version| clean(version).replace("tls", "TLS "));
        let parts: Vec<String> = version.into_iter().chain(parts).collect();
        let ends = [Some(format!("{} to {}", clean(from), clean(to))), row.version.map(clean)];
        let ends = ends.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let counted = plural(row.connections, if row.is_proxied { "server connection" } else { "tunnel" });
        return Sentence::neutral(format!("{} ({ends}): {} ({counted})", row.name, parts.join(", ")));
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
        None if row.is_proxied => vec!["not encrypted between client and proxy".to_owned()],
        None => vec!["not encrypted".to_owned()],
    };
    let compressed = row.leg.compressor.as_deref().map(|by| format!("compressed with {}", clean(by)));
    let parts: Vec<String> = parts.into_iter().chain(compressed).collect();
    let text = format!("{}: {} ({})", row.name, parts.join(", "), plural(row.connections, "connection"));
    match hello_retry {
        Some(true) => {
            // The server requested the group that was negotiated in the end.
            let cure = group.as_deref().map_or_else(String::new, |group| {
                format!(": the server does not accept the client's first group; +group={group} avoids it")
            });
            Sentence::caution(format!(
                "{text}. A HelloRetryRequest cost an extra round trip{}.",
                clean(&cure)
            ))
        }
        Some(false) | None => Sentence::neutral(text),
    }
}
