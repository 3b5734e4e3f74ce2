//! The load that an observation shows, as a cost model needs it.

use crate::observation::{Encryption, Observation, Pair, Share};

/// Connections to one server: of one client address, or of all.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedLoad {
    pub server: String,
    /// `postgres`, `mysql` or `mongodb`.
    pub protocol: Option<String>,
    /// Addresses of clients that had sessions.
    pub clients: usize,
    /// Connections that were begun and could be used. Those that failed cost less, and have no queries.
    pub sessions: u64,
    pub sessions_per_s: f64,
    /// Of the observation.
    pub seconds: f64,
    /// Connections that were open before. What they cost is not known.
    pub began_before: u64,
    /// How many connections had how many queries, the fewest first.
    pub queries: Vec<Share>,
    /// Whether queries inside of TLS were counted by turns of direction.
    pub by_turns: bool,
    /// The mean over sessions of each pair's median.
    pub round_trip_ms: Option<f64>,
    pub encryption: Vec<Encryption>,
}

impl Observation {
    /// The load on each server, that with most sessions first.
    #[must_use]
    pub fn loads(&self) -> Vec<ObservedLoad> {
        let mut servers: Vec<&str> = self.pairs.iter().map(|pair| pair.server.as_str()).collect();
        servers.sort_unstable();
        servers.dedup();
        let of_server = |server: &str| {
            let pairs: Vec<&Pair> = self.pairs.iter().filter(|pair| pair.server == server).collect();
            ObservedLoad::of(server, &pairs, self.seconds)
        };
        let mut loads: Vec<_> = servers.into_iter().map(of_server).collect();
        loads.sort_by_key(|load| std::cmp::Reverse(load.sessions));
        loads
    }
}

impl ObservedLoad {
    /// Of one client address.
    #[must_use]
    pub fn of_pair(pair: &Pair, seconds: f64) -> Self {
        Self::of(&pair.server, &[pair], seconds)
    }

    #[expect(clippy::cast_precision_loss, reason = "rates and means")]
    fn of(server: &str, pairs: &[&Pair], seconds: f64) -> Self {
        let sessions = sum(pairs.iter().map(|pair| pair.connections.sessions));
        let round_trips: Vec<(f64, f64)> = pairs
            .iter()
            .filter_map(|pair| Some((pair.round_trip_ms?.median, pair.connections.sessions as f64)))
            .collect();
        let weights: f64 = round_trips.iter().map(|(_, weight)| weight).sum();
        let weighted: f64 = round_trips.iter().map(|(median, weight)| median * weight).sum();
        let queries = pairs.iter().filter_map(|pair| pair.queries.as_ref());
        Self {
            server: server.to_owned(),
            protocol: pairs.iter().find_map(|pair| pair.protocol.clone()),
            clients: pairs.iter().filter(|pair| pair.connections.sessions > 0).count(),
            sessions,
            sessions_per_s: if seconds > 0.0 { sessions as f64 / seconds } else { 0.0 },
            seconds,
            began_before: sum(pairs.iter().map(|pair| pair.connections.began_before)),
            by_turns: queries.clone().any(|queries| queries.by_turns),
            queries: merged(queries.flat_map(|queries| &queries.distribution)),
            round_trip_ms: (weights > 0.0).then(|| weighted / weights),
            encryption: pairs.iter().flat_map(|pair| pair.encryption.iter().cloned()).collect(),
        }
    }
}

/// Documents may have been written by others.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn merged<'a>(shares: impl Iterator<Item = &'a Share>) -> Vec<Share> {
    let mut counts = std::collections::BTreeMap::<u64, u64>::new();
    for share in shares {
        let count = counts.entry(share.queries).or_default();
        *count = count.saturating_add(share.connections);
    }
    counts.into_iter().map(|(queries, connections)| Share { queries, connections }).collect()
}
