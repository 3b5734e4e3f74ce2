//! The choice of a replica set member.

use std::fmt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{ReadPreference, ServerUrl, SetConnection, UrlHost};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::{self, Discovery, DiscoveryError, MemberRole};

use super::connection::{UrlLogin, check_tls_answer, is_final, is_unverified, tls_versions, unverified};
use crate::error::Error;

/// Time limit for hosts that are asked concurrently; the connect timeout of common drivers.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the answer of one host: with the wait for TLS it is below [`TIME_LIMIT`].
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of the whole search; the server selection timeout of common drivers.
const SEARCH_LIMIT: Duration = Duration::from_secs(30);

/// The member that a run uses, and how it was chosen.
#[derive(Clone, Debug)]
pub struct ChosenMember {
    pub host: UrlHost,
    /// Number of members that it was chosen from.
    pub members: usize,
    pub round_trip: Duration,
    /// Duration of the search.
    pub elapsed: Duration,
    role: MemberRole,
    set_name: Option<String>,
    preference: ReadPreference,
    pub(super) url: ServerUrl,
}

impl fmt::Display for ChosenMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, members, round_trip, elapsed, role, set_name, preference, .. } = self;
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let of = match (set_name, members) {
            (Some(set), 1) => {
                format!("{} of the replica set {set}, which has no other member", role.described())
            }
            (Some(set), members) => {
                format!("{} of the replica set {set} of {members} members", role.described())
            }
            (None, 1) => role.described().to_owned(),
            (None, members) => format!("{} of {members}", role.described()),
        };
        write!(
            formatter,
            "{host}, {of}, chosen by readPreference={} (round trip {:.1} ms, found in {:.1} ms)",
            preference.label(),
            ms(round_trip),
            ms(elapsed)
        )
    }
}

/// Why a host did not answer.
enum HostFailure {
    /// Its certificate does not verify.
    Unverified(String),
    Other(String),
}

type HelloResult = Result<(mongodb::MongoDbServerInfo, Duration), HostFailure>;

/// Chooses the member that `url` prefers; `None` if it names a single host. Servers answer `hello` before a login.
pub(super) fn discover(name: &str, url: &ServerUrl) -> Result<Option<ChosenMember>, Error> {
    let Some(options) =
        url.documents.as_deref().filter(|options| options.connection == SetConnection::Discovered)
    else {
        return Ok(None);
    };
    let began = Instant::now();
    let (seeds, preference) = (options.hosts.iter().map(ToString::to_string), options.login.read_preference);
    let mut discovery = Discovery::new(seeds, options.replica_set.clone(), preference);
    let mut unverified_reason = None;
    while let Some(left) = SEARCH_LIMIT.checked_sub(began.elapsed()) {
        let hosts = discovery.hosts_to_query();
        if hosts.is_empty() {
            break;
        }
        for (address, answer) in ask_all(url, hosts, left.min(TIME_LIMIT)) {
            match answer {
                Ok((server, round_trip)) => discovery.record_reply(&address, &server, round_trip),
                Err(HostFailure::Other(reason)) => discovery.record_failure(&address, &reason),
                Err(HostFailure::Unverified(reason)) => {
                    discovery.record_failure(&address, &reason);
                    unverified_reason.get_or_insert(reason);
                }
            }
        }
    }
    let chosen = match (discovery.choose(), unverified_reason) {
        (Ok(chosen), _) => chosen,
        (Err(_), Some(reason)) => return Err(unverified(name, url, reason)),
        (Err(error), None) => return Err(not_found(name, &error)),
    };
    let unusable = |reason: String| Error::Unreachable { name: name.to_owned(), reason };
    let host: UrlHost = chosen.address.parse().map_err(|_| unusable(invalid_host(&chosen.address)))?;
    let url = url.for_member(&host).map_err(|error| unusable(error.to_string()))?;
    let mongodb::SelectedServer { role, set_name, members, round_trip, .. } = chosen;
    Ok(Some(ChosenMember {
        host,
        members,
        round_trip,
        elapsed: began.elapsed(),
        role,
        set_name,
        preference,
        url,
    }))
}

fn not_found(name: &str, error: &DiscoveryError) -> Error {
    let reason = match error {
        DiscoveryError::NoMembers { .. } => {
            format!(
                "{error}; use directConnection=true without replicaSet to connect to the single host of a URL, whatever its role"
            )
        }
        DiscoveryError::TwoPrimaries { .. } | DiscoveryError::NoEligibleMember { .. } => error.to_string(),
    };
    Error::Unreachable { name: name.to_owned(), reason }
}

fn invalid_host(address: &str) -> String {
    format!("its replica set has a member called \"{address}\", which is not a host name")
}

/// Asks all hosts concurrently. Hosts that do not answer in time are left out; their threads end later.
fn ask_all(url: &ServerUrl, addresses: Vec<String>, patience: Duration) -> Vec<(String, HelloResult)> {
    let (sender, receiver) = mpsc::channel();
    let (asked, deadline) = (addresses.len(), Instant::now() + patience);
    for address in addresses {
        let (sender, url) = (sender.clone(), url.clone());
        thread::spawn(move || {
            let answer = ask(&url, &address);
            // The receiver is gone after the time limit.
            let _ = sender.send((address, answer));
        });
    }
    drop(sender);
    let next = |_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    (0..asked).map_while(next).collect()
}

/// Asks one host, with the first TLS version that it accepts.
fn ask(url: &ServerUrl, address: &str) -> HelloResult {
    let other = |reason: String| HostFailure::Other(reason);
    let host: UrlHost = address.parse().map_err(|_| other(invalid_host(address)))?;
    let url = url.for_member(&host).map_err(|error| other(error.to_string()))?;
    let no_password = Secret::new(Vec::new());
    let login = UrlLogin { url: &url, password: &no_password };
    let mut first = None;
    for version in tls_versions(&url) {
        let answered =
            check_tls_answer(&url, version, first.as_ref()).and_then(|()| login.greet(version, ANSWER_LIMIT));
        match answered {
            Ok(answer) => return Ok(answer),
            Err(error) if is_unverified(&error) => return Err(HostFailure::Unverified(error.to_string())),
            Err(error) if is_final(&url, version, &error) => return Err(other(error.to_string())),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(other(first.map_or_else(|| "the URL permits no connection".to_owned(), |error| error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_member_is_described_in_one_line() {
        let url: ServerUrl = "mongodb://a@h1,h2/?readPreference=nearest".parse().unwrap();
        let member = |set_name: Option<&str>, members, role| ChosenMember {
            host: "db2.example:27018".parse().unwrap(),
            members,
            round_trip: Duration::from_micros(240),
            elapsed: Duration::from_millis(3),
            role,
            set_name: set_name.map(ToOwned::to_owned),
            preference: ReadPreference::Nearest,
            url: url.clone(),
        };
        let timed = "chosen by readPreference=nearest (round trip 0.2 ms, found in 3.0 ms)";
        for (member, said) in [
            (
                member(Some("rs0"), 3, MemberRole::Secondary),
                "a secondary of the replica set rs0 of 3 members",
            ),
            (
                member(Some("rs0"), 1, MemberRole::Primary),
                "the primary of the replica set rs0, which has no other member",
            ),
            (member(None, 2, MemberRole::Router), "a router of 2"),
        ] {
            assert_eq!(member.to_string(), format!("db2.example:27018, {said}, {timed}"));
        }
    }
}
