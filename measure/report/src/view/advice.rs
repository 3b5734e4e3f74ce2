//! The advice: which encrypted path of a run to switch on.

use ciphertoll_model::{ConnectionUse, Factor, Legacy, MetricDirection, Path, TlsVersion};
use ciphertoll_stats::advice::insufficient;
use ciphertoll_stats::{CellAnalysis, Comparison, Doubt, Estimate, PairedRatio, Verdict, headline_metrics};

use super::{StratumView, Tone, capital, certain_ratio};
use crate::{sentence, subject};

#[derive(Debug)]
pub(crate) struct Advice {
    /// `TLS 1.3 with a P-256 certificate`.
    pub(crate) choice: String,
    /// Why, in one sentence.
    pub(crate) why: String,
    /// What would save most of the cost, if the run shows it.
    pub(crate) saving: Option<&'static str>,
    levels: Levels,
}

/// The levels of a path in the factors that vary.
pub(super) type Levels = Vec<(Factor, Option<String>)>;

/// An encrypted path with all its comparisons with unencrypted ones.
struct Candidate {
    choice: String,
    levels: Levels,
    version: TlsVersion,
    costs: Vec<Cost>,
}

/// The cost of a candidate under one load: above 1 is a higher cost, for rates too.
#[derive(Clone, Copy)]
struct Cost {
    /// Number of the stratum, which stands for the load.
    stratum: usize,
    connections: ConnectionUse,
    tone: Tone,
    ratio: Estimate,
}

/// `None` if no encrypted path has a verdict compared with an unencrypted one.
///
/// The newest protocol is advised even if an older one costs less: peers will require it next, and the report mentions the
/// older one's lower cost. Among paths of the same protocol the one with the lowest mean cost is advised.
pub(crate) fn advice(strata: &[StratumView<'_>]) -> Option<Advice> {
    let candidates = candidates(strata);
    let newest = candidates.iter().map(|candidate| candidate.version).max()?;
    let (peers, older): (Vec<&Candidate>, Vec<&Candidate>) =
        candidates.iter().partition(|candidate| candidate.version == newest);
    let score = |peer: &Candidate| peers.iter().map(|other| peer.against(other)).sum::<f64>();
    let best = *peers.iter().min_by(|left, right| score(left).total_cmp(&score(right)))?;
    let others: Vec<&Candidate> = peers.iter().copied().filter(|peer| peer.levels != best.levels).collect();
    Some(Advice {
        choice: best.choice.clone(),
        why: why(best, &others, &older),
        saving: saving(best),
        levels: best.levels.clone(),
    })
}

/// Whether `cell` uses the advised path.
pub(crate) fn is_about(advice: &Advice, stratum: &StratumView<'_>, cell: &CellAnalysis) -> bool {
    compares_encryption(stratum) && is_at(&advice.levels, stratum, cell)
}

fn compares_encryption(stratum: &StratumView<'_>) -> bool {
    stratum.plan.factor.is_none()
        && stratum.rows.contains(&Factor::Path)
        && stratum.cell().treatment.path.as_tls().is_none()
}

/// Whether `cell` has these levels in the factors that vary in its stratum: a TLS context that makes no difference under a
/// load is measured only once.
pub(super) fn is_at(levels: &Levels, stratum: &StratumView<'_>, cell: &CellAnalysis) -> bool {
    let mut varying = levels.iter().filter(|(factor, _)| stratum.rows.contains(factor));
    varying.all(|(factor, level)| cell.cell.level(*factor) == *level)
}

/// The strata with the most varying factors come first: a cell of another stratum then matches several candidates.
fn candidates(strata: &[StratumView<'_>]) -> Vec<Candidate> {
    let mut compared: Vec<(usize, &StratumView<'_>)> =
        strata.iter().enumerate().filter(|(_, stratum)| compares_encryption(stratum)).collect();
    compared.sort_by_key(|(_, stratum)| std::cmp::Reverse(stratum.rows.len()));
    let mut candidates: Vec<Candidate> = Vec::new();
    for (index, stratum) in compared {
        for comparison in &stratum.treatments {
            let cell = &comparison.cell;
            let (Path::Tls(tls), Some(cost)) = (cell.cell.treatment.path, cost(index, comparison)) else {
                continue;
            };
            if never_advised(cell).is_some() {
                continue;
            }
            let mut is_known = false;
            for candidate in candidates.iter_mut().filter(|known| is_at(&known.levels, stratum, cell)) {
                candidate.costs.push(cost);
                is_known = true;
            }
            if !is_known {
                candidates.push(Candidate {
                    choice: subject::choice(&cell.cell, &stratum.rows),
                    levels: stratum.rows.iter().map(|row| (*row, cell.cell.level(*row))).collect(),
                    version: tls.parameters.version,
                    costs: vec![cost],
                });
            }
        }
    }
    candidates
}

/// Why `cell` is never advised, by its levels or by what its connections negotiated.
pub(super) fn never_advised(cell: &CellAnalysis) -> Option<&'static str> {
    let negotiated = || cell.legs.iter().find_map(|count| count.leg.legacy()).map(Legacy::reason);
    insufficient(&cell.cell.treatment).or_else(negotiated)
}

fn cost(stratum: usize, comparison: &Comparison) -> Option<Cost> {
    let cell = &comparison.cell.cell;
    let metric = *headline_metrics(cell).first()?;
    let found = certain_ratio(comparison, metric).filter(|ratio| is_judged(ratio))?;
    let ratio = match metric.direction() {
        MetricDirection::LowerIsBetter => found.ratio,
        MetricDirection::HigherIsBetter => {
            let Estimate { value, ci_low, ci_high, blocks } = found.ratio;
            let [ci_low, ci_high] = [ci_high, ci_low].map(|limit| limit.map(f64::recip));
            Estimate { value: value.recip(), ci_low, ci_high, blocks }
        }
    };
    let connections = cell.workload.connection_use();
    Some(Cost { stratum, connections, tone: sentence::tone(metric, found), ratio })
}

fn is_judged(ratio: &PairedRatio) -> bool {
    !matches!(ratio.verdict, None | Some(Verdict::Inconclusive { why: Doubt::TooManyVoided, .. }))
}

impl Candidate {
    /// Mean log of its costs ÷ the other's, over the loads that both have.
    fn against(&self, other: &Self) -> f64 {
        let ratio = |own: &Cost| {
            let theirs = other.costs.iter().find(|theirs| theirs.stratum == own.stratum)?;
            Some((own.ratio.value / theirs.ratio.value).ln())
        };
        let ratios: Vec<f64> = self.costs.iter().filter_map(ratio).collect();
        ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
    }

    /// Whether its cost is lower under some load: the intervals do not overlap.
    fn is_cheaper_somewhere(&self, other: &Self) -> bool {
        self.costs.iter().any(|own| {
            let same_load = |theirs: &&Cost| theirs.stratum == own.stratum;
            other.costs.iter().find(same_load).is_some_and(|theirs| own.ratio.high() < theirs.ratio.low())
        })
    }
}

fn why(best: &Candidate, peers: &[&Candidate], older: &[&Candidate]) -> String {
    let newest = subject::protocol(best.version);
    if peers.is_empty() && older.is_empty() {
        return "It is the only TLS path with a verdict in this run.".to_owned();
    }
    let beaten = |others: &[&Candidate]| others.iter().any(|other| other.is_cheaper_somewhere(best));
    let among_peers = match peers {
        [] => None,
        _ if beaten(peers) => Some(format!("the {newest} path with the lowest cost on average")),
        _ if peers.iter().all(|peer| best.is_cheaper_somewhere(peer)) => {
            Some(format!("the {newest} path with the lowest cost"))
        }
        _ => Some(format!("no other measured {newest} path is known to cost less")),
    };
    let among_older = older.first().map(|first| {
        let protocol = subject::protocol(first.version);
        if beaten(older) {
            format!("{protocol} costs less under some loads, but is the older protocol")
        } else {
            format!("the newest measured protocol, and {protocol} is not known to cost less")
        }
    });
    let reasons: Vec<String> = among_peers.into_iter().chain(among_older).collect();
    capital(&reasons.join("; ")) + "."
}

/// If even the lowest cost of a connect is higher than the highest cost of a load on open connections.
fn saving(best: &Candidate) -> Option<&'static str> {
    let of =
        |connections: ConnectionUse| best.costs.iter().filter(move |cost| cost.connections == connections);
    let connects = of(ConnectionUse::PerOperation).filter(|cost| cost.tone == Tone::Worse);
    let connect = connects.map(|cost| cost.ratio.low()).min_by(f64::total_cmp)?;
    let open = of(ConnectionUse::Pooled).map(|cost| cost.ratio.high()).max_by(f64::total_cmp)?;
    (open < connect).then_some(
        "Most of the cost is in opening connections. Keep connections open, for example in a pool, and each \
         connection pays it once.",
    )
}
