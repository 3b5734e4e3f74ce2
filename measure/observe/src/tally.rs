//! From connections to pairs of a client and a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ciphertoll_vocabulary::Phase;
use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};
use ciphertoll_wire::tls::{ClientAuthentication, Stage, TlsHandshake};
use hdrhistogram::Histogram;
use serde::Serialize as _;

use crate::certificate;
use crate::connection::{End, ObservedConnection, Opening, QueryCount};
use crate::names::{self, Suites};
use crate::observation::{
    Bytes, Connections, Encryption, EncryptionKind, FailureCount, Pair, PhaseTime, PlainLogin, Quantiles,
    Queries, Share,
};
use crate::observer::Endpoints;

const NS_PER_MS: f64 = 1e6;
/// Times are kept in microseconds.
const NS_PER_KEPT: u64 = 1_000;
/// An hour.
const MOST_KEPT: u64 = 3_600 * 1_000_000;
const PHASES: [Phase; 6] = [
    Phase::TcpConnect,
    Phase::ServerGreeting,
    Phase::TlsRequest,
    Phase::TlsHandshake,
    Phase::Auth,
    Phase::FirstQuery,
];

/// Counts the connections of each pair.
pub(crate) struct Tally {
    pairs: BTreeMap<(IpAddr, SocketAddr), PairTally>,
    suites: Suites,
    /// The day from which certificates are judged: all by the same, so that equal ones stay equal.
    judged_ns: Option<u64>,
}

#[derive(Default)]
struct PairTally {
    protocol: Option<DatabaseProtocol>,
    connections: Connections,
    bytes: Bytes,
    round_trip: TimeHistogram,
    connect: TimeHistogram,
    phases: [TimeHistogram; PHASES.len()],
    queries: BTreeMap<u64, u64>,
    by_turns: bool,
    /// The key is what is equal; the counts are in the value.
    encryption: BTreeMap<Encryption, Encryption>,
    logins: BTreeMap<String, u64>,
    failures: BTreeMap<String, u64>,
}

#[derive(Default)]
struct TimeHistogram(Option<Histogram<u32>>);

impl Default for Tally {
    fn default() -> Self {
        Self { pairs: BTreeMap::new(), suites: Suites::new(), judged_ns: None }
    }
}

impl Tally {
    /// Adds a connection that has ended, or is open at the end of the capture.
    pub(crate) fn add(&mut self, endpoints: Endpoints, connection: &ObservedConnection) {
        let key = (endpoints.client.ip().to_canonical(), endpoints.server);
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
        let judged_ns = *self.judged_ns.get_or_insert(connection.times.first);
        pair.add_encryption(connection, &self.suites, judged_ns);
        // A login that the server refused has shown the password, too.
        if let Some(method) = connection.login.as_ref().filter(|_| connection.handshake().is_none()) {
            *pair.logins.entry(method.to_string()).or_default() += 1;
        }
        if let Some(reason) = failure(connection) {
            *pair.failures.entry(reason).or_default() += 1;
        }
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
        self.round_trip.add(times.round_trip_ns());
        self.connect.add(times.connect_ns());
        for (phase, kept) in PHASES.into_iter().zip(&mut self.phases) {
            kept.add(times.phase_ns(phase));
        }
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
            *self.queries.entry(connection.queries).or_default() += 1;
        }
    }

    fn add_encryption(&mut self, connection: &ObservedConnection, suites: &Suites, judged_ns: u64) {
        let key = encryption(connection, suites, judged_ns);
        let counted = self.encryption.entry(key.clone()).or_insert(key);
        counted.connections += 1;
        let Some(handshake) = connection.handshake() else { return };
        counted.resumed += u64::from(handshake.resumed == Some(true));
        counted.hello_retries += u64::from(handshake.selected.is_some_and(|selected| selected.hello_retry));
        counted.unused_key_shares += u64::from(has_unused_share(handshake));
        counted.offered_sessions +=
            u64::from(handshake.offer.as_ref().is_some_and(|offer| offer.offers_session));
        if handshake.client_certificate != ClientAuthentication::Hidden {
            let sent = u64::from(handshake.client_certificate == ClientAuthentication::Sent);
            counted.client_certificates = Some(counted.client_certificates.unwrap_or(0) + sent);
        }
    }

    fn pair(&self, client: IpAddr, server: SocketAddr, seconds: f64) -> Pair {
        let times = PHASES.into_iter().zip(&self.phases);
        let phases = times
            .filter_map(|(phase, kept)| Some(PhaseTime { phase: phase_name(phase), ms: kept.quantiles()? }));
        let mut encryption: Vec<_> = self.encryption.values().cloned().collect();
        encryption.sort_by_key(|encryption| std::cmp::Reverse(encryption.connections));
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let connects_per_s = if seconds > 0.0 { self.connections.begun as f64 / seconds } else { 0.0 };
        Pair {
            client: client.to_string(),
            server: server.to_string(),
            protocol: self.protocol.map(|protocol| protocol.label().to_owned()),
            connections: self.connections,
            connects_per_s,
            bytes: self.bytes,
            round_trip_ms: self.round_trip.quantiles(),
            connect_ms: self.connect.quantiles(),
            phases: phases.collect(),
            queries: self.queries(),
            encryption,
            logins: by_count(&self.logins, |method, connections| PlainLogin { method, connections }),
            failures: by_count(&self.failures, |reason, connections| FailureCount { reason, connections }),
            cost: None,
        }
    }

    fn queries(&self) -> Option<Queries> {
        let all: u64 = self.queries.values().sum();
        let at = |part: u64| {
            let mut below = 0;
            let rank = (all * part).div_ceil(100).max(1);
            self.queries.iter().find_map(|(queries, connections)| {
                below += connections;
                (below >= rank).then_some(*queries)
            })
        };
        let distribution = self.queries.iter().map(|(&queries, &connections)| Share { queries, connections });
        Some(Queries {
            by_turns: self.by_turns,
            median: at(50)?,
            p95: at(95)?,
            max: at(100)?,
            distribution: distribution.collect(),
        })
    }
}

impl TimeHistogram {
    /// Two digits of precision.
    fn add(&mut self, ns: Option<u64>) {
        let Some(ns) = ns else { return };
        if self.0.is_none() {
            self.0 = Histogram::new_with_bounds(1, MOST_KEPT, 2).ok();
        }
        if let Some(histogram) = &mut self.0 {
            // A longer one is that of a clock that was set.
            let _ = histogram.record(ns / NS_PER_KEPT);
        }
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let histogram = self.0.as_ref()?;
        #[expect(clippy::cast_precision_loss, reason = "two digits are kept")]
        let ms = |kept: u64| kept as f64 * NS_PER_KEPT as f64 / NS_PER_MS;
        Some(Quantiles {
            median: ms(histogram.value_at_quantile(0.5)),
            p95: ms(histogram.value_at_quantile(0.95)),
            max: ms(histogram.max()),
        })
    }
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

/// How a connection was encrypted, without counts.
fn encryption(connection: &ObservedConnection, suites: &Suites, judged_ns: u64) -> Encryption {
    let plain = |kind| Encryption {
        kind,
        version: None,
        suite: None,
        group: None,
        signature: None,
        offered_groups: Vec::new(),
        connections: 0,
        resumed: 0,
        hello_retries: 0,
        unused_key_shares: 0,
        offered_sessions: 0,
        client_certificates: None,
        certificate: None,
    };
    let Some(handshake) = connection.handshake() else {
        return plain(match connection {
            _ if connection.opening == Opening::Gss => EncryptionKind::Gss,
            _ if connection.times.login_started.is_none() => EncryptionKind::Unknown,
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
        suite: selected.map(|selected| suites.name(selected.cipher_suite)),
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
        Some(format!("refused: {code}"))
    } else if let Some(alert) = alert {
        Some(format!("TLS alert by the {}: {}", alert.from.label(), alert.label()))
    } else if hidden {
        Some("TLS alert by the client, encrypted: most likely the server's certificate".to_owned())
    } else if !connection.is_whole() {
        None
    } else if connection.has_completed_handshake() && connection.times.login_started.is_none() {
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
            End::Reset(side) if connection.times.syn_ack.is_none() => {
                Some(format!("no connection: reset by the {}", side.label()))
            }
            End::Reset(side) => Some(format!("reset by the {} before the login was complete", side.label())),
            End::Closed(side) => {
                Some(format!("closed by the {} before the login was complete", side.label()))
            }
        }
    }
}
