//! What servers accept, and what addresses are called: what an observer cannot see, and has to ask for. None of this is done
//! unless a person wants it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::{AcceptedTls, MAX_PROBE_CONNECTIONS, ProbeTarget, Probed};
use ciphertoll_wire::passive::DatabaseProtocol;
use ciphertoll_wire::tls::KeyExchangeGroup;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate;
use crate::names;
use crate::observation::{AcceptedVersion, Observation, ProbePart, ServerProbe};
use crate::words::counted;

/// Servers that are asked: those with most connections.
const MAX_SERVERS: usize = 50;
/// Addresses whose names are looked up: those with most connections.
const MAX_ADDRESSES: usize = 500;
/// Of a name (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
/// By the round trip.
const LIMITS_PER_SERVER: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(30);
/// For all names: a resolver that does not answer takes five seconds for each.
const LIMIT_FOR_NAMES: Duration = Duration::from_secs(10);
/// At a time.
const WORKERS: usize = 8;

/// What is to be asked about an observation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    names_of: Vec<IpAddr>,
    probe: Vec<ServerQuestion>,
}

/// A server that is to be probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ServerQuestion {
    server: SocketAddr,
    /// Its name.
    protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    names: BTreeMap<IpAddr, String>,
    probes: Vec<ServerProbe>,
}

impl Question {
    /// About this observation's addresses, if their names are wanted, and its servers, if they are to be probed.
    #[must_use]
    pub fn about(observation: &Observation, names: bool, probe: bool) -> Self {
        let mut question = Self::default();
        for pair in &observation.pairs {
            let (Ok(client), Ok(server)) = (pair.client.parse::<IpAddr>(), pair.server.parse::<SocketAddr>())
            else {
                continue;
            };
            if names {
                add(&mut question.names_of, client, MAX_ADDRESSES);
                add(&mut question.names_of, server.ip(), MAX_ADDRESSES);
            }
            if let Some(protocol) = pair.protocol.clone().filter(|_| probe) {
                add(&mut question.probe, ServerQuestion { server, protocol, server_name: None }, MAX_SERVERS);
            }
        }
        question
    }

    /// Which name is sent to a server. Returns whether the server is one that is probed.
    pub fn set_server_name(&mut self, server: SocketAddr, name: &str) -> bool {
        let asked = self.probe.iter_mut().find(|asked| asked.server == server);
        asked.map(|asked| asked.server_name = Some(name.to_owned())).is_some()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names_of.is_empty() && self.probe.is_empty()
    }

    /// `probing 3 servers, by up to 25 connections each`
    #[must_use]
    pub fn words(&self) -> String {
        let servers = counted(self.probe.len() as u64, "server");
        format!("probing {servers}, by up to {MAX_PROBE_CONNECTIONS} connections each")
    }

    /// How long the answer may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        LIMIT_FOR_NAMES + limit_for(self.probe.len())
    }

    /// Asks. What does not answer in time is left out, or named as an error.
    #[must_use]
    pub fn ask(self) -> Answer {
        let names = in_parallel(self.names_of, LIMIT_FOR_NAMES, |address| Some((address, name_of(address)?)));
        let asked: Vec<_> = self.probe.iter().map(|asked| asked.server.to_string()).collect();
        let limit = limit_for(self.probe.len());
        let mut probes = in_parallel(self.probe, limit, |asked| ServerProbe::ask(&asked));
        for server in asked {
            if probes.iter().all(|probe| probe.server != server) {
                let error = Some("it did not answer in time".to_owned());
                probes.push(ServerProbe { server, error, ..ServerProbe::default() });
            }
        }
        probes.sort_by(|one, other| one.server.cmp(&other.server));
        Answer { names: names.into_iter().collect(), probes }
    }
}

/// The time limit for this number of servers; `WORKERS` of them are asked at a time.
fn limit_for(servers: usize) -> Duration {
    LIMITS_PER_SERVER.end().saturating_mul(u32::try_from(servers.div_ceil(WORKERS)).unwrap_or(u32::MAX))
}

/// Adds what is not there, up to a number.
fn add<T: PartialEq>(all: &mut Vec<T>, one: T, most: usize) {
    if all.len() < most && !all.contains(&one) {
        all.push(one);
    }
}

/// The results of all that end in time. Those that do not are abandoned.
fn in_parallel<T: Send + 'static, R: Send + 'static>(
    all: Vec<T>,
    limit: Duration,
    work: impl Fn(T) -> Option<R> + Clone + Send + 'static,
) -> Vec<R> {
    let end = Instant::now().checked_add(limit);
    let (sender, results) = mpsc::channel();
    let mut parts: Vec<Vec<T>> = Vec::new();
    parts.resize_with(WORKERS, Vec::new);
    for (number, one) in all.into_iter().enumerate() {
        parts[number % WORKERS].push(one);
    }
    for part in parts {
        let (sender, work) = (sender.clone(), work.clone());
        thread::spawn(move || {
            for one in part {
                let is_over = work(one).is_some_and(|result| sender.send(result).is_err());
                if is_over || end.is_some_and(|end| Instant::now() >= end) {
                    // The receiver no longer waits.
                    break;
                }
            }
        });
    }
    drop(sender);
    let left = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    std::iter::from_fn(|| results.recv_timeout(left()).ok()).collect()
}

/// The host name of an address by the system's resolver, if the name also resolves to the address: the owner
/// of an address may give it any name, but cannot give the name this address.
fn name_of(address: IpAddr) -> Option<String> {
    let name = dns_lookup::lookup_addr(&address).ok()?;
    let has_it = || dns_lookup::lookup_host(&name).is_ok_and(|mut found| found.any(|found| found == address));
    (is_host_name(&name) && has_it()).then_some(name)
}

/// Names come from whoever owns the address. The resolver returns the address itself if it has none.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_allowed)
        && name.parse::<IpAddr>().is_err()
}

impl ServerProbe {
    fn ask(asked: &ServerQuestion) -> Option<Self> {
        let protocol = DatabaseProtocol::ALL.into_iter().find(|known| known.label() == asked.protocol)?;
        let now = Timestamp::now();
        let server_name = asked.server_name.as_deref();
        let target = ProbeTarget { address: asked.server, protocol, server_name };
        let empty = Self {
            server: asked.server.to_string(),
            asked_at: Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            server_name: asked.server_name.clone(),
            ..Self::default()
        };
        Some(match ciphertoll_net::probe(target, LIMITS_PER_SERVER) {
            Ok(Probed::NoTls) => empty,
            Ok(Probed::Tls(accepted)) => empty.with(accepted, now),
            Err(error) => Self { error: Some(error.to_string()), ..empty },
        })
    }

    fn with(self, accepted: AcceptedTls, now: Timestamp) -> Self {
        let now_ns = u64::try_from(now.as_nanosecond()).unwrap_or(0);
        let version = |(version, suite): &(u16, u16)| AcceptedVersion {
            version: names::version(*version),
            suite: names::suite(*suite),
        };
        let group = |group: &_| names::group(KeyExchangeGroup::Named(*group));
        Self {
            versions: accepted.versions.iter().map(version).collect(),
            groups: accepted.groups.iter().map(group).collect(),
            weak_suite: accepted.weak_suite.map(names::suite),
            certificates: accepted.chain.iter().filter_map(|der| certificate::read(der, now_ns)).collect(),
            unknown: accepted.unknown.into_iter().map(part).collect(),
            unknown_because: accepted.reason,
            ..self
        }
    }

    /// `older versions and groups`; `None` if everything is known.
    #[must_use]
    pub fn unknown_words(&self) -> Option<String> {
        let words = |part: &ProbePart| match part {
            ProbePart::Certificates => "certificates",
            ProbePart::OlderVersions => "older versions",
            ProbePart::WeakSuites => "weak suites",
            ProbePart::Groups => "groups",
        };
        let parts: Vec<_> = self.unknown.iter().map(words).collect();
        let (last, first) = parts.split_last()?;
        Some(if first.is_empty() { (*last).to_owned() } else { format!("{} and {last}", first.join(", ")) })
    }

    /// Whether all of this is known.
    #[must_use]
    pub fn knows(&self, part: ProbePart) -> bool {
        self.error.is_none() && !self.unknown.contains(&part)
    }
}

fn part(part: ciphertoll_net::ProbePart) -> ProbePart {
    match part {
        ciphertoll_net::ProbePart::Certificates => ProbePart::Certificates,
        ciphertoll_net::ProbePart::OlderVersions => ProbePart::OlderVersions,
        ciphertoll_net::ProbePart::WeakSuites => ProbePart::WeakSuites,
        ciphertoll_net::ProbePart::Groups => ProbePart::Groups,
    }
}

impl Observation {
    /// Adds what was found out. What was not asked for is ignored.
    pub fn add_answer(&mut self, answer: Answer) {
        let name = |address: &str| {
            let address: IpAddr = address.parse().ok()?;
            answer.names.get(&address).filter(|name| is_host_name(name)).cloned()
        };
        for pair in &mut self.pairs {
            pair.client_name = name(&pair.client);
            pair.server_name =
                pair.server.parse::<SocketAddr>().ok().and_then(|server| name(&server.ip().to_string()));
        }
        let is_known = |probe: &ServerProbe| self.pairs.iter().any(|pair| pair.server == probe.server);
        self.probes = answer.probes.into_iter().filter(is_known).collect();
        self.findings = crate::findings::findings(&self.pairs, &self.probes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn only_host_names_are_names() {
        for name in ["db1.example.com", "db_1", "localhost"] {
            assert!(is_host_name(name), "{name}");
        }
        for wrong in ["", "10.0.0.1", "::1", "a b", "x\u{1b}[31m", "<b>", &"a".repeat(254)] {
            assert!(!is_host_name(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn what_does_not_end_in_time_is_left_out() {
        let mut doubled = in_parallel((1..=20).collect(), Duration::MAX, |number| Some(2 * number));
        doubled.sort_unstable();
        assert_eq!(doubled, (1..=20).map(|number| 2 * number).collect::<Vec<_>>());
        let (_keep, never) = mpsc::channel::<()>();
        let never = Arc::new(Mutex::new(never));
        let wait = move |number: u32| {
            let _ = never.lock().map(|never| never.recv());
            Some(number)
        };
        assert!(in_parallel(vec![1], Duration::from_millis(10), wait).is_empty());
    }
}
