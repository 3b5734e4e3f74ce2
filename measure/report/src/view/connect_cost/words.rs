//! The breakdown of connect time as sentences and as a table of shares.

use ciphertoll_model::{Clients, Metric, ServerKey, TlsPath};
use ciphertoll_stats::PrimitiveTimes;

use super::{Bar, CostPart, Remark, ServerCosts};
use crate::number::{measured, percent, quantity, uncertainty};
use crate::view::{Column, ColumnKind, Overflow, Section, Sentence, Table, TableEntry, clean};
use crate::{RunReport, names, subject};

const TIME: Metric = Metric::LatencyNsMean;

/// The parts that a reader can influence.
const IN_SENTENCES: [CostPart; 4] =
    [CostPart::Signature, CostPart::KeyExchange, CostPart::TlsContext, CostPart::Authentication];

/// The columns of the table: TCP and the close are in the table of phases.
const IN_A_TABLE: [CostPart; 6] = [
    CostPart::Signature,
    CostPart::Chain,
    CostPart::KeyExchange,
    CostPart::OtherHandshake,
    CostPart::TlsContext,
    CostPart::Authentication,
];

/// A table of shares and a sentence for each server with something to compare; the method, once.
pub(crate) fn sections(report: &RunReport<'_>) -> Vec<Section> {
    let costs = super::of(report);
    let worth = costs.iter().filter(|costs| costs.is_worth_a_table());
    let mut sections: Vec<Section> = worth.map(|costs| section(report, costs)).collect();
    if let Some(last) = sections.last_mut() {
        last.notes.push(Sentence::neutral(format!(
            "Method: the primitives were timed on this machine during this run with the client's TLS library{}; the \
             server's library may differ.",
            library(report),
        )));
    }
    sections
}

fn section(report: &RunReport<'_>, costs: &ServerCosts<'_>) -> Section {
    let server = names::server(report, costs.server);
    let mut notes: Vec<Sentence> = sentence(report, costs).map(Sentence::neutral).into_iter().collect();
    notes.extend(remarks(costs));
    Section {
        heading: format!("Breakdown of connect time by key and version · {server} · shares of the mean"),
        table: Some(table(costs)),
        notes,
    }
}

fn table(costs: &ServerCosts<'_>) -> Table {
    let happens = |part: &CostPart| costs.encrypted().any(|bar| bar.parts.contains_key(part));
    let parts: Vec<CostPart> = IN_A_TABLE.into_iter().filter(happens).collect();
    let share = |bar: &Bar<'_>, part: &CostPart| match (bar.share(*part), bar.parts.get(part)) {
        (Some(share), Some(spent)) => TableEntry::new([percent(share), quantity(TIME, *spent)]),
        _ => TableEntry::blank(),
    };
    let row = |bar: &Bar<'_>| {
        let total = TableEntry::new([quantity(TIME, bar.total.value), uncertainty(TIME, bar.total)]);
        (bar.label.clone(), [total].into_iter().chain(parts.iter().map(|part| share(bar, part))).collect())
    };
    let headings = ["latency\n(mean)"].into_iter().chain(parts.iter().map(|part| heading(*part)));
    let columns = headings.map(|heading| Column::new(ColumnKind::Level, heading));
    let rows = costs.encrypted().map(row);
    Table { overflow: Overflow::Transpose, ..Table::new(&names::factors(&costs.rows), columns, rows) }
}

fn heading(part: CostPart) -> &'static str {
    match part {
        CostPart::TlsContext => "TLS\ncontext",
        CostPart::Chain => "chain",
        CostPart::KeyExchange => "key\nexchange",
        CostPart::OtherHandshake => "other\nhandshake",
        CostPart::Authentication => "auth",
        other => other.title(),
    }
}

/// The connect with the slowest signature in the newest version that has it, and the same version with the key whose
/// signature is fastest.
pub(crate) fn sentence(report: &RunReport<'_>, costs: &ServerCosts<'_>) -> Option<String> {
    let signature = |bar: &Bar<'_>| bar.share(CostPart::Signature).unwrap_or(0.0);
    let spent = |bar: &Bar<'_>| bar.parts.get(&CostPart::Signature).copied().unwrap_or(0.0);
    let version = |bar: &Bar<'_>| tls(bar).map(|tls| tls.parameters.version);
    let by_signature = |left: &&Bar<'_>, right: &&Bar<'_>| {
        spent(left).total_cmp(&spent(right)).then(version(left).cmp(&version(right)))
    };
    let slowest = costs.encrypted().max_by(by_signature)?;
    let path = tls(slowest)?;
    let mut shares: Vec<(CostPart, f64)> =
        IN_SENTENCES.into_iter().filter_map(|part| Some((part, slowest.share(part)?))).collect();
    shares.sort_by(|left, right| right.1.total_cmp(&left.1));
    let shares = shares.iter().enumerate().map(|(index, (part, share))| {
        let of_it = if index == 0 { " of it is" } else { "" };
        format!("{}{of_it} {}", percent(*share), noun(*part))
    });
    let others = costs.encrypted().filter(|other| differs_in_key(slowest, other) && signature(other) > 0.0);
    let compared = others.min_by(by_signature).and_then(|other| {
        Some(format!("; with {} the signature is {}", key_name(tls(other)?.key?), percent(signature(other))))
    });
    Some(format!(
        "On {} a {} takes {}: {}{}.",
        names::server(report, costs.server),
        connect(slowest, path),
        measured(TIME, slowest.total),
        shares.collect::<Vec<_>>().join(", "),
        compared.unwrap_or_default(),
    ))
}

fn tls(bar: &Bar<'_>) -> Option<TlsPath> {
    bar.cell.cell.treatment.path.as_tls()
}

/// `TLS 1.3 connect with an RSA-4096 certificate`, with its full name if it has more modifiers.
fn connect(bar: &Bar<'_>, tls: TlsPath) -> String {
    let protocol = subject::protocol(tls.parameters.version);
    let Some(key) = tls.key.filter(|_| bar.parts.contains_key(&CostPart::Signature)) else {
        return format!("resumed {protocol} connect ({})", bar.label);
    };
    let article = subject::article(key);
    let is_all = bar.label == ciphertoll_model::Path::tls(tls.parameters.version, key).to_string();
    let details = if is_all { String::new() } else { format!(" ({})", bar.label) };
    format!("{protocol} connect with {article} {} certificate{details}", key_name(key))
}

/// Whether two connects have nothing but key and suite to tell them apart.
fn differs_in_key(one: &Bar<'_>, other: &Bar<'_>) -> bool {
    let (left, right) = (&one.cell.cell.treatment, &other.cell.cell.treatment);
    let version = |bar: &Bar<'_>| tls(bar).map(|tls| tls.parameters.version);
    let key = |bar: &Bar<'_>| tls(bar).and_then(|tls| tls.key);
    version(one) == version(other)
        && key(one) != key(other)
        && (&left.auth, left.ctx) == (&right.auth, right.ctx)
}

/// `P-256`.
fn key_name(key: ServerKey) -> &'static str {
    subject::certificate(key).trim_end_matches(" certificate")
}

fn noun(part: CostPart) -> &'static str {
    match part {
        CostPart::Signature => "the signature",
        CostPart::TlsContext => "the client's TLS context",
        other => other.title(),
    }
}

/// Caveats of single bars.
pub(crate) fn remarks(costs: &ServerCosts<'_>) -> Vec<Sentence> {
    let of_bar = |bar: &Bar<'_>| {
        let of = |remark: &Remark| Sentence::neutral(format!("{}: {}.", bar.label, said(remark)));
        bar.remarks.iter().map(of).collect::<Vec<_>>()
    };
    let mut remarks: Vec<Sentence> = costs.bars.iter().flat_map(of_bar).collect();
    if !costs.left_out.is_empty() {
        let text =
            format!("No breakdown, because the primitives were not timed: {}.", costs.left_out.join(", "));
        remarks.push(Sentence::neutral(text));
    }
    if costs.clients != Clients::ONE {
        let text = format!(
            "With {} clients at once, other handshake includes waiting for a processor.",
            costs.clients
        );
        remarks.push(Sentence::neutral(text));
    }
    remarks
}

fn said(remark: &Remark) -> String {
    match remark {
        Remark::Shrunk { timed_ns, handshake_ns } => format!(
            "the primitives alone take {}, longer than the whole handshake on connections ({}); their shares are scaled \
             to fit",
            quantity(TIME, *timed_ns),
            quantity(TIME, *handshake_ns),
        ),
        Remark::NotTimed { group } => {
            let group = group.as_deref().map_or_else(|| "DHE".to_owned(), clean);
            format!("the key exchange ({group}) was not timed and is in other handshake")
        }
        Remark::KeyTransport => {
            "the suite has no signature; the share is that of a decryption by the same key, which takes as long"
                .to_owned()
        }
    }
}

/// The method, once for all charts.
pub(crate) fn how_found(report: &RunReport<'_>) -> Sentence {
    Sentence::neutral(format!(
        "Method: the phases were measured on every connection. A signature, its verification and one side of a key \
         exchange were timed alone on this machine during this run, by the thread's CPU clock, with the client's TLS \
         library{}; the server's library may differ. Signature: the server signs and the client verifies. Certificate \
         chain: the client verifies the certificates. Key exchange: both sides. Other handshake: the rest (messages, \
         wake-ups, waiting for a processor, the protection of records).",
        library(report)
    ))
}

/// The timed primitives, so that readers can check the sums.
pub(crate) fn timed(times: &PrimitiveTimes<'_>) -> Sentence {
    let time = |ns: u64| quantity(TIME, ns as f64);
    let signatures = times.signatures.iter().map(|(key, signature)| {
        format!(
            "{} signs in {} and verifies in {}",
            clean(key),
            time(signature.sign_ns),
            time(signature.verify_ns)
        )
    });
    let exchanges = times.key_exchanges.iter().map(|(group, exchange)| {
        format!("one side of {} agrees in {}", clean(group), time(exchange.agree_ns))
    });
    let all: Vec<String> = signatures.chain(exchanges).collect();
    Sentence::neutral(format!("Timed primitives (medians): {}.", all.join("; ")))
}

/// ` (OpenSSL 3.0.16)`.
fn library(report: &RunReport<'_>) -> String {
    let library = report.facts.environment.map(|environment| clean(&environment.tls_library));
    library.map_or_else(String::new, |library| format!(" ({library})"))
}
