//! The members of a replica set: who is asked, what their answers make known, and which one a read preference wants
//! ("Server Discovery and Monitoring", "Server Selection"). Knows no sockets: who drives it asks and tells.

use std::fmt;
use std::time::Duration;

use super::{ReadPreference, Role, ServerInfo};

/// Where a member listens that is named without port.
const DEFAULT_PORT: u16 = 27017;
/// As many hosts are asked at most: twice what a replica set has. Those beyond are not asked.
const MAX_HOSTS: usize = 100;
/// As many hosts an error tells of.
const MAX_TOLD: usize = 7;

/// A search for the member that is to be gone to.
#[derive(Debug, Clone)]
pub struct Discovery {
    set_name: Option<String>,
    preference: ReadPreference,
    /// In the order in which they became known, which ends ties.
    hosts: Vec<Host>,
}

#[derive(Debug, Clone)]
struct Host {
    address: String,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Unasked,
    Asked,
    Silent(String),
    Answered(Answer),
}

#[derive(Debug, Clone)]
struct Answer {
    role: Role,
    set_name: Option<String>,
    /// What the set calls this host.
    me: Option<String>,
    /// Whom it names as members.
    members: Vec<String>,
    round_trip: Duration,
}

/// The server that is to be gone to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name or address, and its port.
    pub address: String,
    /// What it is in its set.
    pub role: Role,
    /// Its set.
    pub set_name: Option<String>,
    /// How many there are to choose from: the set's members with data, whether they answer or not; or routers.
    pub members: usize,
    /// What a `hello` took.
    pub round_trip: Duration,
}

/// Why no server is chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Nobody answers, or nobody who belongs there.
    #[error("none of its hosts is a member of {}: {told}", set(.set_name.as_ref()))]
    Nobody {
        /// The set that was asked for.
        set_name: Option<String>,
        /// What became of each host.
        told: Told,
    },
    /// Two say that they are the primary.
    #[error("{first} and {second} both say that they are the primary: an election may be under way")]
    TwoPrimaries {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// The set has none of the kind that is wanted.
    #[error("the replica set {set_name} has no member for readPreference={}: {told}", .preference.label())]
    NoMember {
        /// The set.
        set_name: String,
        /// What was wanted.
        preference: ReadPreference,
        /// What became of each host.
        told: Told,
    },
}

/// Hosts, and what became of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told(Vec<(String, String)>);

impl fmt::Display for Told {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (address, finding)) in self.0.iter().take(MAX_TOLD).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(formatter, "{comma}{address} {finding}")?;
        }
        match self.0.len().checked_sub(MAX_TOLD).filter(|more| *more > 0) {
            Some(more) => write!(formatter, " and {more} more"),
            None => Ok(()),
        }
    }
}

fn set(name: Option<&String>) -> String {
    name.map_or_else(|| "one replica set".to_owned(), |name| format!("the replica set {name}"))
}

impl Discovery {
    /// A search that begins with these hosts, for a member of the set of this name, if one is said.
    pub fn new(
        seeds: impl IntoIterator<Item = String>,
        set_name: Option<String>,
        preference: ReadPreference,
    ) -> Self {
        let mut discovery = Self { set_name, preference, hosts: Vec::new() };
        seeds.into_iter().for_each(|seed| discovery.hear_of(&seed));
        discovery
    }

    /// The hosts that nobody has asked yet, which are to be asked now. None: all that there is to know is known.
    pub fn to_ask(&mut self) -> Vec<String> {
        let unasked = self.hosts.iter_mut().filter(|host| matches!(host.state, State::Unasked));
        unasked
            .map(|host| {
                host.state = State::Asked;
                host.address.clone()
            })
            .collect()
    }

    /// Takes what a host has answered to `hello`, and how long that took. Whom it names is to be asked, too.
    pub fn answered(&mut self, address: &str, server: &ServerInfo, round_trip: Duration) {
        let members: Vec<String> = server.hosts.iter().map(|host| normalised(host)).collect();
        let set_name = server.set_name.clone();
        // The first to answer says which set it is about where nobody else does.
        if self.set_name.is_none() {
            self.set_name.clone_from(&set_name);
        }
        if set_name.is_some() && set_name == self.set_name {
            for member in &members {
                self.hear_of(member);
            }
        }
        let me = server.me.as_deref().map(normalised);
        let answer = Answer { role: server.role, set_name, me, members, round_trip };
        self.tell(address, State::Answered(answer));
    }

    /// Takes that a host does not answer, and why.
    pub fn silent(&mut self, address: &str, reason: &str) {
        self.tell(address, State::Silent(reason.to_owned()));
    }

    fn hear_of(&mut self, address: &str) {
        let address = normalised(address);
        if self.hosts.len() < MAX_HOSTS && self.hosts.iter().all(|host| host.address != address) {
            self.hosts.push(Host { address, state: State::Unasked });
        }
    }

    fn tell(&mut self, address: &str, state: State) {
        if let Some(host) = self.hosts.iter_mut().find(|host| host.address == address) {
            host.state = state;
        }
    }

    /// The server that is to be gone to, of all that have answered.
    pub fn choose(&self) -> Result<Choice, DiscoveryError> {
        if let Some(choice) = self.without_a_set() {
            return Ok(choice);
        }
        let members: Vec<(&str, &Answer)> =
            self.answers().filter(|(host, answer)| self.belongs(host, answer)).collect();
        let Some(set_name) = self.set_name.clone().filter(|_| !members.is_empty()) else {
            return Err(DiscoveryError::Nobody { set_name: self.set_name.clone(), told: self.told() });
        };
        let mut primaries = members.iter().filter(|(_, answer)| answer.role == Role::Primary);
        let primary = primaries.next();
        if let (Some((first, _)), Some((second, _))) = (primary, primaries.next()) {
            let (first, second) = ((*first).to_owned(), (*second).to_owned());
            return Err(DiscoveryError::TwoPrimaries { first, second });
        }
        // Whom the primary does not name was removed from the set.
        let listed = |address: &str| primary.is_none_or(|(_, primary)| names(primary, address));
        let of_role = |role| {
            let own = members.iter().filter(move |(address, answer)| answer.role == role && listed(address));
            own.min_by_key(|(_, answer)| answer.round_trip)
        };
        let (primary, secondary) = (of_role(Role::Primary), of_role(Role::Secondary));
        let chosen = match self.preference {
            ReadPreference::Primary => primary,
            ReadPreference::PrimaryPreferred => primary.or(secondary),
            ReadPreference::Secondary => secondary,
            ReadPreference::SecondaryPreferred => secondary.or(primary),
            ReadPreference::Nearest => {
                [primary, secondary].into_iter().flatten().min_by_key(|(_, answer)| answer.round_trip)
            }
        };
        let Some((address, answer)) = chosen else {
            let (preference, told) = (self.preference, self.told());
            return Err(DiscoveryError::NoMember { set_name, preference, told });
        };
        Ok(choice(address, answer, count(&members)))
    }

    /// Routers are all alike, and the one host that is no member of a set is all that there is.
    fn without_a_set(&self) -> Option<Choice> {
        if self.set_name.is_some() {
            return None;
        }
        let routers = self.answers().filter(|(_, answer)| answer.role == Role::Router);
        if let Some((address, nearest)) = routers.clone().min_by_key(|(_, answer)| answer.round_trip) {
            return Some(choice(address, nearest, routers.count()));
        }
        let mut answers = self.answers();
        let (address, alone) = answers.next().filter(|(_, answer)| answer.role == Role::Standalone)?;
        (self.hosts.len() == 1).then(|| choice(address, alone, 1))
    }

    /// Whether a host that has answered is a member, under the name that it was asked by. A member that is asked by
    /// another name is not counted twice: its set calls it something else, and that is asked, too.
    fn belongs(&self, address: &str, answer: &Answer) -> bool {
        answer.set_name.is_some() && answer.set_name == self.set_name && answer.is_called(address)
    }

    fn answers(&self) -> impl Iterator<Item = (&str, &Answer)> + Clone {
        self.hosts.iter().filter_map(|host| match &host.state {
            State::Answered(answer) => Some((host.address.as_str(), answer)),
            State::Unasked | State::Asked | State::Silent(_) => None,
        })
    }

    fn told(&self) -> Told {
        let finding = |host: &Host| match &host.state {
            State::Unasked | State::Asked => "has not answered in time".to_owned(),
            State::Silent(reason) => format!("does not answer ({reason})"),
            State::Answered(Answer { set_name: None, .. }) => "is in no replica set".to_owned(),
            State::Answered(Answer { set_name, .. }) if *set_name != self.set_name => {
                format!("is in the replica set {}", set_name.as_deref().unwrap_or_default())
            }
            State::Answered(answer) if !answer.is_called(&host.address) => match &answer.me {
                Some(me) => format!("is called {me} there"),
                None => "is not among the members that it names".to_owned(),
            },
            State::Answered(Answer { role, .. }) => format!("is {}", role.described()),
        };
        Told(self.hosts.iter().map(|host| (host.address.clone(), finding(host))).collect())
    }
}

impl Answer {
    /// Whether the set calls it that, as far as it says.
    fn is_called(&self, address: &str) -> bool {
        self.me.as_deref().is_none_or(|me| me == address) && names(self, address)
    }
}

fn choice(address: &str, answer: &Answer, members: usize) -> Choice {
    let Answer { role, set_name, round_trip, .. } = answer.clone();
    Choice { address: address.to_owned(), role, set_name, members, round_trip }
}

/// Whether a member names this host as one; who names nobody says nothing.
fn names(member: &Answer, address: &str) -> bool {
    member.members.is_empty() || member.members.iter().any(|named| named == address)
}

/// How many members there are: the primary knows, else all that somebody names.
fn count(members: &[(&str, &Answer)]) -> usize {
    let primary = members.iter().find(|(_, answer)| answer.role == Role::Primary);
    let mut named: Vec<&str> = match primary {
        Some((_, primary)) => primary.members.iter().map(String::as_str).collect(),
        None => members.iter().flat_map(|(_, answer)| answer.members.iter().map(String::as_str)).collect(),
    };
    named.sort_unstable();
    named.dedup();
    named.len().max(1)
}

/// As members are told apart: in small letters, and with the port.
fn normalised(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    let has_port = if address.starts_with('[') { !address.ends_with(']') } else { address.contains(':') };
    if has_port { address } else { format!("{address}:{DEFAULT_PORT}") }
}
