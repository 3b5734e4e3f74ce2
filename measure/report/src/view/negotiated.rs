//! The negotiated parameters, as observed on every connection.

mod handshake;

use std::collections::BTreeSet;

use ciphertoll_model::{Engine, Leg, LegCount};
use ciphertoll_stats::CellAnalysis;

use super::{Section, Sentence, StratumView, Tone, clean};
use crate::names;
use crate::number::plural;

/// The client end of a leg. Other legs begin in a tunnel or proxy.
const CLIENT: &str = "client";

/// The connections of equal cells under different loads, added up.
struct NegotiatedRow<'a> {
    name: String,
    count: LegCount,
    /// The version of the program of a tunnel or proxy.
    version: Option<&'a str>,
    is_proxied: bool,
    engine: Engine,
    server_version: Option<&'a str>,
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
            for count in &cell.legs {
                match rows.iter_mut().find(|row| row.name == name && row.count.leg == count.leg) {
                    Some(row) => row.count.add(count),
                    None => rows.push(row(stratum, cell, &name, count)),
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

fn row<'a>(
    stratum: &StratumView<'a>,
    cell: &CellAnalysis,
    name: &str,
    count: &LegCount,
) -> NegotiatedRow<'a> {
    let facts = &stratum.report.facts;
    let (path, server) = (cell.cell.treatment.path, &cell.cell.treatment.server);
    NegotiatedRow {
        name: name.to_owned(),
        count: count.clone(),
        version: facts.program_version(path),
        is_proxied: path.as_proxy().is_some(),
        engine: server.engine,
        server_version: facts.server_version(&server.short_name()),
    }
}

/// `OpenSSL 3.5.9` of `OpenSSL 3.5.9 29 Sep 2026`.
fn release(version: &str) -> String {
    clean(version).split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Foreign drivers need not report the negotiated parameters.
fn unseen(driver: &str) -> Sentence {
    Sentence::neutral(format!("driver {driver}: unknown, because the driver does not report it"))
}

/// `tls1.3-p256: TLS 1.3, TLS_AES_256_GCM_SHA384, X25519, p256 certificate, full handshake (48 connections)`.
fn sentence(row: &NegotiatedRow<'_>) -> Sentence {
    let Leg { from, tls_version, group, hello_retry, .. } = &row.count.leg;
    if from != CLIENT {
        return beyond_the_client(row);
    }
    let mut parts: Vec<String> = match tls_version {
        Some(version) => of_tls(&row.count.leg, version),
        None if row.is_proxied => vec!["not encrypted between client and proxy".to_owned()],
        None => vec!["not encrypted".to_owned()],
    };
    parts.extend(row.count.leg.compressor.as_deref().map(|by| format!("compressed with {}", clean(by))));
    let counted = plural(row.count.connections, "connection");
    let mut sentences = vec![format!("{}: {} ({counted})", row.name, parts.join(", "))];
    sentences.extend(row.count.handshake.as_ref().map(handshake::size));
    let observations = sentences.len();
    if *hello_retry == Some(true) {
        // The server requested the group that was negotiated in the end.
        let cure = group.as_deref().map_or_else(String::new, |group| {
            format!(": the server does not accept the client's first group; +group={group} avoids it")
        });
        sentences.push(format!("A HelloRetryRequest cost an extra round trip{}", clean(&cure)));
    }
    sentences.extend(handshake::unused_share(&row.count.leg, row.engine, row.server_version));
    sentences.extend(row.count.handshake.as_ref().and_then(handshake::extra_round_trip));
    let tone = if sentences.len() > observations { Tone::Caution } else { Tone::Neutral };
    let end = if sentences.len() > 1 { "." } else { "" };
    Sentence::new(tone, format!("{}{end}", sentences.join(". ")))
}

fn of_tls(leg: &Leg, version: &str) -> Vec<String> {
    let handshake = leg.resumed.map(|resumed| if resumed { "resumed" } else { "full handshake" }.to_owned());
    [
        Some(clean(version).replace("tls", "TLS ")),
        leg.suite.as_deref().map(clean),
        leg.group.as_deref().map(clean),
        leg.key.as_deref().map(|key| format!("{} certificate", clean(key))),
        leg.signature.as_deref().map(|scheme| format!("{} signature", clean(scheme))),
        leg.chain.filter(|chain| *chain > 1).map(|chain| format!("{chain} certificates sent")),
        leg.library_version.as_deref().map(|version| format!("client {}", release(version))),
        handshake,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The leg of a tunnel, or from a proxy to the server.
fn beyond_the_client(row: &NegotiatedRow<'_>) -> Sentence {
    let Leg { from, to, tls_version, suite, group, key, .. } = &row.count.leg;
    let key = key.as_ref().map(|key| if row.is_proxied { format!("{key} certificate") } else { key.clone() });
    let parts = [suite, group, &key].into_iter().flatten().map(|part| clean(part));
    let version = tls_version.as_deref().map(|version| clean(version).replace("tls", "TLS "));
    let parts: Vec<String> = version.into_iter().chain(parts).collect();
    let ends = [Some(format!("{} to {}", clean(from), clean(to))), row.version.map(clean)];
    let ends = ends.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let counted = plural(row.count.connections, if row.is_proxied { "server connection" } else { "tunnel" });
    Sentence::neutral(format!("{} ({ends}): {} ({counted})", row.name, parts.join(", ")))
}
