//! What a post-quantum key exchange costs a connect: one sentence for each server.

use ciphertoll_model::{ConnectionUse, Group, Link, Metric, Path, ServerLevel, TlsPath};
use ciphertoll_stats::{Comparison, Estimate, PairedRatio, Verdict};

use super::round_trips::rtt_ns;
use super::{Section, Sentence, StratumView, certain_ratio, clean};
use crate::number::{effect, ratio_with_interval};
use crate::{RunReport, names};

/// A connect with a hybrid group ÷ the same connect with a curve, over one link.
struct HybridCost<'a> {
    link: Link,
    groups: [Group; 2],
    comparison: &'a Comparison,
}

pub(crate) fn section(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Option<Section> {
    let notes = sentences(report, strata);
    let heading = "Post-quantum key exchange".to_owned();
    (!notes.is_empty()).then_some(Section { heading, table: None, notes })
}

/// One for each server, if the run has a group with ML-KEM.
pub(crate) fn sentences(report: &RunReport<'_>, strata: &[StratumView<'_>]) -> Vec<Sentence> {
    let servers = report.plan.servers().into_iter();
    servers.filter_map(|server| sentence(report, strata, server)).collect()
}

fn sentence(report: &RunReport<'_>, strata: &[StratumView<'_>], server: &ServerLevel) -> Option<Sentence> {
    let name = names::server(report, server);
    let mut costs: Vec<HybridCost<'_>> =
        strata.iter().flat_map(|stratum| hybrid_costs(stratum, server)).collect();
    costs.sort_by_key(|cost| cost.link);
    let clients = costs.iter().map(|cost| cost.comparison.cell.cell.clients).min();
    costs.retain(|cost| Some(cost.comparison.cell.cell.clients) == clients);
    let Some(shortest) = costs.first() else { return why_not(report, server, &name) };
    let [classical, hybrid] = shortest.groups;
    let ratio = |metric: Metric| {
        certain_ratio(shortest.comparison, metric).map(|ratio| ratio_with_interval(&ratio.ratio))
    };
    let [latency, cpu] = [Metric::LatencyNsMean, Metric::CpuUsPerOpTotal].map(ratio);
    let parts =
        [latency.map(|text| format!("{text} the latency")), cpu.map(|text| format!("{text} the CPU"))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let place = place(shortest.link);
    if parts.is_empty() {
        return Some(Sentence::neutral(format!(
            "{name}: the cost of {hybrid} is not known: too few trials."
        )));
    }
    let parts = parts.join(" and ");
    let seen = from_which_link(&costs);
    Some(Sentence::neutral(format!(
        "{name}: a connect with {hybrid} instead of {classical} takes {parts} {place}. {seen}"
    )))
}

/// Comparisons that differ from their baseline in the group only.
fn hybrid_costs<'a>(
    stratum: &'a StratumView<'_>,
    server: &'a ServerLevel,
) -> impl Iterator<Item = HybridCost<'a>> {
    let baseline = &stratum.baseline.cell;
    let is_connect = baseline.workload.connection_use() == ConnectionUse::PerOperation;
    let classical =
        baseline.treatment.path.as_tls().filter(|_| is_connect && baseline.treatment.server == *server);
    let classical = classical.and_then(|tls| Some((tls, tls.group.filter(|group| !group.has_ml_kem())?)));
    stratum.treatments.iter().filter_map(move |comparison| {
        let (tls, group) = classical?;
        let hybrid = Group::X25519MlKem768;
        let expected = Path::Tls(TlsPath { group: Some(hybrid), ..tls });
        let treatment = &comparison.cell.cell.treatment;
        (treatment.path == expected).then_some(HybridCost {
            link: treatment.link,
            groups: [group, hybrid],
            comparison,
        })
    })
}

/// The reason of the server that has no hybrid group; `None` if the run has no such group for it.
fn why_not(report: &RunReport<'_>, server: &ServerLevel, name: &str) -> Option<Sentence> {
    let is_its = |of: &Option<String>| of.as_ref() == Some(&server.short_name());
    let hybrid = format!("group={}", Group::X25519MlKem768);
    let skipped = report.facts.skipped.iter().find(|one| is_its(&one.server) && one.id.contains(&hybrid))?;
    let reason = clean(&skipped.reason);
    Some(Sentence::neutral(format!("{name}: no hybrid connect was measured: {reason}.")))
}

/// From which link on the difference in latency disappears in the noise. Links with loss or jitter are not ordered.
fn from_which_link(costs: &[HybridCost<'_>]) -> String {
    let known: Vec<(Link, &PairedRatio)> = costs
        .iter()
        .filter(|cost| cost.link == Link::Local || is_only_long(cost.link))
        .filter_map(|cost| Some((cost.link, certain_ratio(cost.comparison, Metric::LatencyNsMean)?)))
        .collect();
    if known.iter().all(|(_, ratio)| ratio.verdict.is_none()) {
        return "Too few blocks for a verdict.".to_owned();
    }
    let hidden = known.iter().rev().take_while(|(_, ratio)| ratio.verdict != Some(Verdict::Differs)).count();
    let Some((link, ratio)) = known.get(known.len() - hidden) else {
        return match known.last() {
            Some((longest, ratio)) if known.len() > 1 => {
                format!("It is still seen {}: {}.", place(*longest), figure(&ratio.ratio))
            }
            _ => String::new(),
        };
    };
    let limit = match ratio.verdict {
        Some(Verdict::Inconclusive { smallest_detectable_difference, .. }) => {
            format!("; smallest detectable difference {}", effect(smallest_detectable_difference))
        }
        Some(Verdict::SameWithin { margin } | Verdict::RealButNegligible { margin }) => {
            format!("; less than {}", effect(margin))
        }
        Some(Verdict::Differs) | None => String::new(),
    };
    let onwards = if known.len() > 1 { " and longer" } else { "" };
    let where_ = if *link == Link::Local {
        "on the local link".to_owned()
    } else {
        format!("{}{onwards}", place(*link))
    };
    format!("Nothing of it can be seen in the latency {where_} ({}{limit}).", figure(&ratio.ratio))
}

fn figure(estimate: &Estimate) -> String {
    ratio_with_interval(estimate)
}

/// Whether the link has a round trip and nothing else.
fn is_only_long(link: Link) -> bool {
    rtt_ns(link).is_some() && !link.to_string().contains('+')
}

fn place(link: Link) -> String {
    match link {
        Link::Local => "on the local link".to_owned(),
        _ => format!("over {link}"),
    }
}
