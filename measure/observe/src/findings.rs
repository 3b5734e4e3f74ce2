//! What to change, from what was observed.

use std::net::{IpAddr, SocketAddr};

use ciphertoll_wire::passive::{AuthMethod, PasswordOnWire};

use crate::observation::{Encryption, EncryptionKind, FindingKind, ObservedFinding, Pair};

/// Browsers and auditors warn a month before.
const CERTIFICATE_WARNING_DAYS: i64 = 30;
/// NIST SP 800-131A.
const MIN_RSA_BITS: u32 = 2048;

/// The findings of all pairs, the worst first; of the same kind, in the order of the pairs.
#[must_use]
pub(crate) fn findings(pairs: &[Pair]) -> Vec<ObservedFinding> {
    let mut all: Vec<_> = pairs.iter().flat_map(of_pair).collect();
    all.sort_by_key(|finding| finding.kind);
    all
}

fn of_pair(pair: &Pair) -> Vec<ObservedFinding> {
    let found = passwords(pair)
        .into_iter()
        .chain(not_encrypted(pair))
        .chain(pair.encryption.iter().flat_map(of_encryption))
        .chain(failures(pair))
        .chain(not_resumed(pair))
        .chain(not_post_quantum(pair));
    let at = |(kind, seen, todo): Found| ObservedFinding {
        kind,
        client: pair.client.clone(),
        server: pair.server.clone(),
        seen,
        todo: todo.to_owned(),
    };
    found.map(at).collect()
}

type Found = (FindingKind, String, &'static str);

fn passwords(pair: &Pair) -> Vec<Found> {
    if is_local(pair) {
        return Vec::new();
    }
    let found = pair.logins.iter().filter_map(|login| {
        let (method, times) = (&login.method, logins(login.connections));
        Some(match AuthMethod::named(method.as_bytes()).password() {
            PasswordOnWire::Clear => (
                FindingKind::PasswordInClear,
                format!("{times} sent the password in clear ({method}), without encryption"),
                "require TLS on the server, and change these passwords: whoever could listen has them",
            ),
            PasswordOnWire::WeakHash => (
                FindingKind::PasswordWeaklyHashed,
                format!("{times} sent a weak hash of the password ({method}), without encryption"),
                "require TLS on the server, and change to a method with a slow hash or a signature: scram-sha-256, caching_sha2_password, parsec",
            ),
            PasswordOnWire::Proof | PasswordOnWire::None | PasswordOnWire::Unknown => return None,
        })
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
        (FindingKind::NotEncrypted, format!("{} without encryption{why}", connections(all)), todo)
    })
}

fn of_encryption(encryption: &Encryption) -> Vec<Found> {
    if encryption.kind != EncryptionKind::Tls {
        return Vec::new();
    }
    let mut found = Vec::new();
    let times = connections(encryption.connections);
    let version = encryption.version.as_deref().unwrap_or_default();
    if matches!(version, "tls1.0" | "tls1.1") {
        let todo = "allow TLS 1.2 and 1.3 only: RFC 8996 forbids what is older";
        found.push((FindingKind::ObsoleteVersion, format!("{times} with {version}"), todo));
    }
    let suite = encryption.suite.as_deref().unwrap_or_default();
    if suite.starts_with("TLS_RSA_WITH_") {
        let todo = "allow suites with ECDHE only: whoever gets the server's key can read what was recorded";
        found.push((
            FindingKind::NoForwardSecrecy,
            format!("{times} without forward secrecy ({suite})"),
            todo,
        ));
    }
    if let Some(certificate) = &encryption.certificate {
        let rsa_bits = certificate.key.strip_prefix("rsa").and_then(|bits| bits.parse::<u32>().ok());
        if rsa_bits.is_some_and(|bits| bits < MIN_RSA_BITS) {
            let seen = format!("the server's certificate has a key of {}", certificate.key);
            found.push((
                FindingKind::WeakKey,
                seen,
                "replace it by P-256, or by RSA with at least 2048 bits",
            ));
        }
        if certificate.days_left < CERTIFICATE_WARNING_DAYS {
            let seen = match certificate.days_left {
                ..0 => format!("the server's certificate expired on {}", certificate.not_after),
                days => {
                    format!("the server's certificate expires in {days} days, on {}", certificate.not_after)
                }
            };
            found.push((FindingKind::CertificateExpires, seen, "renew it"));
        }
    }
    if encryption.hello_retries > 0 {
        let group = encryption.group.as_deref().unwrap_or("another group");
        let seen = format!(
            "{} of {times} took a round trip more: the server wants {group}",
            encryption.hello_retries
        );
        found.push((FindingKind::HelloRetry, seen, "let clients send a key share of this group first"));
    } else if encryption.unused_key_shares > 0 && encryption.group.is_some() {
        let group = encryption.group.as_deref().unwrap_or_default();
        let count = encryption.unused_key_shares;
        let seen = format!(
            "{count} of {times} computed a key share that the server did not use: it selected {group}"
        );
        found.push((
            FindingKind::UnusedKeyShare,
            seen,
            "upgrade the server's TLS library, or let clients offer this group first",
        ));
    }
    found
}

fn failures(pair: &Pair) -> Vec<Found> {
    let found = pair.failures.iter().map(|failure| {
        let seen = format!("{} failed: {}", connections(failure.connections), failure.reason);
        (FindingKind::HandshakesFail, seen, "see the client's and the server's log")
    });
    found.collect()
}

/// Full handshakes again and again, by a client that could resume.
fn not_resumed(pair: &Pair) -> Option<Found> {
    let tls = |encryption: &Encryption| encryption.kind == EncryptionKind::Tls;
    let (all, resumed) =
        (sum(pair, tls), pair.encryption.iter().map(|encryption| encryption.resumed).sum::<u64>());
    let few_queries = pair.queries.as_ref().is_some_and(|queries| queries.median <= 3);
    (all > 1 && resumed == 0 && few_queries).then(|| {
        let seen =
            format!("{} for a few queries each, none of which resumed a TLS session", connections(all));
        (
            FindingKind::NotResumed,
            seen,
            "pool connections in the application, or by the sidecar: ciphertoll advise says what it saves",
        )
    })
}

fn not_post_quantum(pair: &Pair) -> Option<Found> {
    let classical = |encryption: &Encryption| {
        let group = encryption.group.as_deref();
        encryption.kind == EncryptionKind::Tls && group.is_none_or(|group| !group.contains("mlkem"))
    };
    let all = sum(pair, classical);
    let offered = pair
        .encryption
        .iter()
        .any(|encryption| encryption.offered_groups.iter().any(|group| group.contains("mlkem")));
    (all > 0).then(|| {
        let offer = if offered { "; the client offers one" } else { "" };
        let seen = format!("{} without a post-quantum key exchange{offer}", connections(all));
        (
            FindingKind::NotPostQuantum,
            seen,
            "upgrade the TLS libraries of both ends: OpenSSL 3.5 has X25519MLKEM768",
        )
    })
}

fn sum(pair: &Pair, filter: impl Fn(&Encryption) -> bool) -> u64 {
    pair.encryption
        .iter()
        .filter(|encryption| filter(encryption))
        .map(|encryption| encryption.connections)
        .sum()
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

fn logins(count: u64) -> String {
    if count == 1 { "1 login".to_owned() } else { format!("{count} logins") }
}
