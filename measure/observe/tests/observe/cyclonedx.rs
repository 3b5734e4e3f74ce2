//! The cryptography bill of materials: what it lists, and that it keeps to the published schema, whatever peers send.

use ciphertoll_observe::{EncryptionKind, Observation, cyclonedx};
use jsonschema::{Registry, RegistryBuilder, Validator};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::hostile::{sample, with_text};

macro_rules! schema {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!("../cyclonedx-1.7/", $name))).expect("JSON")
    };
}

/// Checks documents against the published schema.
struct Schema(Validator);

impl Schema {
    fn new() -> Self {
        let registry = Registry::new()
            .add("http://cyclonedx.org/schema/spdx.schema.json", schema!("spdx.schema.json"))
            .and_then(|all| {
                all.add("http://cyclonedx.org/schema/jsf-0.82.schema.json", schema!("jsf-0.82.schema.json"))
            })
            .and_then(|all| {
                let definitions = schema!("cryptography-defs.schema.json");
                all.add("http://cyclonedx.org/schema/cryptography-defs.schema.json", definitions)
            })
            .and_then(RegistryBuilder::prepare)
            .expect("schemas without unknown references");
        let options = jsonschema::options().with_registry(&registry).should_validate_formats(true);
        Self(options.build(&schema!("bom-1.7.schema.json")).expect("a schema"))
    }

    fn faults(&self, document: &Value) -> Vec<String> {
        self.0.iter_errors(document).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
    }

    #[track_caller]
    fn assert_kept(&self, document: &Value) {
        assert_eq!(self.faults(document), Vec::<String>::new(), "{document:#}");
        assert_consistent(document);
    }
}

fn document(observation: &Observation) -> Value {
    serde_json::from_str(&cyclonedx(observation).expect("a document")).expect("JSON")
}

fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().expect("a list")
}

/// The value of a property, without the namespace.
fn property<'a>(of: &'a Value, name: &str) -> &'a Value {
    let name = format!("ciphertoll:observe:{name}");
    let found = list(of, "properties").iter().find(|property| property["name"] == name.as_str());
    &found.unwrap_or_else(|| panic!("no {name}: {of:#}"))["value"]
}

fn component<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let found = list(document, "components").iter().find(|component| component["bom-ref"] == reference);
    found.unwrap_or_else(|| panic!("no {reference}: {document:#}"))
}

/// What the schema cannot say: references are unique and lead somewhere.
#[track_caller]
fn assert_consistent(document: &Value) {
    let of = |name| list(document, name).iter().map(|part| part["bom-ref"].as_str().expect("a reference"));
    let all: Vec<&str> = of("components").chain(of("services")).collect();
    let mut distinct = all.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), all.len(), "references are unique: {all:?}");
    let mut used = Vec::new();
    references(document, &mut used);
    for reference in used {
        assert!(distinct.binary_search(&reference).is_ok(), "{reference} leads nowhere: {document:#}");
    }
    assert_eq!(list(document, "dependencies").len(), all.len(), "each says what it depends on");
}

/// All references in the document, apart from those that define.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let is_list = matches!(name.as_str(), "dependsOn" | "algorithms")
                    || name == "dependencies" && field[0].is_string();
                if name == "ref" {
                    found.extend(field.as_str());
                } else if is_list {
                    found.extend(field.as_array().into_iter().flatten().filter_map(Value::as_str));
                } else {
                    references(field, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_inventory_keeps_to_the_published_schema() {
    let schema = Schema::new();
    schema.assert_kept(&document(&sample()));
    let nothing = Observation { pairs: Vec::new(), findings: Vec::new(), began_at: None, ..sample() };
    schema.assert_kept(&document(&nothing));
}

#[test]
fn a_document_that_does_not_keep_to_the_schema_is_found_out() {
    let schema = Schema::new();
    let mut wrong = document(&sample());
    wrong["components"][0]["cryptoProperties"]["algorithmProperties"]["primitive"] = json!("magic");
    assert!(!schema.faults(&wrong).is_empty());
    let mut wrong = document(&sample());
    wrong["metadata"]["timestamp"] = json!("yesterday");
    assert!(!schema.faults(&wrong).is_empty(), "formats are checked");
    let mut wrong = document(&sample());
    wrong["components"][0]["cryptoProperties"]["algorithmProperties"]["algorithmFamily"] = json!("magic");
    assert!(!schema.faults(&wrong).is_empty(), "schemas that it refers to are checked");
}

#[test]
fn a_protocol_lists_its_suites_groups_and_signatures() {
    let document = document(&sample());
    let tls13 = component(&document, "protocol/tls1.3@10.0.0.5:5432");
    let of = &tls13["cryptoProperties"]["protocolProperties"];
    assert_eq!((&of["type"], &of["version"]), (&json!("tls"), &json!("1.3")));
    let suites = list(of, "cipherSuites");
    assert_eq!(suites.len(), 2);
    assert_eq!(suites[1]["name"], "TLS_AES_256_GCM_SHA384");
    assert_eq!(suites[1]["identifiers"], json!(["0x13", "0x02"]));
    assert_eq!(suites[1]["tlsGroups"], json!(["X25519MLKEM768"]));
    assert_eq!(property(tls13, "connections"), "1195");
    assert_eq!(property(tls13, "connections-share"), "0.9958");
    assert_eq!(property(tls13, "connections-from:10.0.0.7"), "1195");
    let tls12 = component(&document, "protocol/tls1.2@10.0.0.6:3306");
    let suites = list(&tls12["cryptoProperties"]["protocolProperties"], "cipherSuites");
    assert_eq!(suites[0]["tlsSignatureSchemes"], json!(["rsa_pss_rsae_sha256"]));
    assert!(suites[1].get("tlsGroups").is_none(), "RSA key exchange has no group");
    let hybrid = component(&document, "algorithm/x25519mlkem768");
    let hybrid = &hybrid["cryptoProperties"]["algorithmProperties"];
    assert_eq!((&hybrid["primitive"], &hybrid["nistQuantumSecurityLevel"]), (&json!("combiner"), &json!(3)));
    component(&document, "algorithm/ml-kem-768");
    component(&document, "protocol/gssapi@[fd00::5]:5433");
}

#[test]
fn certificates_are_listed_where_they_were_seen_and_named_as_hidden_where_not() {
    let document = document(&sample());
    let id = "1e15e0fbd3ce95bde5945633ae96add551341b11e5bae7bba12e98ad84a5beb4";
    let certificate = component(&document, &format!("certificate/{id}"));
    let of = &certificate["cryptoProperties"]["certificateProperties"];
    assert_eq!(of["subjectName"], "CN=db.example");
    assert_eq!(of["notValidBefore"], "2026-01-03T01:02:03Z");
    assert_eq!(of["notValidAfter"], "2026-12-12T01:02:03Z");
    assert_eq!(of["fingerprint"], json!({ "alg": "SHA-256", "content": id }));
    let key = component(&document, &format!("public-key/{id}"));
    assert_eq!(key["cryptoProperties"]["relatedCryptoMaterialProperties"]["size"], 2048);
    // One that was asked for.
    let of_probe = &sample().probes[0].certificates[0];
    component(&document, &format!("certificate/{}", of_probe.sha256.as_ref().unwrap()));
    assert_eq!(document["compositions"], json!(null));
    let passive = self::document(&Observation { probes: Vec::new(), ..sample() });
    let hidden = json!([{ "aggregate": "incomplete", "dependencies": ["protocol/tls1.3@10.0.0.5:5432"] }]);
    assert_eq!(passive["compositions"], hidden);
}

#[test]
fn servers_without_encryption_are_listed() {
    let mut observation = sample();
    let document = document(&observation);
    let services = list(&document, "services");
    assert_eq!(services.len(), 3);
    let mysql = services.iter().find(|service| service["name"] == "10.0.0.6:3306").expect("a service");
    assert_eq!(mysql["tags"], json!(["not-encrypted"]));
    assert_eq!(mysql["endpoints"], json!(["tcp://10.0.0.6:3306"]));
    assert_eq!(property(mysql, "connections-without-encryption"), "9");
    assert_eq!(property(mysql, "connections-refused-tls"), "9");
    assert_eq!(property(mysql, "connections-without-encryption-share"), "0.1837");
    assert_eq!(property(mysql, "plaintext-login:mysql_clear_password:10.0.0.9"), "9");
    assert!(
        property(mysql, "finding:password-in-clear")
            .as_str()
            .expect("text")
            .starts_with("10.0.0.9: 9 logins")
    );
    // A server of which nothing is encrypted.
    for encryption in observation.pairs.iter_mut().flat_map(|pair| &mut pair.encryption) {
        encryption.kind = EncryptionKind::None;
    }
    let document = self::document(&observation);
    assert_eq!(list(&document, "components").len(), 0);
    assert_eq!(list(&document, "services").len(), 3);
    Schema::new().assert_kept(&document);
}

#[test]
fn the_same_observation_gives_the_same_bytes() {
    assert_eq!(cyclonedx(&sample()).unwrap(), cyclonedx(&sample()).unwrap());
    let document = document(&sample());
    assert_eq!(document["metadata"]["timestamp"], "2026-11-30T12:01:00Z", "the end of the capture");
    let later = Observation { began_at: Some("2026-12-01T12:00:00Z".to_owned()), ..sample() };
    assert_ne!(self::document(&later)["serialNumber"], document["serialNumber"]);
}

#[test]
fn the_inventory_keeps_to_the_schema_whatever_peers_send() {
    let schema = Schema::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let any = proptest::collection::vec(crate::hostile::text(), 1..6);
    let kept = runner.run(&any, |texts| {
        schema.assert_kept(&document(&with_text(&texts)));
        Ok(())
    });
    kept.expect("every document keeps to the schema");
}
