//! The size of handshakes, and key shares that were sent for nothing.

use ciphertoll_model::{Engine, Group, HandshakeSize, KeyShare, Leg};

use super::clean;
use crate::number::{count, plural};

/// The payload of a segment on Ethernet: 1,500 bytes without the headers of IPv4 and TCP (40 bytes) and TCP time stamps
/// (12 bytes), which Linux sends by default.
const ETHERNET_SEGMENT_BYTES: u64 = 1_448;
/// What a sender may send before the first acknowledgement (RFC 6928), also Linux's default.
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// `1 938 bytes read, 1 621 written; first flight 1 938 bytes: 1 segment, 2 on Ethernet`.
pub(super) fn size(size: &HandshakeSize) -> String {
    let ethernet = ethernet_segments(size);
    let segments = match size.segments {
        Some(observed) if observed == ethernet => plural(ethernet, "segment"),
        Some(observed) => format!("{}, {} on Ethernet", plural(observed, "segment"), count(ethernet)),
        None => format!("{} on Ethernet", plural(ethernet, "segment")),
    };
    let [read, written, first] = [size.read_bytes, size.written_bytes, size.first_flight_bytes].map(count);
    format!("Handshake: {read} bytes read, {written} written; first flight {first} bytes: {segments}")
}

/// If the server cannot send its first flight at once.
pub(super) fn extra_round_trip(size: &HandshakeSize) -> Option<String> {
    let exceeds = ethernet_segments(size) > INITIAL_WINDOW_SEGMENTS;
    exceeds.then(|| {
        format!(
            "The first flight exceeds an initial congestion window of {INITIAL_WINDOW_SEGMENTS} Ethernet segments: \
             one more round trip on a long link"
        )
    })
}

/// An ML-KEM share takes most of the client's hello; a curve's share is not worth a sentence.
pub(super) fn unused_share(leg: &Leg, engine: Engine, version: Option<&str>) -> Option<String> {
    let has_ml_kem = |group: &str| Group::from_label(group).is_some_and(Group::has_ml_kem);
    let KeyShare { bytes, .. } = leg.unused_shares.iter().find(|share| has_ml_kem(&share.group))?;
    // A client with several shares of ML-KEM would not have sent one in vain.
    let group = leg.group.as_deref().filter(|group| !has_ml_kem(group))?;
    let bytes = count(u64::from(*bytes));
    // After a retry, its own sentence says how to avoid both.
    let avoided = match leg.hello_retry {
        Some(true) => String::new(),
        Some(false) | None => format!("; +group={} on the client avoids it", clean(group)),
    };
    let server = server_setting(engine, version);
    Some(format!(
        "The client sent an ML-KEM key share of {bytes} bytes that the server did not use: {server}{avoided}"
    ))
}

/// What makes a server select an ML-KEM group.
fn server_setting(engine: Engine, version: Option<&str>) -> &'static str {
    /// The first with `ssl_groups`; `ssl_ecdh_curve` before it names one curve.
    const POSTGRES_WITH_GROUPS: u32 = 18;
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match engine {
        Engine::Postgres if major.is_some_and(|major| major < POSTGRES_WITH_GROUPS) => {
            "PostgreSQL before 18 cannot select ML-KEM"
        }
        Engine::Postgres => {
            "set ssl_groups = 'X25519MLKEM768:X25519:prime256v1' on the server (PostgreSQL 18, OpenSSL 3.5)"
        }
        Engine::MariaDb => {
            "MariaDB selects it with OpenSSL 3.5 or newer, if OpenSSL's configuration allows it"
        }
        Engine::MySql => "MySQL has no setting for key exchange groups",
        Engine::MongoDb | Engine::FerretDb => "the server has no setting for key exchange groups",
    }
}

fn ethernet_segments(size: &HandshakeSize) -> u64 {
    size.first_flight_bytes.div_ceil(ETHERNET_SEGMENT_BYTES)
}

#[cfg(test)]
mod tests;
