//! What to switch on: the one encrypted path of a run that a reader in a hurry should take.

use ciphertoll_model::{ConnectionUse, Factor, MetricDirection, Path, TlsVersion};
use ciphertoll_stats::{CellAnalysis, Doubt, Estimate, Toll, Verdict};

use super::{StratumView, Tone, capital};
use crate::number::is_certain;
use crate::{names, sentence, subject};

/// An answer to "which one?".
#[derive(Debug)]
pub(crate) struct Advice {
    /// `TLS 1.3 with a P-256 certificate`.
    pub(crate) choice: String,
    /// Why this one, in a sentence.
    pub(crate) why: String,
    /// What would save most of the cost, where the run shows it.
    pub(crate) saving: Option<&'static str>,
    levels: Levels,
}

/// What a path was told from the others by, factor by factor.
type Levels = Vec<(Factor, Option<String>)>;

/// An encrypted way to the server, wherever it was compared with an unencrypted one.
struct Candidate {
    choice: String,
    levels: Levels,
    version: TlsVersion,
    costs: Vec<Cost>,
}

/// What a candidate costs under one load: above 1 is dearer, of rates too.
#[derive(Clone, Copy)]
struct Cost {
    /// The load that others are compared under.
    stratum: usize,
    connections: ConnectionUse,
    tone: Tone,
    ratio: Estimate,
}

/// `None` where no encrypted path has a verdict against an unencrypted one.
///
/// The newest protocol is taken even where an older one is cheaper: it is what others will ask for
/// next, and the older one's saving is told. Among equals the cheapest is taken, on average.
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

/// Whether `cell` goes by the path that was chosen.
pub(crate) fn is_about(advice: &Advice, stratum: &StratumView<'_>, cell: &CellAnalysis) -> bool {
    compares_encryption(stratum) && is_at(&advice.levels, stratum, cell)
}

fn compares_encryption(stratum: &StratumView<'_>) -> bool {
    stratum.plan.factor.is_none()
        && stratum.rows.contains(&Factor::Path)
        && stratum.cell().treatment.path.as_tls().is_none()
}

/// Whether `cell` has these levels, as far as its stratum tells its cells apart: under a load that makes no
/// difference to, a context is measured once for all of them.
fn is_at(levels: &Levels, stratum: &StratumView<'_>, cell: &CellAnalysis) -> bool {
    let told = levels.iter().filter(|(factor, _)| stratum.rows.contains(factor));
    told.into_iter().all(|(factor, level)| names::level(&cell.cell, *factor) == *level)
}

/// The strata that tell most apart come first: others are then about several candidates at once.
fn candidates(strata: &[StratumView<'_>]) -> Vec<Candidate> {
    let mut compared: Vec<(usize, &StratumView<'_>)> =
        strata.iter().enumerate().filter(|(_, stratum)| compares_encryption(stratum)).collect();
    compared.sort_by_key(|(_, stratum)| std::cmp::Reverse(stratum.rows.len()));
    let mut candidates: Vec<Candidate> = Vec::new();
    for (index, stratum) in compared {
        for cell in &stratum.treatments {
            let (Path::Tls(tls), Some(cost)) = (cell.cell.treatment.path, cost(index, cell)) else {
                continue;
            };
            let mut is_known = false;
            for candidate in candidates.iter_mut().filter(|known| is_at(&known.levels, stratum, cell)) {
                candidate.costs.push(cost);
                is_known = true;
            }
            if !is_known {
                candidates.push(Candidate {
                    choice: subject::choice(&cell.cell, &stratum.rows),
                    levels: stratum.rows.iter().map(|row| (*row, names::level(&cell.cell, *row))).collect(),
                    version: tls.version,
                    costs: vec![cost],
                });
            }
        }
    }
    candidates
}

fn cost(stratum: usize, cell: &CellAnalysis) -> Option<Cost> {
    let metric = *names::headline(&cell.cell).first()?;
    let toll = cell.tolls.get(&metric).filter(|toll| is_certain(&toll.ratio) && is_judged(toll))?;
    let ratio = match metric.direction() {
        MetricDirection::LowerIsBetter => toll.ratio,
        MetricDirection::HigherIsBetter => {
            let Estimate { value, ci_low, ci_high, blocks } = toll.ratio;
            let [ci_low, ci_high] = [ci_high, ci_low].map(|limit| limit.map(f64::recip));
            Estimate { value: value.recip(), ci_low, ci_high, blocks }
        }
    };
    let connections = cell.cell.workload.connection_use();
    Some(Cost { stratum, connections, tone: sentence::tone(metric, toll), ratio })
}

fn is_judged(toll: &Toll) -> bool {
    !matches!(toll.verdict, None | Some(Verdict::Inconclusive { why: Doubt::TooManyVoided, .. }))
}

impl Candidate {
    /// Mean log of its costs ÷ the other's, over the loads that both were measured under.
    fn against(&self, other: &Self) -> f64 {
        let ratio = |own: &Cost| {
            let theirs = other.costs.iter().find(|theirs| theirs.stratum == own.stratum)?;
            Some((own.ratio.value / theirs.ratio.value).ln())
        };
        let ratios: Vec<f64> = self.costs.iter().filter_map(ratio).collect();
        ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
    }

    /// Whether intervals that do not overlap show it to be cheaper under some load.
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
        return "The only TLS path that this run can judge.".to_owned();
    }
    let beaten = |others: &[&Candidate]| others.iter().any(|other| other.is_cheaper_somewhere(best));
    let among_peers = match peers {
        [] => None,
        _ if beaten(peers) => Some(format!("on average the cheapest {newest} path measured")),
        _ if peers.iter().all(|peer| best.is_cheaper_somewhere(peer)) => {
            Some(format!("the cheapest {newest} path measured"))
        }
        _ => Some(format!("no other {newest} path measured is known to cost less")),
    };
    let among_older = older.first().map(|first| {
        let protocol = subject::protocol(first.version);
        if beaten(older) {
            format!("{protocol} costs less under some load, but is the older protocol")
        } else {
            format!("the newest protocol measured, and {protocol} is not known to cost less")
        }
    });
    let reasons: Vec<String> = among_peers.into_iter().chain(among_older).collect();
    capital(&reasons.join("; ")) + "."
}

/// Said where even the cheapest connect costs more than the dearest load on open connections.
fn saving(best: &Candidate) -> Option<&'static str> {
    let of =
        |connections: ConnectionUse| best.costs.iter().filter(move |cost| cost.connections == connections);
    let connects = of(ConnectionUse::PerOperation).filter(|cost| cost.tone == Tone::Worse);
    let connect = connects.map(|cost| cost.ratio.low()).min_by(f64::total_cmp)?;
    let open = of(ConnectionUse::Pooled).map(|cost| cost.ratio.high()).max_by(f64::total_cmp)?;
    (open < connect).then_some(
        "Most of the cost falls on opening a connection. Keep connections open, in a pool for example, and \
         each of them pays it once.",
    )
}
