//! Reading an observation that was written before, perhaps by somebody else.

use std::net::{IpAddr, SocketAddr};

use crate::observation::{Observation, Pair, Quantiles};
use crate::probe::is_host_name;

/// More of anything was not counted by an observer, and could not be summed.
const MAX_COUNT: u64 = 1 << 50;
/// About thirty years.
const MAX_SECONDS: f64 = 1e9;
/// An hour.
const MAX_MS: f64 = 3.6e6;

impl Observation {
    /// Reads the document of `observe --format json`. What an observer cannot have seen is refused, with the reason.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let observation: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(0.0..=MAX_SECONDS).contains(&observation.seconds) {
            return Err(format!("it lasted {} s", observation.seconds));
        }
        observation.pairs.iter().try_for_each(check)?;
        if let Some(probe) =
            observation.probes.iter().find(|probe| probe.server.parse::<SocketAddr>().is_err())
        {
            return Err(format!("{:?} is no address", probe.server));
        }
        Ok(observation)
    }
}

fn check(pair: &Pair) -> Result<(), String> {
    if pair.client.parse::<IpAddr>().is_err() || pair.server.parse::<SocketAddr>().is_err() {
        return Err(format!("{:?} to {:?} are no addresses", pair.client, pair.server));
    }
    let at = format!("{} to {}", pair.client, pair.server);
    let mut names = pair.client_name.iter().chain(&pair.server_name);
    if let Some(name) = names.find(|name| !is_host_name(name)) {
        return Err(format!("{at}: {name:?} is no host name"));
    }
    let connections = &pair.connections;
    let queries = pair.queries.iter().flat_map(|queries| &queries.distribution);
    let encrypted = pair.encryption.iter().flat_map(|seen| [seen.connections, seen.sessions, seen.resumed]);
    let counts = [connections.begun, connections.sessions, connections.began_before]
        .into_iter()
        .chain(queries.flat_map(|share| [share.queries, share.connections]))
        .chain(encrypted);
    if let Some(count) = counts.max().filter(|count| *count > MAX_COUNT) {
        return Err(format!("{at}: {count} connections or queries"));
    }
    if connections.sessions > connections.begun {
        return Err(format!("{at}: more sessions than connections"));
    }
    if pair.encryption.iter().any(|seen| seen.resumed.max(seen.sessions) > seen.connections) {
        return Err(format!("{at}: more sessions of a kind than connections"));
    }
    let is_time = |ms: f64| (0.0..=MAX_MS).contains(&ms);
    let is_wrong = |times: &Quantiles| ![times.median, times.p95, times.max].into_iter().all(is_time);
    if pair.round_trip_ms.as_ref().is_some_and(is_wrong) {
        return Err(format!("{at}: a round trip that is no time"));
    }
    Ok(())
}
