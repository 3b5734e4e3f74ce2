//! From connections to pairs of a client and a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ciphertoll_vocabulary::Phase;
use ciphertoll_wire::passive::{AuthMethod, ConnectionSide, DatabaseProtocol, FailureCode, PasswordOnWire};
use ciphertoll_wire::tls::{ClientAuthentication, Stage, TlsHandshake};
use serde::Serialize as _;

use crate::accounts::{NameRoom, PairAccounts};
use crate::certificate;
use crate::connection::{End, ObservedConnection, Opening, QueryCount};
use crate::distribution::Distribution;
use crate::endpoints::Endpoints;
use crate::names;
use crate::observation::{
    Bytes, Connections, Encryption, EncryptionKind, FailureCount, Pair, PhaseTime, PlainLogin, Quantiles,
    Queries, Share,
};
use crate::times::CONNECT_PHASES;

const NS_PER_MS: f64 = 1e6;
/// Times are kept in microseconds.
const NS_PER_KEPT: u64 = 1_000;
/// Fewer connects have no rate: it would be that of a moment.
const MIN_RATE_CONNECTS: u64 = 5;
/// Pairs of a client and a server that are told apart. Connections of others are counted, and no more.
const MAX_PAIRS: usize = 10_000;
/// Kinds of encryption that are told apart in all pairs: clients may offer any groups, and servers show any
/// certificate. Further kinds are counted without details.
const MAX_KINDS: usize = 20_000;
/// In a pair, kinds of encryption, methods of logins and reasons of failures that are told apart: peers may name any.
const MAX_PER_PAIR: usize = 100;
const OTHER: &str = "other";
/// The number of uncounted connections between two searches for pairs that may give way.
const SEARCH_INTERVAL: u64 = 1_000;
/// What the client does between the phases of a connect.
const CLIENT: &str = "client";
/// The SQLSTATE of a client for which `pg_hba.conf` has no entry; wrong logins may have it, too.
const NO_ENTRY: FailureCode = FailureCode::SqlState(*b"28000");
/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: FailureCode = FailureCode::Number(3159);

/// Exact below 256 µs, and within 0.2 % above.
type Times = Distribution<8>;

/// Counts the connections of each pair.
#[derive(Default)]
pub(crate) struct Tally {
    pairs: BTreeMap<(IpAddr, SocketAddr), PairTally>,
    uncounted: u64,
    /// The number of uncounted connections at which the next search for pairs that may give way begins.
    next_search: u64,
    kinds: usize,
    name_room: NameRoom,
    /// The day from which certificates are judged: all by the same, so that equal ones stay equal.
    judged_ns: Option<u64>,
}

#[derive(Default)]
struct PairTally {
    protocol: Option<DatabaseProtocol>,
    connections: Connections,
    bytes: Bytes,
    round_trip: Times,
    connect: Times,
    phases: [Times; CONNECT_PHASES.len()],
    client: Times,
    first_query: Times,
    /// Exact below 4,096.
    queries: Distribution<12>,
    by_turns: bool,
    /// Each with its counts. A pair has few: a map would take several times as much memory in a flood.
    encryption: Vec<Encryption>,
    logins: BTreeMap<String, u64>,
    failures: BTreeMap<String, u64>,
    accounts: PairAccounts,
}

impl Tally {
    /// Adds a connection that has ended, or is open at the end of the capture.
    pub(crate) fn add(&mut self, endpoints: Endpoints, connection: &ObservedConnection) {
        let key = (endpoints.client().ip(), endpoints.server());
        if self.pairs.len() >= MAX_PAIRS && !self.pairs.contains_key(&key) {
            if connection.is_logged_in() {
                self.make_room();
            }
            if self.pairs.len() >= MAX_PAIRS {
                self.uncounted += 1;
                return;
            }
        }
        let pair = self.pairs.entry(key).or_default();
        pair.protocol = pair.protocol.or(connection.protocol());
        pair.bytes.by_client += connection.bytes[ConnectionSide::Client as usize];
        pair.bytes.by_server += connection.bytes[ConnectionSide::Server as usize];
        if connection.opening == Opening::Cancel {
            pair.connections.cancel_requests += 1;
            return;
        }
        pair.connections.open += u64::from(connection.end.is_none());
        if !connection.is_from_beginning {
            pair.connections.began_before += 1;
            return;
        }
        pair.connections.begun += 1;
        pair.add_times(connection);
        pair.add_queries(connection);
        let judged_ns = *self.judged_ns.get_or_insert(connection.times.last);
        self.kinds += usize::from(pair.add_encryption(connection, judged_ns, self.kinds < MAX_KINDS));
        // A login that the server refused has shown the password, too.
        if let Some(method) = connection.login().filter(|_| connection.handshake().is_none()) {
            count(&mut pair.logins, method.to_string());
        }
        if let Some(accounts) = connection.accounts() {
            pair.accounts.add(accounts, &mut self.name_room);
        }
        if let Some(reason) = failure(connection) {
            count(&mut pair.failures, reason);
        }
        pair.connections.sessions += u64::from(is_session(connection));
    }

    /// Pairs give way if only unusable connections of them are known: most of them come from a flood.
    fn make_room(&mut self) {
        if self.uncounted < self.next_search {
            return;
        }
        let Self { pairs, uncounted, kinds, .. } = self;
        pairs.retain(|_, pair| {
            let Connections { begun, sessions, began_before, cancel_requests, .. } = pair.connections;
            let is_kept = sessions + began_before + cancel_requests > 0;
            if !is_kept {
                *uncounted += begun;
                *kinds -= pair.encryption.len().min(*kinds);
            }
            is_kept
        });
        self.next_search = self.uncounted + SEARCH_INTERVAL;
    }

    /// Connections of pairs that are not told apart.
    #[must_use]
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// All pairs, those with most connects first.
    #[must_use]
    pub(crate) fn pairs(&self, seconds: f64) -> Vec<Pair> {
        let mut pairs: Vec<_> = self
            .pairs
            .iter()
            .map(|((client, server), tally)| tally.pair(*client, *server, seconds))
            .collect();
        pairs.sort_by_key(|pair| {
            std::cmp::Reverse((pair.connections.begun, pair.bytes.by_client + pair.bytes.by_server))
        });
        pairs
    }
}

impl PairTally {
    fn add_times(&mut self, connection: &ObservedConnection) {
        let times = &connection.times;
        add_time(&mut self.round_trip, times.round_trip_ns());
        add_time(&mut self.connect, times.connect_ns());
        for (phase, kept) in CONNECT_PHASES.into_iter().zip(&mut self.phases) {
            add_time(kept, times.phase_ns(phase));
        }
        add_time(&mut self.client, times.client_ns());
        add_time(&mut self.first_query, times.phase_ns(Phase::FirstQuery));
    }

    fn add_queries(&mut self, connection: &ObservedConnection) {
        match connection.query_count() {
            QueryCount::Unknown => {
                let is_failed = failure(connection).is_some();
                self.connections.unread += u64::from(!is_failed);
                return;
            }
            QueryCount::Turns => self.by_turns = true,
            QueryCount::Messages => {}
        }
        if connection.is_logged_in() {
            self.queries.add(connection.queries);
        }
    }

    /// Returns whether it is of a new kind.
    fn add_encryption(&mut self, connection: &ObservedConnection, judged_ns: u64, has_room: bool) -> bool {
        let kind = encryption(connection, judged_ns);
        let place =
            |kind: &Encryption, all: &[Encryption]| all.iter().position(|known| is_alike(known, kind));
        let (kind, found) = match place(&kind, &self.encryption) {
            None if !has_room || self.encryption.len() >= MAX_PER_PAIR => {
                let without_details = plain(kind.kind);
                let found = place(&without_details, &self.encryption);
                (without_details, found)
            }
            found => (kind, found),
        };
        let at = found.unwrap_or_else(|| {
            self.encryption.reserve_exact(1);
            self.encryption.push(kind);
            self.encryption.len() - 1
        });
        self.encryption[at].add(connection);
        found.is_none()
    }

    fn pair(&self, client: IpAddr, server: SocketAddr, seconds: f64) -> Pair {
        let of_phases = CONNECT_PHASES.into_iter().map(phase_name).zip(&self.phases);
        let others = [(CLIENT.to_owned(), &self.client), (phase_name(Phase::FirstQuery), &self.first_query)];
        let phases = of_phases.chain(others);
        let phases = phases.filter_map(|(phase, kept)| Some(PhaseTime { phase, ms: quantiles(kept)? }));
        let mut encryption = self.encryption.clone();
        encryption.sort_by(|one, other| other.connections.cmp(&one.connections).then_with(|| one.cmp(other)));
        let has_rate = self.connections.begun >= MIN_RATE_CONNECTS && seconds > 0.0;
        let connects_per_s = has_rate.then(|| self.connections.begun as f64 / seconds);
        Pair {
            client: client.to_string(),
            server: server.to_string(),
            client_name: None,
            server_name: None,
            protocol: self.protocol.map(|protocol| protocol.label().to_owned()),
            connections: self.connections,
            connects_per_s,
            bytes: self.bytes,
            round_trip_ms: quantiles(&self.round_trip),
            connect_ms: quantiles(&self.connect),
            phases: phases.collect(),
            queries: self.queries(),
            encryption,
            logins: by_count(&self.logins, |method, connections| PlainLogin { method, connections }),
            failures: by_count(&self.failures, |reason, connections| FailureCount { reason, connections }),
            users: self.accounts.users(),
            other_users: self.accounts.others(),
            cost: None,
            processes: Vec::new(),
        }
    }

    fn queries(&self) -> Option<Queries> {
        let distribution = self.queries.iter().map(|(queries, connections)| Share { queries, connections });
        Some(Queries {
            by_turns: self.by_turns,
            median: self.queries.percentile(50)?,
            p95: self.queries.percentile(95)?,
            max: self.queries.percentile(100)?,
            distribution: distribution.collect(),
        })
    }
}

impl Encryption {
    /// Counts a connection that is encrypted so.
    fn add(&mut self, connection: &ObservedConnection) {
        self.connections += 1;
        self.sessions += u64::from(is_session(connection));
        let Some(handshake) = connection.handshake() else { return };
        self.resumed += u64::from(handshake.resumed == Some(true));
        self.hello_retries += u64::from(handshake.selected.is_some_and(|selected| selected.hello_retry));
        self.unused_key_shares += u64::from(has_unused_share(handshake));
        self.offered_sessions +=
            u64::from(handshake.offer.as_ref().is_some_and(|offer| offer.offers_session));
        if handshake.client_certificate != ClientAuthentication::Hidden {
            let sent = u64::from(handshake.client_certificate == ClientAuthentication::Sent);
            self.client_certificates = Some(self.client_certificates.unwrap_or(0) + sent);
        }
    }
}

/// Whether only the counts differ.
fn is_alike(one: &Encryption, other: &Encryption) -> bool {
    one.kind == other.kind
        && one.version == other.version
        && one.suite == other.suite
        && one.group == other.group
        && one.signature == other.signature
        && one.offered_groups == other.offered_groups
        && one.certificate == other.certificate
}

fn count(counts: &mut BTreeMap<String, u64>, name: String) {
    let is_told_apart = counts.len() < MAX_PER_PAIR || counts.contains_key(&name);
    *counts.entry(if is_told_apart { name } else { OTHER.to_owned() }).or_default() += 1;
}

fn add_time(times: &mut Times, ns: Option<u64>) {
    if let Some(ns) = ns {
        times.add(ns / NS_PER_KEPT);
    }
}

fn quantiles(times: &Times) -> Option<Quantiles> {
    let ms = |percent| Some(times.percentile(percent)? as f64 * NS_PER_KEPT as f64 / NS_PER_MS);
    Some(Quantiles { median: ms(50)?, p95: ms(95)?, max: ms(100)? })
}

fn by_count<T>(counts: &BTreeMap<String, u64>, make: impl Fn(String, u64) -> T) -> Vec<T> {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    sorted.into_iter().map(|(name, count)| make(name.clone(), *count)).collect()
}

/// The name of a phase in documents.
fn phase_name(phase: Phase) -> String {
    let name = phase.serialize(serde_json::value::Serializer);
    name.ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

/// Whether a connection that was begun could be used, as far as is known: it did not fail, and is not unfinished.
fn is_session(connection: &ObservedConnection) -> bool {
    let is_unread = connection.query_count() == QueryCount::Unknown && failure(connection).is_none();
    connection.is_logged_in() || is_unread
}

/// Without details and counts.
fn plain(kind: EncryptionKind) -> Encryption {
    Encryption {
        kind,
        version: None,
        suite: None,
        group: None,
        signature: None,
        offered_groups: Vec::new(),
        connections: 0,
        sessions: 0,
        resumed: 0,
        hello_retries: 0,
        unused_key_shares: 0,
        offered_sessions: 0,
        client_certificates: None,
        certificate: None,
    }
}

/// How a connection was encrypted, without counts.
fn encryption(connection: &ObservedConnection, judged_ns: u64) -> Encryption {
    let Some(handshake) = connection.handshake() else {
        return plain(match connection {
            _ if connection.opening == Opening::Gss => EncryptionKind::Gss,
            _ if !connection.times.login_started.is_known() => EncryptionKind::Unknown,
            _ if is_rejected(connection) => EncryptionKind::Rejected,
            _ if connection.opening == Opening::TlsRefused => EncryptionKind::Refused,
            _ => EncryptionKind::None,
        });
    };
    let kind = match handshake.stage {
        _ if connection.has_completed_handshake() => EncryptionKind::Tls,
        _ if !connection.is_whole() => EncryptionKind::Unknown,
        Stage::NotTls => EncryptionKind::Unknown,
        _ => EncryptionKind::TlsFailed,
    };
    let selected = handshake.selected.as_ref();
    let offered = handshake.offer.iter().flat_map(|offer| &offer.groups);
    Encryption {
        version: selected.map(|selected| names::version(selected.version)),
        suite: selected.map(|selected| names::suite(selected.cipher_suite)),
        group: selected.and_then(|selected| Some(names::group(selected.group?))),
        signature: selected.and_then(|selected| Some(selected.signature?.label().into_owned())),
        offered_groups: offered.map(|group| group.label().into_owned()).collect(),
        certificate: handshake.certificates.first().and_then(|der| certificate::read(der, judged_ns)),
        ..plain(kind)
    }
}

fn has_unused_share(handshake: &TlsHandshake) -> bool {
    let Some((offer, selected)) = handshake.offer.as_ref().zip(handshake.selected.as_ref()) else {
        return false;
    };
    let used = selected.group.and_then(ciphertoll_wire::tls::KeyExchangeGroup::named);
    offer.key_shares.iter().any(|share| Some(share.group) != used)
}

/// Why a connection failed before it could be used, if it did.
fn failure(connection: &ObservedConnection) -> Option<String> {
    if connection.is_logged_in() || !connection.is_from_beginning {
        return None;
    }
    let alert = connection.handshake().and_then(|handshake| handshake.alert);
    let hidden = connection.handshake().is_some_and(|handshake| handshake.has_hidden_alert);
    if let Some(code) = connection.refused {
        Some(refusal(connection, code))
    } else if let Some(alert) = alert {
        Some(format!("TLS alert by the {}: {}", alert.from.label(), alert.label()))
    } else if hidden {
        Some("TLS alert by the client, encrypted: most likely the server's certificate".to_owned())
    } else if connection.has_hidden_server_alert() {
        Some("TLS alert by the server, encrypted: most likely the client's certificate".to_owned())
    } else if !connection.is_whole() {
        None
    } else if connection.has_completed_handshake() && !connection.times.login_started.is_known() {
        let by = connection.end?.side().label();
        Some(format!(
            "closed by the {by} after the TLS handshake, before a login: most likely the certificate or its name"
        ))
    } else if connection.has_completed_handshake() {
        connection.end.map(|_| "ended during the login, which is encrypted: most likely refused".to_owned())
    } else if connection.opening == Opening::TlsRefused {
        Some("ended after the server had refused TLS".to_owned())
    } else {
        match connection.end? {
            End::Reset(side) if !connection.times.syn_ack.is_known() => {
                Some(format!("no connection: reset by the {}", side.label()))
            }
            End::Reset(side) => Some(format!("reset by the {} before the login was complete", side.label())),
            End::Closed(side) => {
                Some(format!("closed by the {} before the login was complete", side.label()))
            }
        }
    }
}

/// Whether a connection without encryption failed before anything secret was sent.
fn is_rejected(connection: &ObservedConnection) -> bool {
    let is_harmless = match connection.login().map(AuthMethod::password) {
        None | Some(PasswordOnWire::None) => true,
        // MySQL's servers look at the login first.
        Some(PasswordOnWire::Proof) => connection.refused == Some(TLS_REQUIRED),
        Some(PasswordOnWire::Clear | PasswordOnWire::WeakHash | PasswordOnWire::Unknown) => false,
    };
    is_harmless && failure(connection).is_some()
}

/// A server's refusal; of one for want of encryption, what it means.
fn refusal(connection: &ObservedConnection, code: FailureCode) -> String {
    let is_plain = connection.handshake().is_none() && connection.opening != Opening::Gss;
    match code {
        NO_ENTRY if is_plain && connection.login().is_none() => {
            format!(
                "refused: {code}: pg_hba.conf has no entry for this client without encryption, or none at all"
            )
        }
        TLS_REQUIRED if is_plain => format!("refused: {code}: the server requires TLS"),
        _ => format!("refused: {code}"),
    }
}
