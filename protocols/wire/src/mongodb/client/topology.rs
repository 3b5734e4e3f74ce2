//! Finds the member of a replica set that matches a read preference ("Server Discovery and Monitoring",
//! "Server Selection"). It does no I/O: the caller queries the hosts and reports their replies.

use ciphertoll_vocabulary::ReadPreference;

use std::fmt;
use std::time::Duration;

use crate::mongodb::{client::server_info::MongoDbServerInfo, member_role::MemberRole};

/// The port of a member that is named without one.
const DEFAULT_PORT: u16 = 27017;
/// Limit of hosts to query: twice the size of a replica set.
const MAX_HOSTS: usize = 100;
/// Limit of hosts listed in an error.
const MAX_SHOWN: usize = 7;

/// A search for a member.
#[derive(Debug, Clone)]
pub struct Discovery {
    set_name: Option<String>,
    preference: ReadPreference,
    /// In the order of discovery, which breaks ties.
    hosts: Vec<Host>,
}

#[derive(Debug, Clone)]
struct Host {
    address: String,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    New,
    Queried,
    Failed(String),
    Replied(HostReply),
}

#[derive(Debug, Clone)]
struct HostReply {
    role: MemberRole,
    set_name: Option<String>,
    /// The host's name in the configuration of its set.
    me: Option<String>,
    /// The members that it lists.
    members: Vec<String>,
    round_trip: Duration,
}

/// The selected server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedServer {
    /// Name or address, and port.
    pub address: String,
    pub role: MemberRole,
    pub set_name: Option<String>,
    /// The number of candidates: the set's members with data, whether they reply or not; or routers.
    pub members: usize,
    /// The duration of a `hello`.
    pub round_trip: Duration,
}

/// Why no server was selected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// No host replied that belongs to the set.
    #[error("none of its hosts is a member of {}: {findings}", set(.set_name.as_ref()))]
    NoMembers { set_name: Option<String>, findings: HostFindings },
    #[error("{first} and {second} both say that they are the primary: an election may be under way")]
    TwoPrimaries { first: String, second: String },
    /// The set has no member that matches the read preference.
    #[error("the replica set {set_name} has no member for readPreference={}: {findings}", .preference.label())]
    NoEligibleMember { set_name: String, preference: ReadPreference, findings: HostFindings },
}

/// Hosts, and the result of querying each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFindings(Vec<(String, String)>);

impl fmt::Display for HostFindings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (address, finding)) in self.0.iter().take(MAX_SHOWN).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(formatter, "{comma}{address} {finding}")?;
        }
        match self.0.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            Some(more) => write!(formatter, " and {more} more"),
            None => Ok(()),
        }
    }
}

fn set(name: Option<&String>) -> String {
    name.map_or_else(|| "one replica set".to_owned(), |name| format!("the replica set {name}"))
}

impl Discovery {
    /// A search that starts with these hosts. `set_name`: the replica set, if it is known.
    pub fn new(
        seeds: impl IntoIterator<Item = String>,
        set_name: Option<String>,
        preference: ReadPreference,
    ) -> Self {
        let mut discovery = Self { set_name, preference, hosts: Vec::new() };
        seeds.into_iter().for_each(|seed| discovery.add_host(&seed));
        discovery
    }

    /// The hosts that have not been queried yet and must be queried now. If empty, discovery is complete.
    pub fn hosts_to_query(&mut self) -> Vec<String> {
        let unqueried = self.hosts.iter_mut().filter(|host| matches!(host.state, State::New));
        unqueried
            .map(|host| {
                host.state = State::Queried;
                host.address.clone()
            })
            .collect()
    }

    /// Records a host's reply to `hello` and its round trip. The members that it lists will be queried, too.
    pub fn record_reply(&mut self, address: &str, server: &MongoDbServerInfo, round_trip: Duration) {
        let members: Vec<String> = server.hosts.iter().map(|host| normalised(host)).collect();
        let set_name = server.set_name.clone();
        // Without a given name, the first reply defines the set.
        if self.set_name.is_none() {
            self.set_name.clone_from(&set_name);
        }
        if set_name.is_some() && set_name == self.set_name {
            for member in &members {
                self.add_host(member);
            }
        }
        let me = server.me.as_deref().map(normalised);
        let reply = HostReply { role: server.role, set_name, me, members, round_trip };
        self.set_state(address, State::Replied(reply));
    }

    /// Records that a host did not reply, and why.
    pub fn record_failure(&mut self, address: &str, reason: &str) {
        self.set_state(address, State::Failed(reason.to_owned()));
    }

    fn add_host(&mut self, address: &str) {
        let address = normalised(address);
        if self.hosts.len() < MAX_HOSTS && self.hosts.iter().all(|host| host.address != address) {
            self.hosts.push(Host { address, state: State::New });
        }
    }

    fn set_state(&mut self, address: &str, state: State) {
        if let Some(host) = self.hosts.iter_mut().find(|host| host.address == address) {
            host.state = state;
        }
    }

    /// Selects the server among all that have replied.
    pub fn choose(&self) -> Result<SelectedServer, DiscoveryError> {
        if let Some(server) = self.without_a_set() {
            return Ok(server);
        }
        let members: Vec<(&str, &HostReply)> =
            self.replies().filter(|(host, reply)| self.belongs(host, reply)).collect();
        let Some(set_name) = self.set_name.clone().filter(|_| !members.is_empty()) else {
            return Err(DiscoveryError::NoMembers {
                set_name: self.set_name.clone(),
                findings: self.findings(),
            });
        };
        let mut primaries = members.iter().filter(|(_, reply)| reply.role == MemberRole::Primary);
        let primary = primaries.next();
        if let (Some((first, _)), Some((second, _))) = (primary, primaries.next()) {
            let (first, second) = ((*first).to_owned(), (*second).to_owned());
            return Err(DiscoveryError::TwoPrimaries { first, second });
        }
        // A member that the primary does not list was removed from the set.
        let listed = |address: &str| primary.is_none_or(|(_, primary)| lists(primary, address));
        let of_role = |role| {
            let own = members.iter().filter(move |(address, reply)| reply.role == role && listed(address));
            own.min_by_key(|(_, reply)| reply.round_trip)
        };
        let (primary, secondary) = (of_role(MemberRole::Primary), of_role(MemberRole::Secondary));
        let chosen = match self.preference {
            ReadPreference::Primary => primary,
            ReadPreference::PrimaryPreferred => primary.or(secondary),
            ReadPreference::Secondary => secondary,
            ReadPreference::SecondaryPreferred => secondary.or(primary),
            ReadPreference::Nearest => {
                [primary, secondary].into_iter().flatten().min_by_key(|(_, reply)| reply.round_trip)
            }
        };
        let Some((address, reply)) = chosen else {
            let (preference, findings) = (self.preference, self.findings());
            return Err(DiscoveryError::NoEligibleMember { set_name, preference, findings });
        };
        Ok(select(address, reply, count(&members)))
    }

    /// Routers are equivalent, and a standalone server is the only candidate.
    fn without_a_set(&self) -> Option<SelectedServer> {
        if self.set_name.is_some() {
            return None;
        }
        let routers = self.replies().filter(|(_, reply)| reply.role == MemberRole::Router);
        if let Some((address, nearest)) = routers.clone().min_by_key(|(_, reply)| reply.round_trip) {
            return Some(select(address, nearest, routers.count()));
        }
        let mut replies = self.replies();
        let (address, alone) = replies.next().filter(|(_, reply)| reply.role == MemberRole::Standalone)?;
        (self.hosts.len() == 1).then(|| select(address, alone, 1))
    }

    /// Whether a host that has replied is a member under the queried name. A member queried by another name
    /// is not counted twice: its name in the set is queried, too.
    fn belongs(&self, address: &str, reply: &HostReply) -> bool {
        reply.set_name.is_some() && reply.set_name == self.set_name && reply.is_called(address)
    }

    fn replies(&self) -> impl Iterator<Item = (&str, &HostReply)> + Clone {
        self.hosts.iter().filter_map(|host| match &host.state {
            State::Replied(reply) => Some((host.address.as_str(), reply)),
            State::New | State::Queried | State::Failed(_) => None,
        })
    }

    fn findings(&self) -> HostFindings {
        let finding = |host: &Host| match &host.state {
            State::New | State::Queried => "did not reply in time".to_owned(),
            State::Failed(reason) => format!("does not reply ({reason})"),
            State::Replied(HostReply { set_name: None, .. }) => "is not in a replica set".to_owned(),
            State::Replied(HostReply { set_name, .. }) if *set_name != self.set_name => {
                format!("is in the replica set {}", set_name.as_deref().unwrap_or_default())
            }
            State::Replied(reply) if !reply.is_called(&host.address) => match &reply.me {
                Some(me) => format!("is called {me} there"),
                None => "is not among the members that it lists".to_owned(),
            },
            State::Replied(HostReply { role, .. }) => format!("is {}", role.described()),
        };
        HostFindings(self.hosts.iter().map(|host| (host.address.clone(), finding(host))).collect())
    }
}

impl HostReply {
    /// Whether the set uses this name for it, as far as it reports one.
    fn is_called(&self, address: &str) -> bool {
        self.me.as_deref().is_none_or(|me| me == address) && lists(self, address)
    }
}

fn select(address: &str, reply: &HostReply, members: usize) -> SelectedServer {
    let HostReply { role, set_name, round_trip, .. } = reply.clone();
    SelectedServer { address: address.to_owned(), role, set_name, members, round_trip }
}

/// Whether a member lists this host. A member without a list confirms every host.
fn lists(member: &HostReply, address: &str) -> bool {
    member.members.is_empty() || member.members.iter().any(|named| named == address)
}

/// The number of members: according to the primary, or else all that any member lists.
fn count(members: &[(&str, &HostReply)]) -> usize {
    let primary = members.iter().find(|(_, reply)| reply.role == MemberRole::Primary);
    let mut named: Vec<&str> = match primary {
        Some((_, primary)) => primary.members.iter().map(String::as_str).collect(),
        None => members.iter().flat_map(|(_, reply)| reply.members.iter().map(String::as_str)).collect(),
    };
    named.sort_unstable();
    named.dedup();
    named.len().max(1)
}

/// The form in which members are compared: lower case, with port.
fn normalised(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    let has_port = if address.starts_with('[') { !address.ends_with(']') } else { address.contains(':') };
    if has_port { address } else { format!("{address}:{DEFAULT_PORT}") }
}
