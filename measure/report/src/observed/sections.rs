//! The details: clients, encryption, certificates, phases, queries, logins and failures.

use std::collections::{BTreeMap, BTreeSet};

use ciphertoll_model::Metric;
use ciphertoll_observe::{
    AddressLabels, Certificate, ClientProcess, Encryption, EncryptionKind, Observation, ObservedUser, Pair,
    ProbePart, Queries, ServerProbe,
};

use super::pairs::time;
use super::words::{name, phase_named, place_of, rest};
use crate::number::{count, percent, plural};
use crate::view::{Column, ColumnKind, Section, Sentence, Table, TableEntry, clean};

/// Upper ends of the classes of queries per connection; the last class is open.
const CLASS_ENDS: [u64; 9] = [0, 1, 2, 3, 5, 10, 50, 100, 1_000];

/// Which processes of this machine had each pair's connections.
pub(crate) fn clients(observation: &Observation, most: usize) -> Option<Section> {
    let headings = [
        (ColumnKind::Text, "process"),
        (ColumnKind::Text, "container or service"),
        (ColumnKind::Level, "connections\nseen open"),
    ];
    let of_pair = |pair: &Pair| {
        let row = |process: &ClientProcess| {
            let place = process.place().map(|place| TableEntry::text(clean(place)));
            let name = TableEntry::text(clean(&process.name));
            let connections = TableEntry::text(count(process.connections));
            (place_of(pair), vec![name, place.unwrap_or_else(TableEntry::absent), connections])
        };
        pair.processes.iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = observation.pairs.iter().flat_map(of_pair).collect();
    let mut section = section("Clients", &headings, rows, most)?;
    section.notes.push(Sentence::neutral(
        "Connections that were open when the tables of sockets were read, idle ones included. Short connections are mostly missed.",
    ));
    Some(section)
}

/// How each pair's connections are encrypted: a row for each kind.
pub(crate) fn encryption(observation: &Observation, most: usize) -> Option<Section> {
    let headings = [
        (ColumnKind::Text, "encryption"),
        (ColumnKind::Level, "connections"),
        (ColumnKind::Level, "resumed"),
        (ColumnKind::Text, "suite"),
        (ColumnKind::Text, "group"),
        (ColumnKind::Text, "signature"),
        (ColumnKind::Level, "hello\nretries"),
        (ColumnKind::Level, "unused\nkey shares"),
        (ColumnKind::Text, "groups offered"),
    ];
    let of_pair = |pair| of_encryption(pair);
    let rows: Vec<_> = observation.pairs.iter().flat_map(of_pair).collect();
    section("Encryption", &headings, rows, most)
}

fn of_encryption(pair: &Pair) -> Vec<(String, Vec<TableEntry>)> {
    let row = |encryption: &Encryption| {
        let text = |text: &Option<String>| match text {
            Some(text) => TableEntry::text(clean(text)),
            None => TableEntry::absent(),
        };
        let number = |number: u64| TableEntry::text(count(number));
        let entries = vec![
            TableEntry::text(kind(encryption)),
            number(encryption.connections),
            number(encryption.resumed),
            text(&encryption.suite),
            text(&encryption.group),
            text(&encryption.signature),
            number(encryption.hello_retries),
            number(encryption.unused_key_shares),
            match encryption.offered_groups.as_slice() {
                [] => TableEntry::absent(),
                groups => TableEntry::text(clean(&groups.join(", "))),
            },
        ];
        (place_of(pair), entries)
    };
    pair.encryption.iter().map(row).collect()
}

fn kind(encryption: &Encryption) -> String {
    let version = encryption.version.as_deref().unwrap_or("TLS");
    let version = clean(&version.replace("tls", "TLS "));
    match encryption.kind {
        EncryptionKind::None => "none".to_owned(),
        EncryptionKind::Refused => "none: the server refused TLS".to_owned(),
        EncryptionKind::Rejected => "none, and ended before a login".to_owned(),
        EncryptionKind::Tls => version,
        EncryptionKind::TlsFailed => format!("{version}, handshake not completed"),
        EncryptionKind::Gss => "GSSAPI".to_owned(),
        EncryptionKind::Unknown => "unknown".to_owned(),
    }
}

/// Which servers showed a certificate, and how long it is valid.
struct Shown<'a> {
    servers: BTreeSet<&'a str>,
    days_left: i64,
    is_probed: bool,
}

/// The certificates, and the servers that showed them. A certificate that was both seen and probed is listed
/// once.
pub(crate) fn certificates(observation: &Observation, most: usize) -> Option<Section> {
    let mut seen: BTreeMap<Certificate, Shown<'_>> = BTreeMap::new();
    let labels = AddressLabels::of(observation);
    let mut add = |certificate: &Certificate, server, is_probed| {
        let key = Certificate { days_left: 0, ..certificate.clone() };
        let days_left = certificate.days_left;
        let shown = seen.entry(key).or_insert(Shown { servers: BTreeSet::new(), days_left, is_probed });
        shown.servers.insert(server);
        if is_probed {
            (shown.days_left, shown.is_probed) = (days_left, true);
        }
    };
    for pair in &observation.pairs {
        for certificate in pair.encryption.iter().filter_map(|encryption| encryption.certificate.as_ref()) {
            add(certificate, labels.label(&pair.server), false);
        }
    }
    for probe in &observation.probes {
        for certificate in &probe.certificates {
            add(certificate, labels.label(&probe.server), true);
        }
    }
    let headings = [
        (ColumnKind::Text, "servers"),
        (ColumnKind::Text, "issuer"),
        (ColumnKind::Text, "key"),
        (ColumnKind::Text, "valid until"),
        (ColumnKind::Level, "days left"),
    ];
    let row = |(certificate, shown): (Certificate, Shown<'_>)| {
        let servers: Vec<_> = shown.servers.into_iter().collect();
        let texts = [&servers.join(", "), &certificate.issuer, &certificate.key, &certificate.not_after];
        let as_of = if shown.is_probed { " at the probe" } else { "" };
        let days = TableEntry::text(format!("{}{as_of}", shown.days_left));
        let entries = texts.into_iter().map(|text| TableEntry::text(clean(text))).chain([days]);
        (clean(&certificate.subject), entries.collect())
    };
    let rows: Vec<_> = seen.into_iter().map(row).collect();
    let mut section = section("Certificates", &headings, rows, most)?;
    if observation.probes.is_empty() {
        let hidden = "TLS 1.3 encrypts certificates, so that they are not seen; --probe asks for them.";
        section.notes.push(Sentence::neutral(hidden));
    }
    Some(section)
}

/// What servers accept, if they were asked.
pub(crate) fn accepted(observation: &Observation, most: usize) -> Option<Section> {
    let headings = [
        (ColumnKind::Text, "versions"),
        (ColumnKind::Text, "groups of TLS 1.3"),
        (ColumnKind::Text, "weak suite"),
    ];
    let labels = AddressLabels::of(observation);
    let row = |probe: &ServerProbe| {
        let versions: Vec<_> = probe.versions.iter().map(|accepted| accepted.version.as_str()).collect();
        let versions = match &probe.error {
            Some(error) => clean(error),
            None if versions.is_empty() && probe.unknown.is_empty() => "no TLS".to_owned(),
            None => known(probe, ProbePart::OlderVersions, &versions.join(", ").replace("tls", "TLS ")),
        };
        let optional = |part, text: &str| match known(probe, part, text) {
            text if text.is_empty() => TableEntry::absent(),
            text => TableEntry::text(text),
        };
        let groups = optional(ProbePart::Groups, &probe.groups.join(", "));
        let weak = optional(ProbePart::WeakSuites, probe.weak_suite.as_deref().unwrap_or_default());
        (clean(labels.label(&probe.server)), vec![TableEntry::text(versions), groups, weak])
    };
    section("What servers accept", &headings, observation.probes.iter().map(row).collect(), most)
}

/// What a probe knows, and whether there may be more.
fn known(probe: &ServerProbe, part: ProbePart, text: &str) -> String {
    match text {
        text if !probe.unknown.contains(&part) => clean(text),
        "" => "not known".to_owned(),
        text => format!("{}, others not known", clean(text)),
    }
}

/// The phases of a connect, for pairs that connected.
pub(crate) fn phases(observation: &Observation, most: usize) -> Option<Section> {
    let seen = observation.pairs.iter().flat_map(|pair| &pair.phases);
    let mut names: Vec<&str> = seen.map(|phase| phase.phase.as_str()).collect();
    // Unknown ones come last.
    names.sort_by_key(|name| (phase_named(name).is_none(), phase_named(name), *name));
    names.dedup();
    let title = |name: &&str| match phase_named(name) {
        Some(phase) => Metric::of_phase(phase).title().to_owned(),
        None => clean(name),
    };
    let titles: Vec<String> = names.iter().map(title).collect();
    let headings: Vec<_> = titles.iter().map(|title| (ColumnKind::Level, title.as_str())).collect();
    let connected = observation.pairs.iter().filter(|pair| !pair.phases.is_empty());
    let row = |pair: &Pair| {
        let of = |name: &&str| pair.phases.iter().find(|phase| phase.phase == **name);
        let entries =
            names.iter().map(|name| of(name).map_or_else(TableEntry::blank, |phase| time(&phase.ms)));
        (place_of(pair), entries.collect())
    };
    section("Breakdown of connect time, ms", &headings, connected.map(row).collect(), most)
}

/// How many connections had how many queries, as shares.
pub(crate) fn queries(observation: &Observation, most: usize) -> Option<Section> {
    let counted = observation.pairs.iter().filter_map(|pair| Some((pair, pair.queries.as_ref()?)));
    let classed: Vec<_> = counted.map(|(pair, queries)| (pair, shares(queries))).collect();
    let all = 0..=CLASS_ENDS.len();
    let used: Vec<usize> = all.filter(|class| classed.iter().any(|(_, shares)| shares[*class] > 0)).collect();
    let names: Vec<String> = used.iter().map(|class| class_name(*class)).collect();
    let headings: Vec<_> = names.iter().map(|name| (ColumnKind::Level, name.as_str())).collect();
    let row = |(pair, shares): &(&Pair, [u64; CLASS_ENDS.len() + 1])| {
        let all: u64 = shares.iter().sum();
        let entry = |class: &usize| match shares[*class] {
            0 => TableEntry::blank(),
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            some => TableEntry::new([percent(some as f64 / all as f64), count(some)]),
        };
        (place_of(pair), used.iter().map(entry).collect())
    };
    let heading = "Queries per connection: share of connections";
    section(heading, &headings, classed.iter().map(row).collect(), most)
}

/// Connections by class.
fn shares(queries: &Queries) -> [u64; CLASS_ENDS.len() + 1] {
    let mut shares = [0; CLASS_ENDS.len() + 1];
    for share in &queries.distribution {
        let class = CLASS_ENDS.iter().position(|end| share.queries <= *end).unwrap_or(CLASS_ENDS.len());
        shares[class] += share.connections;
    }
    shares
}

/// `4–5`.
fn class_name(class: usize) -> String {
    let first = class.checked_sub(1).map_or(0, |before| CLASS_ENDS[before] + 1);
    match CLASS_ENDS.get(class) {
        Some(last) if *last == first => count(first),
        Some(last) => format!("{}–{}", count(first), count(*last)),
        None => format!("{} or more", count(first)),
    }
}

/// How passwords travelled without encryption.
pub(crate) fn logins(observation: &Observation, most: usize) -> Option<Section> {
    let of_pair = |pair| {
        counted(pair, |pair: &Pair| {
            pair.logins.iter().map(|login| (login.method.clone(), login.connections)).collect()
        })
    };
    let headings = [(ColumnKind::Text, "method"), (ColumnKind::Level, "connections")];
    section(
        "Logins without encryption",
        &headings,
        observation.pairs.iter().flat_map(of_pair).collect(),
        most,
    )
}

/// Who connected to what without encryption.
pub(crate) fn users(observation: &Observation, most: usize) -> Option<Section> {
    let headings =
        [(ColumnKind::Text, "user"), (ColumnKind::Text, "database"), (ColumnKind::Level, "connections")];
    let rows = observation.pairs.iter().flat_map(of_users).collect();
    let mut section = section("Users of logins without encryption", &headings, rows, most)?;
    let others = observation.pairs.iter().fold(0, |sum: u64, pair| sum.saturating_add(pair.other_users));
    section.notes.extend((others > 0).then(|| {
        Sentence::neutral(format!(
            "{} of further users and databases: they are too many to be told apart.",
            plural(others, "connection")
        ))
    }));
    Some(section)
}

fn of_users(pair: &Pair) -> Vec<(String, Vec<TableEntry>)> {
    let row = |user: &ObservedUser| {
        let database = user.database.as_deref().map(|database| TableEntry::text(name(database)));
        let entries = vec![
            TableEntry::text(name(&user.user)),
            database.unwrap_or_else(TableEntry::absent),
            TableEntry::text(count(user.connections)),
        ];
        (place_of(pair), entries)
    };
    pair.users.iter().map(row).collect()
}

pub(crate) fn failures(observation: &Observation, most: usize) -> Option<Section> {
    let of_pair = |pair| {
        counted(pair, |pair: &Pair| {
            pair.failures.iter().map(|failure| (failure.reason.clone(), failure.connections)).collect()
        })
    };
    let headings = [(ColumnKind::Text, "reason"), (ColumnKind::Level, "connections")];
    section("Failed connections", &headings, observation.pairs.iter().flat_map(of_pair).collect(), most)
}

/// A row for each text and its count.
fn counted(pair: &Pair, of: impl Fn(&Pair) -> Vec<(String, u64)>) -> Vec<(String, Vec<TableEntry>)> {
    let row = |(text, connections): (String, u64)| {
        (place_of(pair), vec![TableEntry::text(clean(&text)), TableEntry::text(count(connections))])
    };
    of(pair).into_iter().map(row).collect()
}

/// `None` without rows.
fn section(
    heading: &str,
    headings: &[(ColumnKind, &str)],
    mut rows: Vec<(String, Vec<TableEntry>)>,
    most: usize,
) -> Option<Section> {
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(most);
    let label = if heading == "Certificates" { "subject" } else { "client → server" };
    let columns = headings.iter().map(|(kind, heading)| Column::new(*kind, heading));
    let notes = rest(all, rows.len(), "row").into_iter().collect();
    Some(Section { heading: heading.to_owned(), table: Some(Table::new(label, columns, rows)), notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_queries_have_no_gaps() {
        let names: Vec<_> = (0..=CLASS_ENDS.len()).map(class_name).collect();
        assert_eq!(
            names,
            ["0", "1", "2", "3", "4–5", "6–10", "11–50", "51–100", "101–1 000", "1 001 or more"]
        );
    }
}
