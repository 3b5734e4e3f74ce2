//! The first screen: a pair per line, then what to change.

use std::fmt::Write as _;

use crate::observation::{
    Encryption, EncryptionKind, Observation, ObservedFinding, Pair, PairCost, Quantiles,
};

/// Lines for pairs and for findings, such that all fits on a screen of 25 lines.
const MAX_PAIRS: usize = 5;
const MAX_FINDINGS: usize = 4;
/// A rate of fewer says nothing.
const FEW_CONNECTS: u64 = 5;

/// What a person reads first: at most 25 lines.
#[must_use]
pub fn first_screen(observation: &Observation) -> String {
    let mut text = String::new();
    let begun: u64 = observation.pairs.iter().map(|pair| pair.connections.begun).sum();
    let _ = writeln!(
        text,
        "{}: {} in {}, {}",
        observation.source,
        counted(begun, "new connection"),
        seconds(observation.seconds),
        counted(observation.segments, "segment"),
    );
    if observation.pairs.is_empty() {
        text.push_str("no database connection: ports that are looked at are set by --port 5432=postgres,3306=mysql,27017=mongodb\n");
        return text;
    }
    for pair in observation.pairs.iter().take(MAX_PAIRS) {
        add_pair(&mut text, pair);
    }
    add_rest(&mut text, observation.pairs.len(), MAX_PAIRS, "pair");
    if !observation.findings.is_empty() {
        text.push_str("what to change, the worst first:\n");
    }
    for finding in observation.findings.iter().take(MAX_FINDINGS) {
        add_finding(&mut text, finding);
    }
    add_rest(&mut text, observation.findings.len(), MAX_FINDINGS, "finding");
    for limit in limits(observation) {
        let _ = writeln!(text, "{limit}");
    }
    text
}

fn add_pair(text: &mut String, pair: &Pair) {
    let mut facts = Vec::new();
    if pair.connections.begun > 0 {
        facts.push(if pair.connections.begun >= FEW_CONNECTS && pair.connects_per_s >= 0.1 {
            format!("{} connects/s", short(pair.connects_per_s))
        } else {
            counted(pair.connections.begun, "connect")
        });
    }
    if pair.connections.began_before > 0 {
        facts.push(format!("{} began before", pair.connections.began_before));
    }
    if let Some(queries) = &pair.queries {
        let about = if queries.by_turns { "about " } else { "" };
        facts.push(format!("median {about}{}", counted(queries.median, "query")));
    }
    facts.extend(pair.encryption.first().map(|most| encryption(most, pair.encryption.len() - 1)));
    let protocol = pair.protocol.as_deref().unwrap_or("unknown protocol");
    let _ = writeln!(text, "{} → {} ({protocol}): {}", pair.client, pair.server, facts.join(", "));
    if let Some(connect) = &pair.connect_ms {
        let phases = pair.phases.iter().filter(|phase| phase.phase != "first_query");
        let parts: Vec<_> =
            phases.map(|phase| format!("{} {}", phase_words(&phase.phase), median(&phase.ms))).collect();
        let _ = writeln!(text, "    a connect takes {} ms: {}", median(connect), parts.join(", "));
    }
    if let Some(cost) = pair.cost.as_ref().and_then(PairCost::words) {
        let _ = writeln!(text, "    {cost}");
    }
}

fn add_finding(text: &mut String, finding: &ObservedFinding) {
    let _ = writeln!(text, "  {} → {}: {}", finding.client, finding.server, finding.seen);
    let _ = writeln!(text, "    {}", finding.todo);
}

fn add_rest(text: &mut String, all: usize, shown: usize, what: &str) {
    if let Some(rest) = all.checked_sub(shown).filter(|rest| *rest > 0) {
        let _ = writeln!(text, "  and {} more: --format json", counted(rest as u64, what));
    }
}

fn encryption(most: &Encryption, others: usize) -> String {
    let words = encryption_words(most);
    match others {
        0 => words,
        1 => format!("{words} (and another way)"),
        more => format!("{words} (and {more} other ways)"),
    }
}

/// How connections are encrypted: `TLS 1.3 x25519, not resumed`.
#[must_use]
pub fn encryption_words(most: &Encryption) -> String {
    match most.kind {
        EncryptionKind::None => "not encrypted".to_owned(),
        EncryptionKind::Refused => "not encrypted: the server refused TLS".to_owned(),
        EncryptionKind::Gss => "encrypted by GSSAPI".to_owned(),
        EncryptionKind::Unknown => "encryption unknown".to_owned(),
        EncryptionKind::TlsFailed => "no TLS handshake was completed".to_owned(),
        EncryptionKind::Tls => {
            let version = most.version.as_deref().unwrap_or_default().replace("tls", "TLS ");
            let group = most.group.as_deref().map(|group| format!(" {group}")).unwrap_or_default();
            let resumed = match most.resumed {
                0 => ", not resumed".to_owned(),
                all if all == most.connections => ", resumed".to_owned(),
                some => format!(", {some} resumed"),
            };
            format!("{version}{group}{resumed}")
        }
    }
}

/// What a reader of the counts has to know about them.
#[must_use]
pub fn limits(observation: &Observation) -> Vec<String> {
    let unread: u64 = observation.pairs.iter().map(|pair| pair.connections.unread).sum();
    let mut limits = Vec::new();
    if let Some(dropped) = observation.dropped.filter(|dropped| *dropped > 0) {
        limits.push(format!(
            "{} dropped by the kernel: all counts are lower bounds",
            counted(dropped, "packet")
        ));
    }
    if observation.truncated {
        limits.push("the file ends within a packet".to_owned());
    }
    if unread > 0 {
        limits.push(format!(
            "{} could not be read: their queries are not counted",
            counted(unread, "connection")
        ));
    }
    if observation.evicted > 0 {
        let evicted = counted(observation.evicted, "idle connection");
        limits.push(format!("{evicted} no longer followed: too many were open"));
    }
    if observation.pairs.iter().any(|pair| pair.queries.as_ref().is_some_and(|queries| queries.by_turns)) {
        limits.push(
            "inside of TLS, queries are turns of direction: fewer than were sent if clients pipeline, more if they prepare or COPY"
                .to_owned(),
        );
    }
    limits
}

fn phase_words(phase: &str) -> &str {
    match phase {
        "tcp_connect" => "TCP",
        "server_greeting" => "greeting",
        "tls_request" => "TLS request",
        "tls_handshake" => "TLS",
        "auth" => "login",
        other => other,
    }
}

fn median(quantiles: &Quantiles) -> String {
    short(quantiles.median)
}

/// Two or three digits.
fn short(number: f64) -> String {
    match number {
        ..1.0 => format!("{number:.2}"),
        ..10.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

fn seconds(seconds: f64) -> String {
    format!("{} s", short(seconds))
}

fn counted(count: u64, what: &str) -> String {
    let number = grouped(count);
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("{number} {what}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {what}s"),
    }
}

/// `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
