//! Reading an observation that was written before, perhaps by somebody else.

use std::net::{IpAddr, SocketAddr};

use ciphertoll_wire::passive::Account;
use ciphertoll_wire::printable::is_printable;

use crate::accounts::MAX_PER_PAIR;
use crate::clients;
use crate::observation::{Observation, ObservedUser, Pair, Quantiles};
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
        let mut observation: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(0.0..=MAX_SECONDS).contains(&observation.seconds) {
            return Err(format!("it lasted {} s", observation.seconds));
        }
        observation.pairs.iter().try_for_each(check)?;
        if let Some(probe) =
            observation.probes.iter().find(|probe| probe.server.parse::<SocketAddr>().is_err())
        {
            return Err(format!("{:?} is no address", probe.server));
        }
        observation.pairs.iter_mut().for_each(|pair| clients::bound(&mut pair.processes));
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
        .chain(encrypted)
        .chain(pair.users.iter().map(|user| user.connections))
        .chain([pair.other_users])
        .chain(pair.processes.iter().map(|process| process.connections));
    if let Some(count) = counts.max().filter(|count| *count > MAX_COUNT) {
        return Err(format!("{at}: {count} connections or queries"));
    }
    if connections.sessions > connections.begun {
        return Err(format!("{at}: more sessions than connections"));
    }
    if pair.encryption.iter().any(|seen| seen.resumed.max(seen.sessions) > seen.connections) {
        return Err(format!("{at}: more sessions of a kind than connections"));
    }
    check_users(pair).map_err(|reason| format!("{at}: {reason}"))?;
    let is_time = |ms: f64| (0.0..=MAX_MS).contains(&ms);
    let is_wrong = |times: &Quantiles| ![times.median, times.p95, times.max].into_iter().all(is_time);
    if pair.round_trip_ms.as_ref().is_some_and(is_wrong) {
        return Err(format!("{at}: a round trip that is no time"));
    }
    Ok(())
}

fn check_users(pair: &Pair) -> Result<(), String> {
    if pair.users.len() > MAX_PER_PAIR {
        return Err(format!("{} users are told apart", pair.users.len()));
    }
    let most = pair.users.iter().map(|user| user.connections).max().unwrap_or(0);
    if most.max(pair.other_users) > pair.connections.begun {
        return Err("more connections of a user than connections".to_owned());
    }
    let names =
        pair.users.iter().flat_map(|ObservedUser { user, database, .. }| [Some(user), database.as_ref()]);
    // An ellipsis stands for what was cut.
    let is_name =
        |name: &String| name.chars().count() <= Account::MAX_CHARACTERS + 1 && name.chars().all(is_printable);
    if !names.flatten().all(is_name) {
        return Err("a name of a user or database that cannot be printed".to_owned());
    }
    Ok(())
}
