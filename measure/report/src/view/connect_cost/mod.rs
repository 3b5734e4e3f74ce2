//! The breakdown of connect time by key and version: the measured phases, and within the handshake the primitives that
//! were timed on the same machine in the same run.

mod primitives;
mod words;

use std::collections::BTreeMap;

use ciphertoll_model::{Cell, Clients, Factor, Metric, Phase, ServerLevel, Workload, labelled};
use ciphertoll_stats::{CellAnalysis, Estimate, PrimitiveTimes};
use schemars::JsonSchema;
use serde::Serialize;

use self::primitives::{Primitives, Remark};
pub(crate) use self::words::{how_found, remarks, sections, sentence, timed};
use super::{is_plain_load, level};
use crate::{RunReport, names};

labelled! {
    /// A part of the connect time. Parts add up to the whole.
    #[derive(Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum CostPart {
        /// Name look-up, TCP connect and `MySQL`'s greeting.
        Network = "network",
        /// Building the client's TLS context.
        TlsContext = "tls_context",
        /// The server's signature and the client's verification of it.
        Signature = "signature",
        /// The client's verification of the certificates below the root.
        Chain = "chain",
        /// Both sides' keys, and the secret from them.
        KeyExchange = "key_exchange",
        /// The rest of the handshake: messages, wake-ups, waiting for a processor, the protection of records, a client's
        /// certificate.
        OtherHandshake = "other_handshake",
        /// Login until the server is ready.
        Authentication = "authentication",
        /// The orderly close.
        Close = "close",
    }
}

impl CostPart {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Network => "TCP connect and greeting",
            Self::TlsContext => "TLS context",
            Self::Signature => "signature",
            Self::Chain => "certificate chain",
            Self::KeyExchange => "key exchange",
            Self::OtherHandshake => "other handshake",
            Self::Authentication => "authentication",
            Self::Close => "close",
        }
    }

    /// The phases that measure it; none if primitives do.
    fn phases(self) -> &'static [Phase] {
        match self {
            Self::Network => &[Phase::Dns, Phase::TcpConnect, Phase::ServerGreeting],
            Self::TlsContext => &[Phase::TlsContext],
            Self::Authentication => &[Phase::Auth, Phase::Ready],
            Self::Close => &[Phase::Close],
            Self::Signature | Self::Chain | Self::KeyExchange | Self::OtherHandshake => &[],
        }
    }
}

/// The connects of one server with the fewest clients.
pub(crate) struct ServerCosts<'a> {
    pub(crate) server: &'a ServerLevel,
    pub(crate) clients: Clients,
    /// A bar for each path and any other level that varies.
    pub(crate) bars: Vec<Bar<'a>>,
    /// The factors that vary.
    pub(crate) rows: Vec<Factor>,
    /// TLS connects without a breakdown.
    left_out: Vec<String>,
}

/// One mean connect and its parts.
pub(crate) struct Bar<'a> {
    pub(crate) cell: &'a CellAnalysis,
    pub(crate) label: String,
    /// Its mean time, ns.
    pub(crate) total: &'a Estimate,
    /// ns; parts that do not happen are absent.
    pub(crate) parts: BTreeMap<CostPart, f64>,
    remarks: Vec<Remark>,
}

/// Every server with TLS connects that have a breakdown. Old records without primitives have none.
pub(crate) fn of<'a>(report: &RunReport<'a>) -> Vec<ServerCosts<'a>> {
    let Some(times) = report.facts.primitives else { return Vec::new() };
    let servers = report.plan.servers().into_iter();
    servers.filter_map(|server| of_server(report, server, &times)).collect()
}

fn of_server<'a>(
    report: &RunReport<'a>,
    server: &'a ServerLevel,
    times: &PrimitiveTimes<'_>,
) -> Option<ServerCosts<'a>> {
    let connects: Vec<&'a CellAnalysis> = report
        .analysis
        .cells()
        .into_iter()
        .filter(|cell| {
            is_plain_load(&cell.cell, server, Workload::Connect)
                && level(cell, Metric::LatencyNsMean).is_some()
        })
        .collect();
    let clients = connects.iter().map(|cell| cell.cell.clients).min()?;
    let connects: Vec<&'a CellAnalysis> =
        connects.into_iter().filter(|cell| cell.cell.clients == clients).collect();
    let cells: Vec<&Cell> = connects.iter().map(|cell| &cell.cell).collect();
    let rows = names::varying(&cells, Factor::Path);
    let (mut bars, mut left_out) = (Vec::new(), Vec::new());
    for cell in connects {
        let label = names::row_label(&cell.cell, &rows);
        match bar(cell, &label, times) {
            Some(bar) => bars.push(bar),
            None => left_out.push(label),
        }
    }
    let costs = ServerCosts { server, clients, bars, rows, left_out };
    (costs.encrypted().count() > 0).then_some(costs)
}

/// `None` if its handshake has no breakdown.
fn bar<'a>(cell: &'a CellAnalysis, label: &str, times: &PrimitiveTimes<'_>) -> Option<Bar<'a>> {
    let total = level(cell, Metric::LatencyNsMean)?;
    let spent = |phases: &[Phase]| -> f64 {
        let levels = phases.iter().filter_map(|phase| level(cell, Metric::of_phase(*phase)));
        levels.map(|estimate| estimate.value).sum()
    };
    let measured = CostPart::ALL.into_iter().map(|part| (part, spent(part.phases())));
    let mut parts: BTreeMap<CostPart, f64> = measured.collect();
    let mut remarks = Vec::new();
    if let Some(tls) = cell.cell.treatment.path.as_tls() {
        let handshake_ns = spent(&[Phase::TlsRequest, Phase::TlsHandshake]);
        let primitives = Primitives::of(cell, tls, times).filter(|_| handshake_ns > 0.0)?;
        let timed_ns = primitives.sum_ns();
        let shrink = (handshake_ns / timed_ns).min(1.0);
        parts.insert(CostPart::Signature, primitives.signature_ns * shrink);
        parts.insert(CostPart::Chain, primitives.chain_ns * shrink);
        parts.insert(CostPart::KeyExchange, primitives.key_exchange_ns * shrink);
        parts.insert(CostPart::OtherHandshake, (handshake_ns - timed_ns).max(0.0));
        remarks = primitives.remarks;
        if timed_ns > handshake_ns {
            remarks.push(Remark::Shrunk { timed_ns, handshake_ns });
        }
    }
    parts.retain(|_, spent| *spent > 0.0);
    Some(Bar { cell, label: label.to_owned(), total, parts, remarks })
}

impl<'a> ServerCosts<'a> {
    pub(crate) fn encrypted(&self) -> impl Iterator<Item = &Bar<'a>> {
        self.bars.iter().filter(|bar| bar.cell.cell.treatment.path.as_tls().is_some())
    }

    /// Whether there is anything to compare for a single client.
    fn is_worth_a_table(&self) -> bool {
        self.clients == Clients::ONE && self.encrypted().count() > 1
    }

    /// The parts that any of its connects has, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = CostPart> {
        CostPart::ALL.into_iter().filter(|part| self.bars.iter().any(|bar| bar.parts.contains_key(part)))
    }
}

impl Bar<'_> {
    /// Of the whole connect.
    pub(crate) fn share(&self, part: CostPart) -> Option<f64> {
        self.parts.get(&part).map(|spent| spent / self.total.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_json_says() {
        for part in CostPart::ALL {
            assert_eq!(serde_json::to_value(part).unwrap(), part.label());
        }
    }

    #[test]
    fn every_phase_of_a_connect_is_in_one_part() {
        let measured: Vec<&Phase> = CostPart::ALL.iter().flat_map(|part| part.phases()).collect();
        let divided = [Phase::TlsRequest, Phase::TlsHandshake];
        for phase in Phase::ALL.iter().filter(|phase| **phase != Phase::FirstQuery) {
            let parts = measured.iter().filter(|other| **other == phase).count();
            assert_eq!(parts + usize::from(divided.contains(phase)), 1, "{phase:?}");
        }
    }
}
