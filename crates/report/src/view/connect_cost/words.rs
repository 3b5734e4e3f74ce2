//! What a connect is made of, in words and in a table of shares.

use ciphertoll_model::{Clients, Factor, Metric, ServerKey, TlsPath};

use super::{Bar, CostPart, Remark, ServerCosts, Times};
use crate::number::{measured, percent, quantity, uncertainty};
use crate::view::{Column, Entry, Overflow, Part, Section, Statement, Table, clean};
use crate::{RunReport, names, subject};

const TIME: Metric = Metric::LatencyNsMean;

/// What a sentence speaks of: the parts that a reader can do something about.
const SPOKEN_OF: [CostPart; 4] =
    [CostPart::Signature, CostPart::KeyExchange, CostPart::TlsContext, CostPart::Authentication];

/// What a table has columns for: TCP and the close are in that of the phases.
const IN_A_TABLE: [CostPart; 6] = [
    CostPart::Signature,
    CostPart::Chain,
    CostPart::KeyExchange,
    CostPart::OtherHandshake,
    CostPart::TlsContext,
    CostPart::Authentication,
];

/// For each server with something to compare its shares in a table, and what they come to in a sentence; how they were
/// found, once.
pub(crate) fn sections(report: &RunReport<'_>) -> Vec<Section> {
    let costs = super::of(report);
    let worth = costs.iter().filter(|costs| costs.is_worth_a_table());
    let mut sections: Vec<Section> = worth.map(|costs| section(report, costs)).collect();
    if let Some(last) = sections.last_mut() {
        last.notes.push(Statement::neutral(format!(
            "Shares of the handshake: primitives timed on this machine in this run with the client's TLS library{}; \
             the server's own may differ.",
            library(report),
        )));
    }
    sections
}

fn section(report: &RunReport<'_>, costs: &ServerCosts<'_>) -> Section {
    let server = names::server(report, costs.server);
    let mut notes: Vec<Statement> = sentence(report, costs).map(Statement::neutral).into_iter().collect();
    notes.extend(remarks(costs));
    Section {
        heading: format!(
            "What a connect is made of, by key and version · {server} · shares of its mean time"
        ),
        table: Some(table(costs)),
        notes,
    }
}

fn table(costs: &ServerCosts<'_>) -> Table {
    let happens = |part: &CostPart| costs.encrypted().any(|bar| bar.parts.contains_key(part));
    let parts: Vec<CostPart> = IN_A_TABLE.into_iter().filter(happens).collect();
    let heading = |part: &CostPart| Column::new(Part::Level, heading(*part));
    let share = |bar: &Bar<'_>, part: &CostPart| match (bar.share(*part), bar.parts.get(part)) {
        (Some(share), Some(spent)) => Entry::new([percent(share), quantity(TIME, *spent)]),
        _ => Entry::new([String::new()]),
    };
    let row = |bar: &Bar<'_>| {
        let total = [quantity(TIME, bar.total.value), uncertainty(TIME, bar.total)];
        let about = [Entry::new([bar.label.clone()]), Entry::new(total)];
        about.into_iter().chain(parts.iter().map(|part| share(bar, part))).collect()
    };
    let factors: Vec<&str> = costs.rows.iter().map(|factor| Factor::label(*factor)).collect();
    Table {
        columns: [Column::new(Part::Label, &factors.join(", ")), Column::new(Part::Level, "time\n(mean)")]
            .into_iter()
            .chain(parts.iter().map(heading))
            .collect(),
        rows: costs.encrypted().map(row).collect(),
        overflow: Overflow::Transpose,
    }
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

/// The connect with the dearest signature, by the newest version that has it; and the same version with the key whose
/// signature is cheapest.
pub(crate) fn sentence(report: &RunReport<'_>, costs: &ServerCosts<'_>) -> Option<String> {
    let signature = |bar: &Bar<'_>| bar.share(CostPart::Signature).unwrap_or(0.0);
    let spent = |bar: &Bar<'_>| bar.parts.get(&CostPart::Signature).copied().unwrap_or(0.0);
    let version = |bar: &Bar<'_>| tls(bar).map(|tls| tls.version);
    let by_signature = |left: &&Bar<'_>, right: &&Bar<'_>| {
        spent(left).total_cmp(&spent(right)).then(version(left).cmp(&version(right)))
    };
    let dearest = costs.encrypted().max_by(by_signature)?;
    let path = tls(dearest)?;
    let mut shares: Vec<(CostPart, f64)> =
        SPOKEN_OF.into_iter().filter_map(|part| Some((part, dearest.share(part)?))).collect();
    shares.sort_by(|left, right| right.1.total_cmp(&left.1));
    let shares = shares.iter().enumerate().map(|(index, (part, share))| {
        let of_it = if index == 0 { " of it is" } else { "" };
        format!("{}{of_it} {}", percent(*share), noun(*part))
    });
    let others = costs.encrypted().filter(|other| differs_in_key(dearest, other) && signature(other) > 0.0);
    let compared = others.min_by(by_signature).and_then(|other| {
        Some(format!("; with {} the signature is {}", key_name(tls(other)?.key?), percent(signature(other))))
    });
    Some(format!(
        "On {} a {} takes {}: {}{}.",
        names::server(report, costs.server),
        connect(dearest, path),
        measured(TIME, dearest.total),
        shares.collect::<Vec<_>>().join(", "),
        compared.unwrap_or_default(),
    ))
}

fn tls(bar: &Bar<'_>) -> Option<TlsPath> {
    bar.cell.cell.treatment.path.as_tls()
}

/// `TLS 1.3 connect with an RSA-4096 certificate`; its whole name beside it, where there is more to it.
fn connect(bar: &Bar<'_>, tls: TlsPath) -> String {
    let protocol = subject::protocol(tls.version);
    let Some(key) = tls.key.filter(|_| bar.parts.contains_key(&CostPart::Signature)) else {
        return format!("resumed {protocol} connect ({})", bar.label);
    };
    let article = if key.rsa_bits().is_some() || key == ServerKey::Ed25519 { "an" } else { "a" };
    let is_all = bar.label == ciphertoll_model::Path::tls(tls.version, key).to_string();
    let details = if is_all { String::new() } else { format!(" ({})", bar.label) };
    format!("{protocol} connect with {article} {} certificate{details}", key_name(key))
}

/// Whether two connects have nothing but key and suite to tell them apart.
fn differs_in_key(one: &Bar<'_>, other: &Bar<'_>) -> bool {
    let (left, right) = (&one.cell.cell.treatment, &other.cell.cell.treatment);
    let version = |bar: &Bar<'_>| tls(bar).map(|tls| tls.version);
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

/// What is to be known of single bars.
pub(crate) fn remarks(costs: &ServerCosts<'_>) -> Vec<Statement> {
    let of_bar = |bar: &Bar<'_>| {
        let of = |remark: &Remark| Statement::neutral(format!("{}: {}.", bar.label, said(remark)));
        bar.remarks.iter().map(of).collect::<Vec<_>>()
    };
    let mut remarks: Vec<Statement> = costs.bars.iter().flat_map(of_bar).collect();
    if !costs.left_out.is_empty() {
        let text =
            format!("Not divided, since its primitives were not timed: {}.", costs.left_out.join(", "));
        remarks.push(Statement::neutral(text));
    }
    if costs.clients != Clients::ONE {
        let text = format!(
            "With {} clients at once, their waiting for a processor is in other handshake, too.",
            costs.clients
        );
        remarks.push(Statement::neutral(text));
    }
    remarks
}

fn said(remark: &Remark) -> String {
    match remark {
        Remark::Shrunk { timed_ns, handshake_ns } => format!(
            "timed alone, its primitives take {}, longer than the whole handshake took on connections ({}); their \
             shares are scaled to fit",
            quantity(TIME, *timed_ns),
            quantity(TIME, *handshake_ns),
        ),
        Remark::NotTimed { group } => {
            let group = group.as_deref().map_or_else(|| "DHE".to_owned(), clean);
            format!("its key exchange ({group}) was not timed and is in other handshake")
        }
        Remark::KeyTransport => {
            "what stands for the signature is a decryption by the same key, which takes as long: \
                                 its suite sends the secret encrypted"
                .to_owned()
        }
    }
}

/// How the shares were found, once for all plots.
pub(crate) fn how_found(report: &RunReport<'_>) -> Statement {
    Statement::neutral(format!(
        "How the shares were found: the phases of a connect were measured on every connection; what a signature, its \
         verification and one side of a key exchange take was timed on this machine in this run, each alone, by its \
         thread's CPU clock, with the client's TLS library{}. The server's own may differ. Signature is the server's \
         and the client's verification of it, certificate chain the verification of the certificate, key exchange both \
         sides; other handshake is what is left: messages, wake-ups, waiting for a processor, the protection of records.",
        library(report)
    ))
}

/// What was timed: medians of rounds, for whoever wants to add up again.
pub(crate) fn timed(times: &Times<'_>) -> Statement {
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
    Statement::neutral(format!("Timed, medians of rounds: {}.", all.join("; ")))
}

/// ` (OpenSSL 3.0.16)`.
fn library(report: &RunReport<'_>) -> String {
    let library = report.environment().map(|environment| clean(&environment.tls_library));
    library.map_or_else(String::new, |library| format!(" ({library})"))
}
