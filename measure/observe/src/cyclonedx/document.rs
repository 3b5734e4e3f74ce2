//! The parts of CycloneDX 1.7 that the inventory uses. Names and enumerations are those of `bom-1.7.schema.json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The root of the document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bom {
    #[serde(rename = "$schema")]
    pub(super) schema: &'static str,
    #[serde(rename = "bomFormat")]
    pub(super) format: &'static str,
    pub(super) spec_version: &'static str,
    pub(super) serial_number: String,
    pub(super) version: u32,
    pub(super) metadata: BomMetadata,
    pub(super) components: Vec<BomComponent>,
    pub(super) services: Vec<BomService>,
    pub(super) dependencies: Vec<BomDependency>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compositions: Vec<BomComposition>,
}

#[derive(Debug, Serialize)]
pub(super) struct BomMetadata {
    /// When the observation ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    pub(super) lifecycles: [BomLifecycle; 1],
    pub(super) tools: BomTools,
    pub(super) properties: Vec<BomProperty>,
}

#[derive(Debug, Serialize)]
pub(super) struct BomLifecycle {
    pub(super) phase: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct BomTools {
    pub(super) components: [BomTool; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct BomTool {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct BomProperty {
    pub(super) name: String,
    pub(super) value: String,
}

/// A cryptographic asset.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BomComponent {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(rename = "bom-ref")]
    pub(super) reference: String,
    pub(super) name: String,
    pub(super) crypto_properties: CryptoProperties,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) properties: Vec<BomProperty>,
}

/// A server, whether its connections are encrypted or not.
#[derive(Debug, Serialize)]
pub(super) struct BomService {
    #[serde(rename = "bom-ref")]
    pub(super) reference: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) endpoints: Vec<String>,
    pub(super) properties: Vec<BomProperty>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BomDependency {
    #[serde(rename = "ref")]
    pub(super) reference: String,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) depends_on: BTreeSet<String>,
}

/// How complete a part of the inventory is.
#[derive(Debug, Serialize)]
pub(super) struct BomComposition {
    pub(super) aggregate: &'static str,
    pub(super) dependencies: BTreeSet<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "assetType", rename_all = "kebab-case")]
pub(super) enum CryptoProperties {
    #[serde(rename_all = "camelCase")]
    Algorithm { algorithm_properties: AlgorithmProperties },
    #[serde(rename_all = "camelCase")]
    Certificate { certificate_properties: CertificateProperties },
    #[serde(rename_all = "camelCase")]
    Protocol { protocol_properties: ProtocolProperties },
    #[serde(rename_all = "camelCase")]
    RelatedCryptoMaterial { related_crypto_material_properties: KeyProperties },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AlgorithmProperties {
    pub(super) primitive: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) algorithm_family: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameter_set_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) elliptic_curve: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) padding: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) crypto_functions: Vec<&'static str>,
    /// Bits; absent where it depends on a key that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) classical_security_level: Option<u32>,
    /// NIST's categories 1 to 5; 0 if a quantum computer breaks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nist_quantum_security_level: Option<u8>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) serial_number: Option<String>,
    pub(super) subject_name: String,
    pub(super) issuer_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_valid_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_valid_after: Option<String>,
    pub(super) certificate_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) related_cryptographic_assets: Vec<RelatedAsset>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Fingerprint {
    pub(super) alg: &'static str,
    pub(super) content: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RelatedAsset {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(rename = "ref")]
    pub(super) reference: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ProtocolProperties {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(rename = "cipherSuites", skip_serializing_if = "Vec::is_empty")]
    pub(super) cipher_suites: Vec<CipherSuite>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CipherSuite {
    pub(super) name: String,
    pub(super) algorithms: BTreeSet<String>,
    /// The two bytes of the number, as in the examples of the schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) identifiers: Vec<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) tls_groups: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) tls_signature_schemes: BTreeSet<String>,
}

/// A public key.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KeyProperties {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u32>,
}

/// Components by their references, and what each depends on.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) components: BTreeMap<String, BomComponent>,
    pub(super) dependencies: BTreeMap<String, BTreeSet<String>>,
}

impl Inventory {
    /// Adds a component once, with what it depends on. Returns its reference.
    pub(super) fn add(
        &mut self,
        reference: String,
        name: &str,
        crypto_properties: CryptoProperties,
        depends_on: impl IntoIterator<Item = String>,
    ) -> String {
        self.dependencies.entry(reference.clone()).or_default().extend(depends_on);
        self.components.entry(reference.clone()).or_insert_with(|| BomComponent {
            kind: "cryptographic-asset",
            reference: reference.clone(),
            name: name.to_owned(),
            crypto_properties,
            properties: Vec::new(),
        });
        reference
    }
}
