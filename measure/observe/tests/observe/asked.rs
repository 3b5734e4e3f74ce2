//! What is said of names, and of what servers accept.

use ciphertoll_observe::{FindingKind, Observation, Question, cyclonedx, first_screen};
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
    assert_eq!(question(false, true), json!({ "names_of": [], "probe": [[server, "postgres"]] }));
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
