//! Where the CPU time of each configuration goes: the samples of a profiled run, or what timed primitives say.

use std::collections::BTreeMap;

use ciphertoll_model::{
    ConnectionUse, CpuPart, Metric, Profile, ProfiledRole, Profiling, ServerKey, Workload,
};
use ciphertoll_stats::CellAnalysis;

use super::connect_cost::{self, CostPart};
use super::{
    Column, ColumnKind, Overflow, Section, Sentence, StratumView, Table, TableEntry, is_plain_load, level,
};
use crate::number::{count, percent};
use crate::{RunReport, names, subject};

/// The CPU time of one configuration by part.
pub(crate) struct CpuShares<'a> {
    pub(crate) cell: &'a CellAnalysis,
    /// Absent if the shares are computed from timed primitives: then they are a part of the whole.
    pub(crate) profile: Option<&'a Profile>,
    /// Shares of the CPU time of all roles.
    pub(crate) shares: BTreeMap<CpuPart, f64>,
}

/// Fewer samples say nothing.
const FEWEST_SAMPLES: u64 = 50;
/// A table shows parts from this share on.
const SHOWN_FROM: f64 = 0.005;
/// The parts that a sentence names.
const NAMED: usize = 3;

/// Every configuration of a profiled run whose shares are known.
pub(crate) fn of<'a>(report: &RunReport<'a>) -> Vec<CpuShares<'a>> {
    if report.plan.profile == Profiling::Off {
        return Vec::new();
    }
    let cells = report.analysis.cells().into_iter();
    let sampled = |cell: &'a CellAnalysis| {
        let profile = *report.facts.profiles.get(&cell.id)?;
        let samples = profile.samples();
        let shares = |part| of_part(profile, part) as f64 / samples as f64;
        let shares = CpuPart::ALL.into_iter().map(|part| (part, shares(part)));
        let shares = shares.filter(|(_, share)| *share > 0.0).collect();
        (samples >= FEWEST_SAMPLES).then_some(CpuShares { cell, profile: Some(profile), shares })
    };
    let found: Vec<CpuShares<'a>> = cells.filter_map(sampled).collect();
    if report.facts.profiles.is_empty() { computed(report) } else { found }
}

/// The samples of a part in all roles.
fn of_part(profile: &Profile, part: CpuPart) -> u64 {
    profile.roles.values().filter_map(|parts| parts.get(&part)).sum()
}

/// Signature, certificate chain and key exchange of TLS connects, from the primitives that were timed on this machine.
fn computed<'a>(report: &RunReport<'a>) -> Vec<CpuShares<'a>> {
    const PARTS: [(CpuPart, CostPart); 3] = [
        (CpuPart::Certificates, CostPart::Chain),
        (CpuPart::Signature, CostPart::Signature),
        (CpuPart::KeyExchange, CostPart::KeyExchange),
    ];
    let of_bar = |bar: connect_cost::Bar<'a>| {
        let total_ns = level(bar.cell, Metric::CpuUsPerOpTotal)?.value * 1e3;
        let share = |(part, cost): (CpuPart, CostPart)| Some((part, bar.parts.get(&cost)? / total_ns));
        let shares: BTreeMap<CpuPart, f64> = PARTS.into_iter().filter_map(share).collect();
        // A primitive that was timed on a busy machine may exceed the whole.
        let known: f64 = shares.values().sum();
        (known > 0.0 && known < 1.0).then_some(CpuShares { cell: bar.cell, profile: None, shares })
    };
    connect_cost::of(report).into_iter().flat_map(|costs| costs.bars).filter_map(of_bar).collect()
}

/// The largest parts of the plainest TLS connect of each server, and what removes the largest.
pub(crate) fn sentences(report: &RunReport<'_>) -> Vec<Sentence> {
    let all = of(report);
    let of_server = |server| {
        let is_connect = |found: &&CpuShares<'_>| {
            is_plain_load(&found.cell.cell, server, Workload::Connect)
                && found.cell.cell.treatment.path.as_tls().is_some()
        };
        let found = all.iter().filter(is_connect).min_by_key(|found| found.cell.cell.clients)?;
        let version = subject::protocol(found.cell.cell.treatment.path.as_tls()?.parameters.version);
        let server = names::server(report, server);
        Some(Sentence::neutral(format!("CPU time of a {version} connect on {server}: {}", found.words())))
    };
    report.plan.servers().into_iter().filter_map(of_server).collect()
}

/// A table for each load, a row for each configuration and role.
pub(crate) fn sections(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Section> {
    let all = of(report);
    let mut sections: Vec<Section> = strata
        .iter()
        .filter(|stratum| stratum.plan.factor.is_none())
        .filter_map(|stratum| section(stratum, &all))
        .collect();
    if let Some(last) = sections.last_mut() {
        last.notes.push(Sentence::neutral(method(&all)));
    }
    sections
}

fn method(all: &[CpuShares<'_>]) -> String {
    let Some(profile) = all.iter().find_map(|found| found.profile) else {
        return "Method: computed from primitives that were timed on this machine; without samples of perf, the other \
                parts are not known."
            .to_owned();
    };
    let samples = all.iter().filter_map(|found| Some(found.profile?.samples()));
    format!(
        "Method: {} samples per second of CPU time by Linux perf, in one trial per configuration after those that count; \
         {} samples or more each, so that a share of 20 % is uncertain by {} points (95 %).",
        profile.samples_per_s,
        count(samples.clone().min().unwrap_or_default()),
        points(samples.min().unwrap_or_default()),
    )
}

/// Half of the 95 % interval of a share of 20 % of so many samples, in percentage points.
fn points(samples: u64) -> String {
    let half = 1.96 * (0.2 * 0.8 / samples.max(1) as f64).sqrt() * 100.0;
    format!("{half:.1}")
}

/// The configurations of a stratum whose shares are known.
pub(crate) fn in_stratum<'a, 'b>(
    stratum: &StratumView<'a>,
    all: &'b [CpuShares<'a>],
) -> Vec<&'b CpuShares<'a>> {
    let of_cell = |cell: &CellAnalysis| all.iter().find(|found| found.cell.id == cell.id);
    stratum.cells().filter_map(of_cell).collect()
}

fn section<'a>(stratum: &StratumView<'a>, all: &[CpuShares<'a>]) -> Option<Section> {
    let found = in_stratum(stratum, all);
    let table = table(stratum, &found)?;
    let is_connect = stratum.cell().workload.connection_use() == ConnectionUse::PerOperation;
    let with_cure = found.iter().filter(|found| is_connect && found.cure().is_some());
    let note = |found: &&CpuShares<'_>| {
        Sentence::neutral(format!("{}: {}", stratum.row_label(found.cell), found.words()))
    };
    Some(Section {
        heading: format!("CPU time by part · {} · shares of all roles", stratum.name()),
        table: Some(table),
        notes: with_cure.map(note).collect(),
    })
}

pub(crate) fn table(stratum: &StratumView<'_>, found: &[&CpuShares<'_>]) -> Option<Table> {
    let is_shown = |part: &CpuPart| {
        found.iter().any(|found| found.shares.get(part).is_some_and(|share| *share >= SHOWN_FROM))
    };
    let parts: Vec<CpuPart> = CpuPart::ALL.into_iter().filter(is_shown).collect();
    if parts.is_empty() {
        return None;
    }
    let rows = found.iter().flat_map(|found| {
        let label = stratum.row_label(found.cell);
        match found.profile {
            None => vec![(format!("{label}, computed"), found.entries(&parts, None))],
            Some(profile) => profile
                .roles
                .keys()
                .map(|role| (format!("{label}, {}", role.label()), found.entries(&parts, Some(*role))))
                .collect(),
        }
    });
    let titles = parts.iter().map(|part| column(*part)).chain(["= total"]);
    let columns = titles.map(|title| Column::new(ColumnKind::Level, title));
    Some(Table { overflow: Overflow::Transpose, ..Table::new(&names::factors(&stratum.rows), columns, rows) })
}

impl CpuShares<'_> {
    /// The parts of a role, or of all, as shares of the whole.
    fn entries(&self, parts: &[CpuPart], role: Option<ProfiledRole>) -> Vec<TableEntry> {
        let share = |part: &CpuPart| match (self.profile, role) {
            (Some(profile), Some(role)) => {
                let samples = *profile.roles.get(&role)?.get(part)?;
                Some(samples as f64 / profile.samples() as f64)
            }
            _ => self.shares.get(part).copied(),
        };
        let total = match (self.profile, role) {
            (Some(profile), Some(role)) => {
                TableEntry::text(percent(profile.samples_of(role) as f64 / profile.samples() as f64))
            }
            _ => TableEntry::absent(),
        };
        let entry = |part: &CpuPart| match share(part) {
            Some(share) => TableEntry::text(percent(share)),
            None if self.profile.is_some() => TableEntry::blank(),
            None => TableEntry::absent(),
        };
        parts.iter().map(entry).chain([total]).collect()
    }

    /// The parts, the largest first.
    fn largest(&self) -> Vec<(CpuPart, f64)> {
        let mut parts: Vec<(CpuPart, f64)> =
            self.shares.iter().map(|(part, share)| (*part, *share)).collect();
        parts.sort_by(|left, right| right.1.total_cmp(&left.1));
        parts
    }

    /// `34 % TLS contexts and authorities, 15 % certificates, 12 % kernel network. One TLS context … removes the largest.`
    pub(crate) fn words(&self) -> String {
        let parts = self.largest();
        let named = parts.iter().take(NAMED);
        let named: Vec<String> =
            named.map(|(part, share)| format!("{} {}", percent(*share), title(*part))).collect();
        let named = named.join(", ");
        let known = if self.profile.is_some() { "" } else { " (computed; the rest is not known)" };
        let cure = self.cure().map_or(String::new(), |cure| format!(" {cure}."));
        format!("{named}{known}.{cure}")
    }

    /// What removes the largest part that is not the operation's own work.
    fn cure(&self) -> Option<String> {
        let (part, _) = self.largest().into_iter().find(|(part, _)| *part != CpuPart::Other)?;
        let connects = self.cell.cell.workload.connection_use() == ConnectionUse::PerOperation;
        let key = self.cell.cell.treatment.path.as_tls().and_then(|tls| tls.key);
        let name = title(part);
        match part {
            CpuPart::TlsContext if connects => {
                Some(format!("One TLS context for all connections removes the {name}; so does the sidecar"))
            }
            CpuPart::Signature if key.is_some_and(|key| key.rsa_bits().is_some()) => {
                let p256 = subject::certificate(ServerKey::P256);
                Some(format!("A {p256} makes the {name} cheaper; the sidecar or another pool removes it"))
            }
            CpuPart::Certificates
            | CpuPart::Signature
            | CpuPart::KeyExchange
            | CpuPart::Handshake
            | CpuPart::Passwords
            | CpuPart::Processes
            | CpuPart::Session
                if connects =>
            {
                Some(format!("The sidecar or another connection pool removes the {name}"))
            }
            _ => None,
        }
    }
}

/// The name of a part in a sentence and a key.
pub(crate) fn title(part: CpuPart) -> &'static str {
    match part {
        CpuPart::TlsContext => "TLS contexts and CA files",
        CpuPart::Certificates => "certificate verification",
        CpuPart::Signature => "handshake signature",
        CpuPart::KeyExchange => "key exchange",
        CpuPart::Handshake => "other handshake work",
        CpuPart::Records => "record encryption",
        CpuPart::Passwords => "password hashing",
        CpuPart::Processes => "start and end of processes",
        CpuPart::Session => "start and end of sessions",
        CpuPart::Network => "kernel network",
        CpuPart::Switches => "scheduling",
        CpuPart::Other => "other work",
    }
}

fn column(part: CpuPart) -> &'static str {
    match part {
        CpuPart::TlsContext => "TLS context",
        CpuPart::Certificates => "certificates",
        CpuPart::Signature => "signature",
        CpuPart::KeyExchange => "key exchange",
        CpuPart::Handshake => "rest of the\nhandshake",
        CpuPart::Records => "records",
        CpuPart::Passwords => "passwords",
        CpuPart::Processes => "processes",
        CpuPart::Session => "session",
        CpuPart::Network => "kernel network",
        CpuPart::Switches => "scheduling",
        CpuPart::Other => "other",
    }
}
