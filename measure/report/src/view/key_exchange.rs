//! What a post-quantum key exchange costs a connect: one sentence for each server.

use ciphertoll_model::{ConnectionUse, Group, Link, Metric, Path, ServerLevel, TlsParameters, TlsPath};
use ciphertoll_stats::{Comparison, PairedRatio, Verdict};

use super::round_trips::is_plain;
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
    // Loss and jitter hide the cost.
    costs.sort_by_key(|cost| (!is_plain(cost.link), cost.link));
    let clients = costs.iter().map(|cost| cost.comparison.cell.cell.clients).min();
    costs.retain(|cost| Some(cost.comparison.cell.cell.clients) == clients);
    let Some(shortest) = costs.first() else { return why_not(report, server, &name) };
    let [classical, hybrid] = shortest.groups;
    let ratio = |metric: Metric| {
        certain_ratio(shortest.comparison, metric).map(|ratio| ratio_with_interval(&ratio.ratio))
    };
    let [latency, cpu] = [Metric::LatencyNsMean, Metric::CpuUsPerOpTotal].map(ratio);
    let Some(latency) = latency else {
        let unknown = format!("{name}: the cost of {hybrid} is not known: too few trials.");
        return why_not(report, server, &name).or(Some(Sentence::neutral(unknown)));
    };
    let cpu = cpu.map_or(String::new(), |cpu| format!(", its CPU time {cpu}"));
    let (place, seen) = (place(shortest.link), from_which_link(&costs));
    let text = format!(
        "{name}: with {hybrid} instead of {classical}, a connect's latency is {latency}{cpu} {place}. {seen}"
    );
    Some(Sentence::neutral(text.trim_end()))
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
    let classical =
        classical.and_then(|tls| Some((tls, tls.parameters.group.filter(|group| !group.has_ml_kem())?)));
    stratum.treatments.iter().filter_map(move |comparison| {
        let (tls, group) = classical?;
        let hybrid = Group::X25519MlKem768;
        let parameters = TlsParameters { group: Some(hybrid), ..tls.parameters };
        let expected = Path::Tls(TlsPath { parameters, ..tls });
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

/// From which link on no difference in latency is shown. Links with loss or jitter are not ordered.
fn from_which_link(costs: &[HybridCost<'_>]) -> String {
    let known: Vec<(Link, &PairedRatio)> = costs
        .iter()
        .filter(|cost| is_plain(cost.link))
        .filter_map(|cost| Some((cost.link, certain_ratio(cost.comparison, Metric::LatencyNsMean)?)))
        .collect();
    if known.iter().all(|(_, ratio)| ratio.verdict.is_none()) {
        return "Too few blocks for a verdict.".to_owned();
    }
    let is_same = |ratio: &PairedRatio| same_within(ratio).is_some();
    let hidden = known.iter().rev().take_while(|(_, ratio)| is_same(ratio)).count();
    let Some((link, ratio)) = known.get(known.len() - hidden) else {
        return known
            .last()
            .map_or(String::new(), |(longest, ratio)| still_seen(*longest, ratio, known.len()));
    };
    let onwards = match hidden {
        1 => place(*link),
        _ if *link == Link::Local => "on any measured link".to_owned(),
        _ => format!("{} and longer", place(*link)),
    };
    let limit = effect(same_within(ratio).unwrap_or_default());
    let figure = ratio_with_interval(&ratio.ratio);
    format!("Nothing of it can be seen in the latency {onwards}: {figure}, less than {limit}.")
}

/// The margin, if the latency is the same within it.
fn same_within(ratio: &PairedRatio) -> Option<f64> {
    match ratio.verdict {
        Some(Verdict::SameWithin { margin } | Verdict::RealButNegligible { margin }) => Some(margin),
        Some(Verdict::Differs | Verdict::Inconclusive { .. }) | None => None,
    }
}

/// The difference over the longest of `links` links.
fn still_seen(longest: Link, ratio: &PairedRatio, links: usize) -> String {
    let (place, figure) = (place(longest), ratio_with_interval(&ratio.ratio));
    match ratio.verdict {
        Some(Verdict::Inconclusive { smallest_detectable_difference, .. }) => format!(
            "The run does not show whether the latency differs {place}: the smallest detectable difference is {}.",
            effect(smallest_detectable_difference)
        ),
        Some(_) if links > 1 => format!("It is still seen {place}: {figure}."),
        Some(_) | None => String::new(),
    }
}

fn place(link: Link) -> String {
    match link {
        Link::Local => "on the local link".to_owned(),
        _ => format!("over {link}"),
    }
}
