//! What is said of names, and of what servers accept.

use ciphertoll_observe::{Certificate, FindingKind, Observation, Question, cyclonedx, first_screen};
use serde_json::{Value, json};

use crate::exchange::{WHOLE, encrypted, recording};

const ANY_CLIENT: &str = "any client";

/// A connection by TLS 1.3, without a post-quantum group.
fn observed() -> Observation {
    encrypted(recording!("tls13"), WHOLE).observed(WHOLE, None)
}

fn probe(server: &str) -> Value {
    json!({
        "server": server,
        "versions": [{ "version": "tls1.3", "suite": "TLS_AES_256_GCM_SHA384" }, { "version": "tls1.0", "suite": "0x0035" }],
        "groups": ["x25519mlkem768", "p256"],
        "weak_suite": "TLS_RSA_WITH_NULL_SHA",
        "certificates": [{
            "subject": "CN=db.example",
            "issuer": "CN=ca",
            "key": "rsa1024",
            "not_after": "Dec  1 00:00:00 2026 GMT",
            "days_left": 1,
            "sha256": "ab".repeat(32),
        }],
    })
}

fn answered(answer: Value) -> Observation {
    let mut observation = observed();
    observation.add_answer(serde_json::from_value(answer).unwrap());
    observation
}

fn kinds(observation: &Observation, client: &str) -> Vec<FindingKind> {
    let of_client = observation.findings.iter().filter(|finding| finding.client == client);
    of_client.map(|finding| finding.kind).collect()
}

#[test]
fn only_what_was_asked_for_is_asked() {
    let question = |names, probe| serde_json::to_value(Question::about(&observed(), names, probe)).unwrap();
    let (client, server) = (&observed().pairs[0].client, &observed().pairs[0].server);
    let ip = server.rsplit_once(':').unwrap().0;
    assert_eq!(question(false, false), json!({ "names_of": [], "probe": [] }));
    assert_eq!(question(true, false), json!({ "names_of": [client, ip], "probe": [] }));
    assert_eq!(
        question(false, true),
        json!({ "names_of": [], "probe": [{ "server": server, "protocol": "postgres" }] })
    );
}

#[test]
fn a_server_name_belongs_to_a_server_that_was_seen() {
    let mut question = Question::about(&observed(), false, true);
    let server = observed().pairs[0].server.clone();
    assert!(question.set_server_name(server.parse().unwrap(), "db.example"));
    assert!(!question.set_server_name("10.9.9.9:5432".parse().unwrap(), "other.example"));
    let asked = &serde_json::to_value(&question).unwrap()["probe"];
    assert_eq!(*asked, json!([{ "server": server, "protocol": "postgres", "server_name": "db.example" }]));
}

/// A part of the answers is one, and what is missing is not refused.
#[test]
fn what_a_probe_does_not_know_is_not_refused() {
    let server = observed().pairs[0].server.clone();
    let mut part = probe(&server);
    part["groups"] = json!([]);
    part["unknown"] = json!(["weak_suites", "groups"]);
    part["unknown_because"] = json!("the server did not answer within 10 s");
    let observation = answered(json!({ "names": {}, "probes": [part] }));
    let screen = first_screen(&observation);
    assert!(screen.contains("upgrade the TLS libraries of both ends"), "{screen}");
    let line = format!(
        "{server}: the probe does not know all weak suites and groups: the server did not answer within 10 s"
    );
    assert!(screen.contains(&line), "{screen}");
    // What is known is said.
    assert!(kinds(&observation, ANY_CLIENT).contains(&FindingKind::ObsoleteVersion));
    let inventory = cyclonedx(&observation).unwrap();
    assert!(inventory.contains("ciphertoll:observe:probe-unknown"), "{inventory}");
}

/// The certificate is that of the capture, and has expired since.
#[test]
fn a_certificate_is_judged_once_and_as_of_the_probe() {
    let mut observation = encrypted(recording!("tls12"), WHOLE).observed(WHOLE, None);
    let pair = &mut observation.pairs[0];
    let certificate = pair.encryption[0].certificate.as_mut().unwrap();
    certificate.days_left = 5;
    let probed = Certificate { days_left: -400, ..certificate.clone() };
    let day = certificate.not_after.clone();
    let mut asked = probe(&pair.server);
    asked["certificates"] = json!([probed]);
    observation.add_answer(serde_json::from_value(json!({ "names": {}, "probes": [asked] })).unwrap());
    let expiries: Vec<_> = observation
        .findings
        .iter()
        .filter(|finding| finding.kind == FindingKind::CertificateExpires)
        .map(|finding| (finding.client.as_str(), finding.seen.clone()))
        .collect();
    let expected = format!("the server's certificate expired on {day}, as of the probe");
    assert_eq!(expiries, [(ANY_CLIENT, expected)]);
    let inventory: Value = serde_json::from_str(&cyclonedx(&observation).unwrap()).unwrap();
    let components = inventory["components"].as_array().unwrap().iter();
    let certificates = components.filter(|component| {
        component["bom-ref"].as_str().is_some_and(|reference| reference.starts_with("certificate/"))
    });
    assert_eq!(certificates.count(), 1, "{inventory:#}");
}

#[test]
fn what_a_server_accepts_is_a_finding_of_any_client() {
    let server = observed().pairs[0].server.clone();
    let observation = answered(json!({ "names": {}, "probes": [probe(&server)] }));
    let expected = [
        FindingKind::ObsoleteVersion,
        FindingKind::WeakSuite,
        FindingKind::WeakKey,
        FindingKind::CertificateExpires,
    ];
    assert_eq!(kinds(&observation, ANY_CLIENT), expected);
    let screen = first_screen(&observation);
    let line = format!("{ANY_CLIENT} → {server}: may connect with tls1.0: the server accepts it");
    assert!(screen.contains(&line), "{screen}");
    // The server has a hybrid group: the clients lack it.
    assert!(screen.contains("upgrade the clients' TLS library"), "{screen}");
    let old = json!({ "server": server, "versions": [], "groups": ["p256"], "certificates": [] });
    let screen = first_screen(&answered(json!({ "names": {}, "probes": [old] })));
    assert!(screen.contains("upgrade the TLS libraries of both ends"), "{screen}");
    let failed = json!({ "server": server, "error": "it sent no answer", "versions": [], "groups": [], "certificates": [] });
    let screen = first_screen(&answered(json!({ "names": {}, "probes": [failed] })));
    assert!(screen.contains("could not be probed: it sent no answer"), "{screen}");
}

#[test]
fn the_inventory_has_the_certificate_that_tls_1_3_hides() {
    let bom = |observation: &Observation| -> Value {
        serde_json::from_str(&cyclonedx(observation).unwrap()).unwrap()
    };
    let references = |bom: &Value| -> Vec<String> {
        let all = bom["components"].as_array().unwrap().iter();
        all.map(|component| component["bom-ref"].as_str().unwrap().to_owned()).collect()
    };
    let server = observed().pairs[0].server.clone();
    let (hidden, asked) =
        (bom(&observed()), bom(&answered(json!({ "names": {}, "probes": [probe(&server)] }))));
    let certificate = format!("certificate/{}", "ab".repeat(32));
    assert!(!references(&hidden).contains(&certificate));
    assert!(references(&asked).contains(&certificate), "{asked:#}");
    assert_eq!(hidden["compositions"][0]["aggregate"], "incomplete");
    assert_eq!(asked["compositions"], json!(null), "{asked:#}");
}

#[test]
fn names_stand_for_addresses_and_what_is_none_is_refused() {
    let pair = &observed().pairs[0];
    let (client, server) = (pair.client.clone(), pair.server.clone());
    let (ip, port) = server.rsplit_once(':').unwrap();
    let observation =
        answered(json!({ "names": { &client: "app.example", ip: "db.example" }, "probes": [] }));
    let screen = first_screen(&observation);
    assert!(screen.contains(&format!("app.example → db.example:{port} (postgres)")), "{screen}");
    assert!(!screen.contains(&client), "{screen}");
    // JSON keeps the addresses.
    assert_eq!((&observation.pairs[0].client, &observation.pairs[0].server), (&client, &server));
    let text = serde_json::to_string(&observation).unwrap();
    assert_eq!(Observation::from_json(&text).as_ref(), Ok(&observation));
    assert!(Observation::from_json(&text.replace("db.example", "db\\u001b[1m")).is_err());

    let wrong = answered(json!({ "names": { &client: "a b\u{1b}[1m" }, "probes": [probe("10.9.9.9:1")] }));
    assert_eq!((&wrong.pairs[0].client_name, wrong.probes.len()), (&None, 0));
}
