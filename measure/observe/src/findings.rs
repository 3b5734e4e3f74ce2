//! What to change, from what was observed.

use std::net::{IpAddr, SocketAddr};

use ciphertoll_wire::passive::{AuthMethod, PasswordOnWire};
use ciphertoll_wire::tls::NamedGroup;

use crate::names;
use crate::observation::{
    Certificate, Encryption, EncryptionKind, FindingKind, ObservedFinding, Pair, ProbePart, ServerProbe,
};
use crate::words::counted;

/// Browsers and auditors warn a month before.
const CERTIFICATE_WARNING_DAYS: i64 = 30;
/// NIST SP 800-131A, for RSA and for Diffie-Hellman with integers.
const MIN_BITS: u32 = 2048;
const RESUMED_QUERIES: u64 = 3;
const NO_OBSOLETE_VERSION: &str = "allow TLS 1.2 and 1.3 only: RFC 8996 forbids what is older";
const NO_WEAK_SUITE: &str = "allow suites with AES-GCM or ChaCha20-Poly1305 only, on the server";
/// From whom a finding is that a server tells when it is asked.
const ANY_CLIENT: &str = "any client";

/// The findings of all pairs and of what servers accept, the worst first; of the same kind, in the order of the pairs.
#[must_use]
pub(crate) fn findings(pairs: &[Pair], probes: &[ServerProbe]) -> Vec<ObservedFinding> {
    let at = |(client, server, found): (&str, &str, Found)| ObservedFinding {
        kind: found.kind,
        client: client.to_owned(),
        server: server.to_owned(),
        seen: found.seen(),
        todo: found.todo.to_owned(),
    };
    let mut all: Vec<_> = all(pairs, probes).map(at).collect();
    all.sort_by_key(|finding| finding.kind);
    all
}

/// The same findings, with one for all clients of a server that have the same: from whom, to which server, what, and what to do.
#[must_use]
pub(crate) fn merged(pairs: &[Pair], probes: &[ServerProbe]) -> Vec<MergedFinding> {
    let mut merged: Vec<(Found, &str, Vec<&str>)> = Vec::new();
    for (client, server, found) in all(pairs, probes) {
        let same = |(other, of, _): &&mut (Found, &str, Vec<&str>)| {
            *of == server && other.kind == found.kind && other.words == found.words
        };
        if let Some((other, _, clients)) = merged.iter_mut().find(same) {
            other.count = other.count.plus(found.count);
            clients.push(client);
        } else {
            merged.push((found, server, vec![client]));
        }
    }
    merged.sort_by_key(|(found, ..)| found.kind);
    let merge = |(found, server, clients): (Found, &str, Vec<&str>)| MergedFinding {
        from: match &clients[..] {
            [client] => (*client).to_owned(),
            _ => counted(clients.len() as u64, "client"),
        },
        server: server.to_owned(),
        seen: found.seen(),
        todo: found.todo,
    };
    merged.into_iter().map(merge).collect()
}

/// All findings, each with its client and its server.
fn all<'a>(pairs: &'a [Pair], probes: &'a [ServerProbe]) -> impl Iterator<Item = (&'a str, &'a str, Found)> {
    let probe_of = |pair: &Pair| probes.iter().find(|probe| probe.server == pair.server);
    let seen = pairs.iter().flat_map(move |pair| {
        let found = of_pair(pair, probe_of(pair)).into_iter();
        found.map(move |found| (pair.client.as_str(), pair.server.as_str(), found))
    });
    // What connections have shown is not said again of the server.
    let is_new = |probe: &ServerProbe, found: &Found| {
        let pairs = pairs.iter().filter(|pair| pair.server == probe.server);
        let mut shown = pairs.flat_map(|pair| of_pair(pair, Some(probe)));
        !shown.any(|shown| shown.kind == found.kind && shown.words == found.words)
    };
    let asked = probes.iter().flat_map(move |probe| {
        let found = of_probe(probe).into_iter().filter(move |found| is_new(probe, found));
        found.map(move |found| (ANY_CLIENT, probe.server.as_str(), found))
    });
    seen.chain(asked)
}

/// A finding on all clients of a server.
pub(crate) struct MergedFinding {
    /// A client, or how many.
    pub(crate) from: String,
    pub(crate) server: String,
    pub(crate) seen: String,
    pub(crate) todo: &'static str,
}

/// A finding of one pair.
#[derive(Clone, Debug)]
struct Found {
    kind: FindingKind,
    count: FoundCount,
    /// What follows the count.
    words: String,
    todo: &'static str,
}

/// Of what, and how many.
#[derive(Clone, Copy, Debug)]
enum FoundCount {
    /// It is said of the server.
    None,
    Logins(u64),
    Connections(u64),
    /// So many of all.
    Of(u64, u64),
}

impl FoundCount {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Logins(own), Self::Logins(more)) => Self::Logins(own + more),
            (Self::Connections(own), Self::Connections(more)) => Self::Connections(own + more),
            (Self::Of(own, all), Self::Of(more, all_more)) => Self::Of(own + more, all + all_more),
            _ => self,
        }
    }
}

impl Found {
    fn seen(&self) -> String {
        let count = match self.count {
            FoundCount::None => return self.words.clone(),
            FoundCount::Logins(count) => counted(count, "login"),
            FoundCount::Connections(count) => counted(count, "connection"),
            FoundCount::Of(count, all) if count == all => counted(all, "connection"),
            FoundCount::Of(count, all) => format!("{count} of {}", counted(all, "connection")),
        };
        format!("{count} {}", self.words)
    }
}

fn of_pair(pair: &Pair, probe: Option<&ServerProbe>) -> Vec<Found> {
    passwords(pair)
        .into_iter()
        .chain(not_encrypted(pair))
        .chain(pair.encryption.iter().flat_map(move |encryption| of_encryption(encryption, probe)))
        .chain(failures(pair))
        .chain(not_resumed(pair))
        .chain(not_post_quantum(pair, probe))
        .collect()
}

/// What a server accepts, and should not, and its certificate.
fn of_probe(probe: &ServerProbe) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |kind, words, todo| found.push(Found { kind, count: FoundCount::None, words, todo });
    let versions = probe.versions.iter().map(|accepted| accepted.version.as_str());
    let obsolete: Vec<_> = versions.filter(|version| is_obsolete(version)).collect();
    if !obsolete.is_empty() {
        let words = format!("may connect with {}: the server accepts it", obsolete.join(" and "));
        add(FindingKind::ObsoleteVersion, words, NO_OBSOLETE_VERSION);
    }
    if let Some(suite) = &probe.weak_suite {
        let weakness = names::weakness(suite).unwrap_or("weak");
        let words = format!("may connect with a weak suite ({suite}: {weakness}): the server accepts it");
        add(FindingKind::WeakSuite, words, NO_WEAK_SUITE);
    }
    found.extend(probe.certificates.first().and_then(weak_key));
    found.extend(probe.certificates.first().into_iter().filter_map(expiry).map(|found| Found {
        // The capture may be old.
        words: format!("{}, as of the probe", found.words),
        ..found
    }));
    found
}

fn is_obsolete(version: &str) -> bool {
    matches!(version, "tls1.0" | "tls1.1")
}

fn passwords(pair: &Pair) -> Vec<Found> {
    if is_local(pair) {
        return Vec::new();
    }
    let found = pair.logins.iter().filter_map(|login| {
        let method = &login.method;
        let (kind, words, todo) = match AuthMethod::named(method.as_bytes()).password() {
            PasswordOnWire::Clear => (
                FindingKind::PasswordInClear,
                format!("sent the password in clear ({method}), without encryption"),
                "require TLS on the server, and change these passwords: whoever could listen has them",
            ),
            PasswordOnWire::WeakHash => (
                FindingKind::PasswordWeaklyHashed,
                format!("sent a weak hash of the password ({method}), without encryption"),
                "require TLS on the server, and change to a method with a slow hash or a signature: scram-sha-256, caching_sha2_password, parsec",
            ),
            PasswordOnWire::Proof | PasswordOnWire::None | PasswordOnWire::Unknown => return None,
        };
        Some(Found { kind, count: FoundCount::Logins(login.connections), words, todo })
    });
    found.collect()
}

/// Whether nothing leaves the machine.
fn is_local(pair: &Pair) -> bool {
    let server = pair.server.parse::<SocketAddr>().map(|server| server.ip());
    let client = pair.client.parse::<IpAddr>();
    server.as_ref().is_ok_and(IpAddr::is_loopback) || server.is_ok() && server.ok() == client.ok()
}

/// Traffic that leaves the machine and is not encrypted.
fn not_encrypted(pair: &Pair) -> Option<Found> {
    let of = |kind| sum(pair, |encryption| encryption.kind == kind);
    let (refused, all) =
        (of(EncryptionKind::Refused), of(EncryptionKind::None) + of(EncryptionKind::Refused));
    (all > 0 && !is_local(pair)).then(|| {
        let why = if refused == all { ": the server refused TLS" } else { "" };
        let todo = if refused > 0 {
            "switch TLS on in the server, and require it"
        } else {
            "require TLS on the server (hostssl, require_secure_transport) and in the clients"
        };
        let words = format!("without encryption{why}");
        Found { kind: FindingKind::NotEncrypted, count: FoundCount::Connections(all), words, todo }
    })
}

fn of_encryption(encryption: &Encryption, probe: Option<&ServerProbe>) -> Vec<Found> {
    if encryption.kind != EncryptionKind::Tls {
        return Vec::new();
    }
    // The probe says later how many days are left.
    let is_probed = |certificate: &&Certificate| {
        let probed = probe.into_iter().flat_map(|probe| &probe.certificates);
        certificate.sha256.is_some() && probed.take(1).any(|other| other.sha256 == certificate.sha256)
    };
    let certificate = encryption.certificate.as_ref();
    negotiated(encryption)
        .into_iter()
        .chain(certificate.and_then(weak_key))
        .chain(certificate.filter(|certificate| !is_probed(certificate)).and_then(expiry))
        .chain(key_shares(encryption))
        .collect()
}

/// What was selected, and should not be.
fn negotiated(encryption: &Encryption) -> Vec<Found> {
    let mut found = Vec::new();
    let mut add = |kind, words, todo| {
        let count = FoundCount::Connections(encryption.connections);
        found.push(Found { kind, count, words, todo });
    };
    let version = encryption.version.as_deref().unwrap_or_default();
    if is_obsolete(version) {
        add(FindingKind::ObsoleteVersion, format!("with {version}"), NO_OBSOLETE_VERSION);
    }
    let suite = encryption.suite.as_deref().unwrap_or_default();
    if let Some(weakness) = names::weakness(suite) {
        add(FindingKind::WeakSuite, format!("with a weak suite ({suite}): {weakness}"), NO_WEAK_SUITE);
    }
    if !names::has_forward_secrecy(suite) {
        let todo = "allow suites with ECDHE only: whoever gets the server's key can read what was recorded";
        add(FindingKind::NoForwardSecrecy, format!("without forward secrecy ({suite})"), todo);
    }
    let prime_bits =
        encryption.group.as_deref().and_then(|group| group.strip_prefix("dhe")?.parse::<u32>().ok());
    if let Some(bits) = prime_bits.filter(|bits| *bits < MIN_BITS) {
        let todo = "allow suites with ECDHE only, or give the server a prime of at least 2048 bits";
        add(FindingKind::WeakGroup, format!("with a key exchange over a prime of only {bits} bits"), todo);
    }
    found
}

fn weak_key(certificate: &Certificate) -> Option<Found> {
    let rsa_bits = certificate.key.strip_prefix("rsa").and_then(|bits| bits.parse::<u32>().ok());
    rsa_bits.filter(|bits| *bits < MIN_BITS).map(|_| Found {
        kind: FindingKind::WeakKey,
        count: FoundCount::None,
        words: format!("the server's certificate has a key of {}", certificate.key),
        todo: "replace it by P-256, or by RSA with at least 2048 bits",
    })
}

fn expiry(certificate: &Certificate) -> Option<Found> {
    let day = &certificate.not_after;
    let words = match u64::try_from(certificate.days_left) {
        _ if certificate.days_left >= CERTIFICATE_WARNING_DAYS => return None,
        Err(_) => format!("the server's certificate expired on {day}"),
        Ok(0) => format!("the server's certificate expires today, on {day}"),
        Ok(days) => format!("the server's certificate expires in {}, on {day}", counted(days, "day")),
    };
    Some(Found { kind: FindingKind::CertificateExpires, count: FoundCount::None, words, todo: "renew it" })
}

/// What the client computes for a key exchange that the server does not want.
fn key_shares(encryption: &Encryption) -> Option<Found> {
    let (all, group) = (encryption.connections, encryption.group.as_deref());
    if encryption.hello_retries > 0 {
        let group = group.unwrap_or("another group");
        return Some(Found {
            kind: FindingKind::HelloRetry,
            count: FoundCount::Of(encryption.hello_retries, all),
            words: format!("took a round trip more: the server wants {group}"),
            todo: "let clients send a key share of this group first",
        });
    }
    let is_tls_1_3 = encryption.version.as_deref() == Some("tls1.3");
    let (words, todo) = match group {
        // TLS 1.2 has none.
        _ if !is_tls_1_3 => (
            "computed a key share for TLS 1.3, and the server selected an older version, which has none"
                .to_owned(),
            "switch TLS 1.3 on in the server: its handshake takes a round trip less, too",
        ),
        Some(group) => (
            format!("computed a key share that the server did not use: it selected {group}"),
            "upgrade the server's TLS library, or let clients offer this group first",
        ),
        None => return None,
    };
    let count = FoundCount::Of(encryption.unused_key_shares, all);
    (encryption.unused_key_shares > 0).then_some(Found {
        kind: FindingKind::UnusedKeyShare,
        count,
        words,
        todo,
    })
}

fn failures(pair: &Pair) -> Vec<Found> {
    let found = pair.failures.iter().map(|failure| Found {
        kind: FindingKind::HandshakesFail,
        count: FoundCount::Connections(failure.connections),
        words: format!("failed: {}", failure.reason),
        todo: "see the client's and the server's log",
    });
    found.collect()
}

/// Full handshakes again and again, by a client that could resume.
fn not_resumed(pair: &Pair) -> Option<Found> {
    let tls = |encryption: &Encryption| encryption.kind == EncryptionKind::Tls;
    let (all, resumed) =
        (sum(pair, tls), pair.encryption.iter().map(|encryption| encryption.resumed).sum::<u64>());
    let few_queries = pair.queries.as_ref().is_some_and(|queries| queries.median <= RESUMED_QUERIES);
    (all > 1 && resumed == 0 && few_queries).then(|| Found {
        kind: FindingKind::NotResumed,
        count: FoundCount::Connections(all),
        words: "for a few queries each, none of which resumed a TLS session".to_owned(),
        todo: "pool connections in the application, or by the sidecar: ciphertoll advise says what it saves",
    })
}

fn not_post_quantum(pair: &Pair, probe: Option<&ServerProbe>) -> Option<Found> {
    let classical = |encryption: &Encryption| {
        let group = encryption.group.as_deref();
        encryption.kind == EncryptionKind::Tls && !group.is_some_and(NamedGroup::is_post_quantum)
    };
    let all = sum(pair, classical);
    let mut offers = pair.encryption.iter().flat_map(|encryption| &encryption.offered_groups);
    let offered = offers.any(|group| NamedGroup::is_post_quantum(group));
    (all > 0).then(|| {
        let offer = if offered { "; the client offers one" } else { "" };
        let accepts = probe.and_then(|probe| {
            let accepts = probe.groups.iter().any(|group| NamedGroup::is_post_quantum(group));
            (accepts || probe.knows(ProbePart::Groups)).then_some(accepts)
        });
        Found {
            kind: FindingKind::NotPostQuantum,
            count: FoundCount::Connections(all),
            words: format!("without a post-quantum key exchange{offer}"),
            todo: match accepts {
                Some(true) if offered => {
                    "let the clients prefer a hybrid group, with a key share for it: the server accepts one"
                }
                Some(true) => "upgrade the clients' TLS library (OpenSSL 3.5, for example): the server accepts a hybrid group",
                Some(false) if offered => {
                    "upgrade the server's TLS library: it accepts no hybrid group, and OpenSSL 3.5 has X25519MLKEM768"
                }
                Some(false) | None => "upgrade the TLS libraries of both ends: OpenSSL 3.5 has X25519MLKEM768",
            },
        }
    })
}

fn sum(pair: &Pair, filter: impl Fn(&Encryption) -> bool) -> u64 {
    pair.encryption
        .iter()
        .filter(|encryption| filter(encryption))
        .map(|encryption| encryption.connections)
        .sum()
}
