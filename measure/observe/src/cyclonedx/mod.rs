//! The inventory as a cryptography bill of materials of CycloneDX 1.7.
//!
//! A server is a service, which depends on the protocols that its connections use; a protocol depends on its algorithms and
//! on the server's certificate. Connections without encryption have no cryptographic asset: they are properties of their
//! service, which has the tag `not-encrypted`. Counts are properties in the namespace `ciphertoll:observe`.
//!
//! The same observation gives the same bytes: the time is the end of the capture, and the serial number is a hash.

mod algorithms;
mod document;
mod servers;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use openssl::sha::sha256;

use self::document::{
    Bom, BomComposition, BomDependency, BomLifecycle, BomMetadata, BomTool, BomTools, Inventory,
};
use self::servers::{SeenServers, property};
use crate::observation::Observation;

/// The document as JSON.
pub fn cyclonedx(observation: &Observation) -> serde_json::Result<String> {
    let mut inventory = Inventory::default();
    let seen = SeenServers::of(observation);
    let services = seen.services(observation, &mut inventory);
    let hidden = seen.hidden_certificates();
    let Inventory { components, dependencies } = inventory;
    let bom = Bom {
        schema: "http://cyclonedx.org/schema/bom-1.7.schema.json",
        format: "CycloneDX",
        spec_version: "1.7",
        serial_number: serial_number(&sha256(&serde_json::to_vec(observation)?)),
        version: 1,
        metadata: metadata(observation),
        components: components.into_values().collect(),
        services,
        dependencies: dependencies
            .into_iter()
            .map(|(reference, depends_on)| BomDependency { reference, depends_on })
            .collect(),
        compositions: incomplete(hidden),
    };
    serde_json::to_string_pretty(&bom)
}

fn metadata(observation: &Observation) -> BomMetadata {
    let tool = BomTool { kind: "application", name: "ciphertoll", version: env!("CARGO_PKG_VERSION") };
    let began = observation.began_at.as_deref().map(|time| property("began-at", time));
    let dropped = observation.dropped.map(|dropped| property("packets-dropped", dropped));
    let counts = [
        property("source", &observation.source),
        property("seconds", observation.seconds),
        property("segments", observation.segments),
    ];
    BomMetadata {
        timestamp: ended_at(observation),
        lifecycles: [BomLifecycle { phase: "discovery" }],
        tools: BomTools { components: [tool] },
        properties: counts.into_iter().chain(began).chain(dropped).collect(),
    }
}

/// In whole seconds.
fn ended_at(observation: &Observation) -> Option<String> {
    let began: Timestamp = observation.began_at.as_ref()?.parse().ok()?;
    let lasted = SignedDuration::try_from_secs_f64(observation.seconds.round()).ok()?;
    Some(began.checked_add(lasted).ok()?.to_string())
}

/// TLS 1.3 encrypts the server's certificate, so that a passive observer cannot list it.
fn incomplete(protocols: BTreeSet<String>) -> Vec<BomComposition> {
    let composition = BomComposition { aggregate: "incomplete", dependencies: protocols };
    if composition.dependencies.is_empty() { Vec::new() } else { vec![composition] }
}

/// A UUID of version 8 (RFC 9562) from the start of a hash.
fn serial_number(hash: &[u8; 32]) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let [first, second, third, fourth, fifth] =
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("urn:uuid:{first}-{second}-{third}-{fourth}-{fifth}")
}
