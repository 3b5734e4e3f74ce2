//! The first screen: a pair per line, then what to change.

use crate::clients;
use crate::findings::merged;
use crate::labels::AddressLabels;
use crate::observation::{Encryption, EncryptionKind, Observation, Pair, PairCost, Quantiles, SkippedFrames};
use crate::users::pair_users;
use crate::words::{counted, grouped};

const MAX_LINES: usize = 25;
/// The part of the screen that pairs have if there are many pairs and many findings.
const PAIR_LINES: usize = 10;
const FINDINGS_HEADING: &str = "what to change, the worst first:";

/// What a person reads first: at most 25 lines.
#[must_use]
pub fn first_screen(observation: &Observation) -> String {
    let begun: u64 = observation.pairs.iter().map(|pair| pair.connections.begun).sum();
    let mut lines = vec![format!(
        "{}: {} in {}, {}",
        observation.source,
        counted(begun, "new connection"),
        seconds(observation.seconds),
        counted(observation.segments, "segment"),
    )];
    if observation.pairs.is_empty() {
        lines.push(nothing(observation));
    }
    let limits = limits(observation);
    let labels = AddressLabels::of(observation);
    let pairs: Vec<_> = observation.pairs.iter().map(pair_lines).collect();
    let findings: Vec<_> = merged(&observation.pairs, &observation.probes)
        .into_iter()
        .map(|finding| {
            let (from, server) = (labels.label(&finding.from), labels.label(&finding.server));
            let head = format!("  {from} → {server}: {}", finding.seen);
            vec![head, format!("    {}", finding.todo)]
        })
        .collect();
    let heading = usize::from(!findings.is_empty());
    let room = MAX_LINES.saturating_sub(lines.len() + limits.len() + heading);
    let finding_lines: usize = findings.iter().map(Vec::len).sum();
    // What one of the two does not need, the other one gets.
    lines.extend(fitting(pairs, room.saturating_sub(finding_lines).max(PAIR_LINES.min(room)), "pair"));
    if heading > 0 {
        lines.push(FINDINGS_HEADING.to_owned());
    }
    let room = MAX_LINES.saturating_sub(lines.len() + limits.len());
    lines.extend(fitting(findings, room, "finding"));
    lines.extend(limits);
    lines.truncate(MAX_LINES);
    lines.join("\n") + "\n"
}

/// Blocks of lines, as many as fit, and how many there are more.
fn fitting(blocks: Vec<Vec<String>>, room: usize, what: &str) -> Vec<String> {
    let all: usize = blocks.iter().map(Vec::len).sum();
    // If not all fit, a line says so.
    let room = if all <= room { room } else { room.saturating_sub(1) };
    let (mut lines, mut rest) = (Vec::new(), 0);
    for block in blocks {
        if rest > 0 || lines.len() + block.len() > room {
            rest += 1;
        } else {
            lines.extend(block);
        }
    }
    if rest > 0 {
        lines.push(format!("  and {} more: --format json", counted(rest, what)));
    }
    lines
}

fn nothing(observation: &Observation) -> String {
    let ports = observation.ports.join(",");
    if ports.is_empty() {
        return "no database connection on the ports that --port sets".to_owned();
    }
    format!("no database connection on these ports: {ports}; --port sets others")
}

fn pair_lines(pair: &Pair) -> Vec<String> {
    let mut facts = Vec::new();
    if pair.connections.begun > 0 {
        facts.push(match pair.connects_per_s.filter(|rate| *rate >= 0.1) {
            Some(rate) => format!("{} connects/s", short(rate)),
            None => counted(pair.connections.begun, "connect"),
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
    facts.extend(pair_users(pair));
    let protocol = pair.protocol.as_deref().unwrap_or("unknown protocol");
    let client = format!("{}{}", pair.client_label(), clients::named(&pair.processes));
    let mut lines = vec![format!("{client} → {} ({protocol}): {}", pair.server_label(), facts.join(", "))];
    if let Some(connect) = &pair.connect_ms {
        let phases = pair.phases.iter().filter(|phase| phase.phase != "first_query");
        let parts: Vec<_> =
            phases.map(|phase| format!("{} {}", phase_words(&phase.phase), median(&phase.ms))).collect();
        lines.push(format!("    a connect takes {} ms (medians): {}", median(connect), parts.join(", ")));
    }
    if let Some(cost) = pair.cost.as_ref().and_then(PairCost::words) {
        lines.push(format!("    {cost}"));
    }
    lines
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
        EncryptionKind::Rejected => "ended before a login without encryption".to_owned(),
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
            "{} could not be read: {} queries are not counted",
            counted(unread, "connection"),
            if unread == 1 { "its" } else { "their" }
        ));
    }
    limits.extend(observation.skipped.as_ref().and_then(skipped));
    for probe in &observation.probes {
        let error = probe.error.as_ref();
        limits.extend(error.map(|error| format!("{} could not be probed: {error}", probe.server)));
        limits.extend(probe.unknown_words().map(|parts| {
            let why = probe.unknown_because.as_deref().unwrap_or("the probe did not end");
            format!("{}: the probe does not know all {parts}: {why}", probe.server)
        }));
    }
    if observation.evicted > 0 {
        let evicted = counted(observation.evicted, "idle connection");
        limits.push(format!("{evicted} no longer followed: too many were open"));
    }
    if observation.uncounted > 0 {
        let uncounted = counted(observation.uncounted, "connection");
        limits.push(format!("{uncounted} of further pairs of client and server: too many pairs"));
    }
    if observation.pairs.iter().any(|pair| pair.queries.as_ref().is_some_and(|queries| queries.by_turns)) {
        limits.push(
            "inside of TLS, queries are turns of direction: fewer than were sent if clients pipeline, more if they prepare or COPY"
                .to_owned(),
        );
    }
    limits.extend(hidden_names(observation));
    limits
}

/// What is not known of users, where names were asked for.
fn hidden_names(observation: &Observation) -> Option<String> {
    let has = |kind| observation.pairs.iter().flat_map(|pair| &pair.encryption).any(|seen| seen.kind == kind);
    let inside_of = |what| Some(format!("names inside of {what} are hidden"));
    if !observation.names {
        None
    } else if has(EncryptionKind::Tls) {
        inside_of("TLS")
    } else if has(EncryptionKind::Gss) {
        inside_of("GSSAPI encryption")
    } else {
        None
    }
}

/// Frames that may have been of a database.
fn skipped(frames: &SkippedFrames) -> Option<String> {
    let link_type = frames.link_type.map(|number| format!(" ({number})")).unwrap_or_default();
    let reasons = [
        (frames.unknown_link_types, format!("of an unknown link type{link_type}")),
        (frames.fragments, "of fragmented packets".to_owned()),
        (frames.truncated, "with a header that the snap length cuts".to_owned()),
        (frames.malformed, "malformed".to_owned()),
    ];
    let seen: Vec<_> = reasons.iter().filter(|(count, _)| *count > 0).collect();
    let all: u64 = seen.iter().map(|(count, _)| count).sum();
    let reasons: Vec<_> =
        seen.iter().map(|(count, reason)| format!("{} {reason}", grouped(*count))).collect();
    (all > 0).then(|| format!("{} not read: {}", counted(all, "frame"), reasons.join(", ")))
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
