//! Every level of TLS on real servers: what was asked for is what was seen on every connection, or the reason why not.

use serde_json::Value;

use crate::support::{alone, ciphertoll, items, one_document, text};

/// Each with what must be seen: version, key, suite, group.
const LEVELS: [(&str, [&str; 4]); 12] = [
    ("tls1.3-p256", ["tls1.3", "p256", "", ""]),
    ("tls1.3-p384", ["tls1.3", "p384", "", ""]),
    ("tls1.3-ed25519", ["tls1.3", "ed25519", "", ""]),
    ("tls1.3-rsa1024", ["tls1.3", "rsa1024", "", ""]),
    ("tls1.3-rsa3072", ["tls1.3", "rsa3072", "", ""]),
    ("tls1.2-rsa4096", ["tls1.2", "rsa4096", "", ""]),
    ("tls1.2-rsa1024", ["tls1.2", "rsa1024", "", ""]),
    ("tls1.3-p256+group=p256", ["tls1.3", "p256", "", "p256"]),
    ("tls1.3-p256+suite=TLS_AES_128_GCM_SHA256", ["tls1.3", "p256", "TLS_AES_128_GCM_SHA256", ""]),
    (
        "tls1.2-rsa2048+suite=DHE-RSA-AES256-SHA",
        ["tls1.2", "rsa2048", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA", ""],
    ),
    ("tls1.2-rsa2048+suite=AES256-SHA", ["tls1.2", "rsa2048", "TLS_RSA_WITH_AES_256_CBC_SHA", ""]),
    (
        "tls1.2-p256+suite=ECDHE-ECDSA-CHACHA20-POLY1305+client=rustls",
        ["tls1.2", "p256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", ""],
    ),
];

/// Each with what else must be seen: whether it resumed, and how many certificates were sent. Where `PostgreSQL` 15 cannot
/// do it, a part of the reason.
const MORE_LEVELS: [(&str, bool, Option<u64>, Option<&str>); 10] = [
    ("tls1.0-rsa2048", false, Some(1), None),
    ("tls1.1-p256", false, Some(1), None),
    ("tls1.3-p256+mtls", false, Some(1), None),
    ("tls1.3-p384+chain=3", false, Some(3), None),
    ("tls1.2-p256+mtls+chain=2", false, Some(2), None),
    ("tls1.2-p256+resume", true, None, Some("never resumes")),
    ("tls1.2-p256+resume=id", true, None, Some("never resumes")),
    ("tls1.3-p256+resume", true, None, Some("never resumes")),
    ("tls1.3-p256+eager", false, Some(1), Some("takes nothing behind a request")),
    ("tls1.3-rsa2048+resume+mtls+eager", true, None, Some("PostgreSQL")),
];

/// What cannot be had here, and a part of the reason.
const IMPOSSIBLE: [(&str, &str); 5] = [
    ("tls1.2-p256+suite=AES256-SHA", "goes with RSA certificates"),
    ("tls1.3-p256+group=x25519mlkem768", "x25519mlkem768"),
    ("tls1.2-rsa1024+client=rustls", "less than 2048 bits"),
    ("tls1.3-p256+resume=id", "no session ids"),
    ("tls1.3-p256+resume+client=rustls", "ctx=shared"),
];

fn field<'a>(leg: &'a Value, key: &str) -> &'a str {
    leg[key].as_str().unwrap_or_default()
}

#[test]
fn what_was_asked_for_is_what_was_seen() {
    let _machine = alone();
    for engine in crate::url::engines_here() {
        let place = tempfile::tempdir().expect("a directory");
        let levels = LEVELS.map(|(level, _)| level).into_iter();
        let levels = levels.chain(MORE_LEVELS.map(|(level, ..)| level));
        let levels = levels.chain(IMPOSSIBLE.map(|(level, _)| level));
        let paths = ["plain"].into_iter().chain(levels).collect::<Vec<_>>().join(",");
        let output = ciphertoll(&["run", "--server", engine.label(), "--path", &paths, "--size", "smoke"])
            .args(["--trial-time", "100ms", "--json", "-q", "--run-dir", text(place.path())])
            .output()
            .expect("the program starts");
        let document = one_document(&String::from_utf8_lossy(&output.stdout));
        let cells = items(&document, "cells");
        for (level, seen) in LEVELS {
            let cell = cells.iter().find(|cell| cell["path"] == level);
            let cell = cell.unwrap_or_else(|| panic!("{engine}: {level} is missing: {document:#}"));
            assert!(cell["blocks_used"].as_u64() > Some(0), "{engine}: {cell:#}");
            for leg in items(cell, "legs") {
                let leg = leg.get("leg").unwrap_or(leg);
                let found = ["tls_version", "key", "suite", "group"].map(|key| field(leg, key));
                let as_asked =
                    seen.iter().zip(found).all(|(asked, found)| asked.is_empty() || *asked == found);
                assert!(as_asked, "{engine}: {level}: {leg}");
            }
            assert!(!items(cell, "legs").is_empty(), "{engine}: {level}: nothing was seen");
        }
        let skipped = items(&document, "skipped");
        let mut impossible = IMPOSSIBLE.to_vec();
        for (level, resumed, chain, not_on_postgres) in MORE_LEVELS {
            if let (Some(reason), ciphertoll_model::Engine::Postgres) = (not_on_postgres, engine) {
                impossible.push((level, reason));
                continue;
            }
            let cell = cells.iter().find(|cell| cell["path"] == level);
            let cell = cell.unwrap_or_else(|| panic!("{engine}: {level} is missing: {skipped:#?}"));
            assert!(!items(cell, "legs").is_empty(), "{engine}: {level}: nothing was seen");
            for leg in items(cell, "legs") {
                let leg = leg.get("leg").unwrap_or(leg);
                assert_eq!(leg["resumed"].as_bool(), Some(resumed), "{engine}: {level}: {leg}");
                assert_eq!(leg["chain"].as_u64(), chain, "{engine}: {level}: {leg}");
                assert_eq!(field(leg, "tls_version"), &level[..6], "{engine}: {level}: {leg}");
            }
        }
        for (level, reason) in impossible {
            let said = skipped.iter().find(|skip| field(skip, "id").split('/').nth(1) == Some(level));
            let said = said.unwrap_or_else(|| panic!("{engine}: {level} is not skipped: {skipped:?}"));
            assert!(field(said, "reason").contains(reason), "{engine}: {said}");
        }
    }
}

#[test]
fn a_published_study_ends_with_both_columns() {
    let _machine = alone();
    let mariadb = ciphertoll_model::Engine::MariaDb;
    if !crate::url::engines_here().any(|engine| engine == mariadb) {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let output =
        ciphertoll(&["run", "mysql-tls-2013", "--size", "smoke", "-q", "--run-dir", text(place.path())])
            .output()
            .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["Published and measured: mysql-tls-2013", "0.0104 ×", "MySQL Performance Blog", "Deviation: "]
    {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let output = ciphertoll(&["report", "--run-dir", text(place.path()), "--format", "json"]).output();
    let document = one_document(&String::from_utf8_lossy(&output.expect("the program starts").stdout));
    let published = items(&document, "cells").iter().filter_map(|cell| {
        let value = cell["published"]["rate_per_s"]["value"].as_f64()?;
        Some((field(cell, "workload").to_owned(), (value * 1e4).round()))
    });
    // 28.183 ÷ 2701.75, and 8951.67 ÷ 33910.31.
    assert_eq!(
        published.collect::<Vec<_>>(),
        [("connect".to_owned(), 104.0), ("oltp-read-only".to_owned(), 2640.0)]
    );
}
