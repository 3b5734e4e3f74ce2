//! Servers, the protocols of their connections, and the certificates that they showed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::algorithms;
use super::document::{
    BomProperty, BomService, CertificateProperties, CipherSuite, CryptoProperties, Fingerprint, Inventory,
    KeyProperties, ProtocolProperties, RelatedAsset,
};
use crate::names;
use crate::observation::{Certificate, Encryption, EncryptionKind, Observation, Pair, ServerProbe};

const NOT_ENCRYPTED: &str = "not-encrypted";

/// All servers, by their addresses.
pub(super) struct SeenServers<'a>(BTreeMap<&'a str, SeenServer<'a>>);

#[derive(Default)]
struct SeenServer<'a> {
    pairs: Vec<&'a Pair>,
    protocols: BTreeMap<String, SeenProtocol<'a>>,
    /// What it accepts, if it was asked.
    probe: Option<&'a ServerProbe>,
}

/// A version of TLS, or GSSAPI, on one server.
#[derive(Default)]
struct SeenProtocol<'a> {
    /// Each with its client.
    encryption: Vec<(&'a str, &'a Encryption)>,
    /// Those that the server showed when it was asked.
    probed: &'a [Certificate],
}

/// A property in the namespace of this tool.
pub(super) fn property(name: &str, value: impl Display) -> BomProperty {
    BomProperty { name: format!("ciphertoll:observe:{name}"), value: value.to_string() }
}

impl<'a> SeenServers<'a> {
    pub(super) fn of(observation: &'a Observation) -> Self {
        let mut servers: BTreeMap<&str, SeenServer<'_>> = BTreeMap::new();
        for pair in &observation.pairs {
            let server = servers.entry(&pair.server).or_default();
            server.pairs.push(pair);
            for encryption in &pair.encryption {
                let Some(label) = protocol_label(encryption) else { continue };
                let protocol = server.protocols.entry(label).or_default();
                protocol.encryption.push((&pair.client, encryption));
            }
        }
        for probe in &observation.probes {
            let Some(server) = servers.get_mut(probe.server.as_str()) else { continue };
            server.probe = Some(probe);
            let tls = server.protocols.iter_mut().filter(|(label, _)| label.starts_with("tls"));
            for (_, protocol) in tls {
                protocol.probed = &probe.certificates;
            }
        }
        Self(servers)
    }

    /// A service for each server; adds what they depend on to the inventory.
    pub(super) fn services(&self, observation: &Observation, inventory: &mut Inventory) -> Vec<BomService> {
        let service = |(name, server): (&&str, &SeenServer<'_>)| {
            let reference = format!("service/{name}");
            let begun = server.begun();
            let protocols = server.protocols.iter();
            let protocols = protocols.map(|(label, protocol)| protocol.add_to(inventory, name, label, begun));
            let protocols: BTreeSet<_> = protocols.collect();
            inventory.dependencies.insert(reference.clone(), protocols);
            let mut properties = server.properties();
            let found = observation.findings.iter().filter(|finding| finding.server == **name);
            properties.extend(found.map(|finding| {
                let kind = serde_json::to_value(finding.kind).unwrap_or_default();
                let kind = kind.as_str().unwrap_or_default().replace('_', "-");
                property(&format!("finding:{kind}"), format!("{}: {}", finding.client, finding.seen))
            }));
            let is_plain = server.count(is_plain) > 0;
            BomService {
                reference,
                name: (*name).to_owned(),
                endpoints: endpoint(name).into_iter().collect(),
                properties,
                tags: is_plain.then_some(NOT_ENCRYPTED).into_iter().collect(),
            }
        };
        self.0.iter().map(service).collect()
    }

    /// References of the protocols whose certificates a passive observer does not see.
    pub(super) fn hidden_certificates(&self) -> BTreeSet<String> {
        let hidden = |(name, server): (&&str, &SeenServer<'_>)| {
            let protocols =
                server.protocols.iter().filter(|(_, protocol)| protocol.certificates().is_empty());
            let tls = protocols.filter(|(label, _)| label.starts_with("tls"));
            tls.map(|(label, _)| protocol_reference(name, label)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(hidden).collect()
    }
}

impl SeenServer<'_> {
    fn begun(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.connections.begun).sum()
    }

    fn count(&self, filter: impl Fn(EncryptionKind) -> bool) -> u64 {
        let all = self.pairs.iter().flat_map(|pair| &pair.encryption);
        all.filter(|encryption| filter(encryption.kind)).map(|encryption| encryption.connections).sum()
    }

    /// Every number is written, also if it is 0: an auditor looks for it.
    fn properties(&self) -> Vec<BomProperty> {
        let of = |kind| self.count(|found| found == kind);
        let plain = self.count(is_plain);
        let mut properties = vec![
            property("connections", self.begun()),
            property("connections-without-encryption", plain),
            property("connections-without-encryption-share", share(plain, self.begun())),
            property("connections-refused-tls", of(EncryptionKind::Refused)),
            property("connections-tls", of(EncryptionKind::Tls)),
            property("connections-tls-failed", of(EncryptionKind::TlsFailed)),
            property("connections-gssapi", of(EncryptionKind::Gss)),
            property("connections-unknown", of(EncryptionKind::Unknown)),
            property(
                "connections-began-before",
                self.pairs.iter().map(|pair| pair.connections.began_before).sum::<u64>(),
            ),
        ];
        let protocol = self.pairs.iter().find_map(|pair| pair.protocol.as_deref());
        properties.extend(protocol.map(|protocol| property("protocol", protocol)));
        properties.extend(self.probe.into_iter().flat_map(accepted));
        for pair in &self.pairs {
            properties.push(property(&format!("connections-from:{}", pair.client), pair.connections.begun));
            properties.extend(pair.logins.iter().map(|login| {
                property(&format!("plaintext-login:{}:{}", login.method, pair.client), login.connections)
            }));
        }
        properties
    }
}

impl SeenProtocol<'_> {
    fn certificates(&self) -> BTreeSet<&Certificate> {
        let seen = self.encryption.iter().filter_map(|(_, encryption)| encryption.certificate.as_ref());
        seen.chain(self.probed).collect()
    }

    /// Adds the protocol and what it depends on. Returns its reference.
    fn add_to(&self, inventory: &mut Inventory, server: &str, label: &str, begun: u64) -> String {
        let mut suites: BTreeMap<&str, CipherSuite> = BTreeMap::new();
        let mut used = BTreeSet::new();
        for (_, encryption) in &self.encryption {
            let Some(name) = encryption.suite.as_deref() else { continue };
            add_suite(inventory, suites.entry(name).or_insert_with(|| empty_suite(name)), encryption);
        }
        used.extend(suites.values().flat_map(|suite| suite.algorithms.iter().cloned()));
        used.extend(
            self.certificates().into_iter().map(|certificate| add_certificate(inventory, certificate)),
        );
        let (name, kind, version) = match label.strip_prefix("tls") {
            Some("") => ("TLS of an unknown version".to_owned(), "tls", None),
            Some(version) => (format!("TLS {version}"), "tls", Some(version.to_owned())),
            None => ("GSSAPI".to_owned(), "other", None),
        };
        let cipher_suites = suites.into_values().collect();
        let protocol_properties = ProtocolProperties { kind, version, cipher_suites };
        let reference = inventory.add(
            protocol_reference(server, label),
            &name,
            CryptoProperties::Protocol { protocol_properties },
            used,
        );
        if let Some(component) = inventory.components.get_mut(&reference) {
            component.properties = self.properties(server, begun);
        }
        reference
    }

    fn properties(&self, server: &str, begun: u64) -> Vec<BomProperty> {
        let sum =
            |of: fn(&Encryption) -> u64| self.encryption.iter().map(|(_, found)| of(found)).sum::<u64>();
        let connections = sum(|encryption| encryption.connections);
        let mut properties = vec![
            property("server", server),
            property("connections", connections),
            property("connections-share", share(connections, begun)),
            property("connections-resumed", sum(|encryption| encryption.resumed)),
            property("hello-retries", sum(|encryption| encryption.hello_retries)),
            property("unused-key-shares", sum(|encryption| encryption.unused_key_shares)),
        ];
        let offered: BTreeSet<_> =
            self.encryption.iter().flat_map(|(_, encryption)| &encryption.offered_groups).collect();
        let offered = offered.iter().map(|group| algorithms::group_name(group));
        properties.extend(offered.map(|group| property("group-offered", group)));
        let mut clients: BTreeMap<&str, u64> = BTreeMap::new();
        for (client, encryption) in &self.encryption {
            *clients.entry(client).or_default() += encryption.connections;
        }
        let from = |(client, count): (&str, u64)| property(&format!("connections-from:{client}"), count);
        properties.extend(clients.into_iter().map(from));
        properties
    }
}

/// What a server said when it was asked.
fn accepted(probe: &ServerProbe) -> Vec<BomProperty> {
    let versions = probe.versions.iter().map(|accepted| property("accepts-version", &accepted.version));
    let groups = probe.groups.iter().map(|group| property("accepts-group", algorithms::group_name(group)));
    let weak = probe.weak_suite.iter().map(|suite| property("accepts-weak-suite", suite));
    let error = probe.error.iter().map(|error| property("probe-error", error));
    let unknown = probe.unknown_words().map(|parts| property("probe-unknown", parts));
    versions.chain(groups).chain(weak).chain(error).chain(unknown).collect()
}

/// `tls1.3`; `None` for what is no cryptographic protocol, or was not completed.
fn protocol_label(encryption: &Encryption) -> Option<String> {
    match encryption.kind {
        EncryptionKind::Tls => {
            let version = encryption.version.as_deref().unwrap_or_default();
            Some(format!("tls{}", version.strip_prefix("tls").unwrap_or(version)))
        }
        EncryptionKind::Gss => Some("gssapi".to_owned()),
        EncryptionKind::None
        | EncryptionKind::Refused
        | EncryptionKind::Rejected
        | EncryptionKind::TlsFailed
        | EncryptionKind::Unknown => None,
    }
}

fn protocol_reference(server: &str, label: &str) -> String {
    format!("protocol/{label}@{server}")
}

fn is_plain(kind: EncryptionKind) -> bool {
    matches!(kind, EncryptionKind::None | EncryptionKind::Refused)
}

fn empty_suite(name: &str) -> CipherSuite {
    let number = names::suite_number(name);
    CipherSuite {
        name: name.to_owned(),
        algorithms: BTreeSet::new(),
        identifiers: number.into_iter().flatten().map(|byte| format!("0x{byte:02X}")).collect(),
        tls_groups: BTreeSet::new(),
        tls_signature_schemes: BTreeSet::new(),
    }
}

/// Adds how some connections used a suite.
fn add_suite(inventory: &mut Inventory, suite: &mut CipherSuite, encryption: &Encryption) {
    for algorithm in algorithms::of_suite(&suite.name) {
        suite.algorithms.insert(algorithm.add_to(inventory, Vec::new()));
    }
    if let Some(label) = &encryption.group {
        let (exchange, parts) = algorithms::key_exchange(label);
        suite.algorithms.insert(exchange.add_to(inventory, parts));
        suite.tls_groups.insert(algorithms::group_name(label).to_owned());
    }
    if let Some(scheme) = &encryption.signature {
        suite.algorithms.insert(algorithms::signature(scheme).add_to(inventory, Vec::new()));
        suite.tls_signature_schemes.insert(scheme.clone());
    }
}

/// Adds a certificate with its key and the algorithm of its signature. Returns its reference.
fn add_certificate(inventory: &mut Inventory, certificate: &Certificate) -> String {
    let id = certificate.sha256.clone().unwrap_or_else(|| {
        format!("{}/{}/{}", certificate.issuer, certificate.subject, certificate.not_after)
    });
    let (key_name, size) = algorithms::public_key(&certificate.key);
    let key = inventory.add(
        format!("public-key/{id}"),
        &key_name,
        CryptoProperties::RelatedCryptoMaterial {
            related_crypto_material_properties: KeyProperties { kind: "public-key", size },
        },
        [],
    );
    let signature = certificate.signature.as_deref().map(algorithms::certificate_signature);
    let signature = signature.map(|algorithm| algorithm.add_to(inventory, Vec::new()));
    let related = |kind, reference: &String| RelatedAsset { kind, reference: reference.clone() };
    let assets = signature.iter().map(|signature| related("algorithm", signature));
    let assets = assets.chain([related("publicKey", &key)]).collect();
    let certificate_properties = CertificateProperties {
        serial_number: certificate.serial.clone(),
        subject_name: certificate.subject.clone(),
        issuer_name: certificate.issuer.clone(),
        not_valid_before: certificate.not_before.as_deref().and_then(rfc3339),
        not_valid_after: rfc3339(&certificate.not_after),
        certificate_format: "X.509",
        fingerprint: certificate.sha256.clone().filter(|hash| is_sha256(hash)).map(fingerprint),
        related_cryptographic_assets: assets,
    };
    inventory.add(
        format!("certificate/{id}"),
        &certificate.subject,
        CryptoProperties::Certificate { certificate_properties },
        signature.into_iter().chain([key]),
    )
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn fingerprint(content: String) -> Fingerprint {
    Fingerprint { alg: "SHA-256", content }
}

/// `2027-11-30T12:00:00Z` from `Nov 30 12:00:00 2027 GMT`, as OpenSSL prints it; `None` if it has no such time.
fn rfc3339(openssl: &str) -> Option<String> {
    let time = DateTime::strptime("%b %d %H:%M:%S %Y GMT", openssl).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().to_string())
}

/// The address as a URI; `None` if a character of it cannot be part of one.
fn endpoint(server: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    server.bytes().all(is_allowed).then(|| format!("tcp://{server}"))
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "0".to_owned() } else { format!("{:.4}", part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_become_those_of_documents() {
        let time = |text: &str| rfc3339(text);
        assert_eq!(time("Nov 30 12:00:00 2027 GMT").as_deref(), Some("2027-11-30T12:00:00Z"));
        assert_eq!(time("Jan  3 01:02:03 1950 GMT").as_deref(), Some("1950-01-03T01:02:03Z"));
        assert_eq!(time("Bad time value"), None);
    }

    #[test]
    fn an_endpoint_is_a_uri_or_none() {
        assert_eq!(endpoint("[::1]:5432").as_deref(), Some("tcp://[::1]:5432"));
        assert_eq!(endpoint("a b:5432"), None);
    }
}
