//! Every level of TLS on real servers: what was asked for is what was seen on every connection, or the reason why not.

use ciphertoll_model::{Engine, ServerLevel};
use serde_json::Value;

use crate::support::{best, ciphertoll, items, medians_ns, one_document, recorded_events, text};
use crate::url::{engines_here, level_here, real_server};

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
    ("tls1.3-p256+eager", false, Some(1), Some("accepts no data right after a request")),
    ("tls1.3-rsa2048+resume+mtls+eager", true, None, Some("PostgreSQL")),
];

/// What cannot be had here, and a part of the reason.
const IMPOSSIBLE: [(&str, &str); 5] = [
    ("tls1.2-p256+suite=AES256-SHA", "needs an RSA certificate"),
    ("tls1.3-p256+group=x25519mlkem768", "x25519mlkem768"),
    ("tls1.2-rsa1024+client=rustls", "less than 2048 bits"),
    ("tls1.3-p256+resume=id", "no session IDs"),
    ("tls1.3-p256+resume+client=rustls", "ctx=shared"),
];

fn field<'a>(leg: &'a Value, key: &str) -> &'a str {
    leg[key].as_str().unwrap_or_default()
}

#[test]
fn what_was_asked_for_is_what_was_seen() {
    for engine in engines_here() {
        let place = tempfile::tempdir().expect("a directory");
        let levels = LEVELS.map(|(level, _)| level).into_iter();
        let levels = levels.chain(MORE_LEVELS.map(|(level, ..)| level));
        let levels = levels.chain(IMPOSSIBLE.map(|(level, _)| level));
        let paths = ["plain"].into_iter().chain(levels).collect::<Vec<_>>().join(",");
        let output = ciphertoll(&[
            "run",
            "--server",
            &level_here(engine).to_string(),
            "--path",
            &paths,
            "--size",
            "smoke",
        ])
        .args(["--blocks", "1", "--trial-time", "500ms", "--json", "-q", "--run-dir", text(place.path())])
        .output()
        .expect("the program starts");
        let document = one_document(&String::from_utf8_lossy(&output.stdout));
        let cells = items(&document, "cells");
        // MySQL's own choice of suites has this one not.
        let (refused, done): (Vec<_>, Vec<_>) = LEVELS
            .into_iter()
            .partition(|(level, _)| engine == Engine::MySql && level.contains("ECDSA-CHACHA20"));
        for (level, seen) in done {
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
            let reason = match engine {
                Engine::Postgres => not_on_postgres,
                Engine::MySql if level < "tls1.2" => Some("8.0.28 removed it"),
                _ => None,
            };
            if let Some(reason) = reason {
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
        let refused = refused.into_iter().map(|(level, _)| (level, "takes no ChaCha20-Poly1305 in TLS 1.2"));
        for (level, reason) in impossible.into_iter().chain(refused) {
            let said = skipped.iter().find(|skip| field(skip, "id").split('/').nth(1) == Some(level));
            let said = said.unwrap_or_else(|| panic!("{engine}: {level} is not skipped: {skipped:?}"));
            assert!(field(said, "reason").contains(reason), "{engine}: {said}");
        }
    }
}

/// 28.183 ÷ 2701.75, and 8951.67 ÷ 33910.31, in ten thousandths.
const PUBLISHED: [(&str, f64); 2] = [("connect", 104.0), ("oltp-read-only", 2640.0)];

/// A study that was repeated: what is said, the document, and the events.
struct Repeated {
    said: String,
    document: Value,
    events: Vec<Value>,
}

/// Repeats the study with these additional arguments.
fn repeated(study: &str, arguments: &[&str]) -> Repeated {
    let place = tempfile::tempdir().expect("a directory");
    let fixed = ["run", study, "--size", "smoke", "-q", "--details", "--run-dir", text(place.path())];
    let output = ciphertoll(&[&fixed, arguments].concat()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let output = ciphertoll(&["report", "--run-dir", text(place.path()), "--format", "json"]).output();
    let output = output.expect("the program starts");
    let document = one_document(&String::from_utf8_lossy(&output.stdout));
    Repeated { said, document, events: recorded_events(place.path()) }
}

/// The published figures of the cells of the server `name`.
fn published(document: &Value, name: &str) -> Vec<(String, f64)> {
    let cells = items(document, "cells").iter().filter(|cell| field(cell, "server") == name);
    let published = cells.filter_map(|cell| {
        let value = cell["published"]["rate_per_s"]["value"].as_f64()?;
        Some((field(cell, "workload").to_owned(), (value * 1e4).round()))
    });
    published.collect()
}

#[test]
fn a_published_study_ends_with_both_columns() {
    if !real_server(Engine::MariaDb) {
        return;
    }
    let Repeated { said, document, .. } = repeated("mysql-tls-2013", &[]);
    for part in [
        "Compared with the published study: mysql-tls-2013",
        "95.9 ×",
        "MySQL Performance Blog",
        "Deviation: ",
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let expected = PUBLISHED.map(|(workload, ratio)| (workload.to_owned(), ratio));
    for name in ["mysql-8.0", "mariadb"] {
        let level: ServerLevel = name.parse().expect("a level");
        if ciphertoll_lab::find(&level).is_ok() {
            assert_eq!(published(&document, name), expected, "{name}");
        } else {
            let skipped = items(&document, "skipped");
            let of_server = skipped.iter().find(|skip| field(skip, "id").starts_with(name));
            let reason = of_server.map(|skip| field(skip, "reason")).unwrap_or_default();
            assert!(reason.contains("ciphertoll servers fetch mysql-8.0"), "{name}: {skipped:?}");
        }
    }
}

#[test]
fn the_study_of_mysql_is_repeated_on_mysql() {
    if !real_server(Engine::MySql) {
        return;
    }
    let level = level_here(Engine::MySql);
    let Repeated { said, document, .. } = repeated("mysql-tls-2013", &["--server", &level.to_string()]);
    assert!(said.contains("MySQL 8") && said.contains("95.9 ×"), "{said}");
    let expected = PUBLISHED.map(|(workload, ratio)| (workload.to_owned(), ratio));
    assert_eq!(published(&document, &level.short_name()), expected);
}

/// 44.648 ms.
const WAN_RTT_NS: f64 = 44.648e6;

#[test]
fn a_study_of_long_links_finds_the_loss_that_round_trips_make() {
    if !real_server(Engine::MariaDb) || !crate::support::real_link() {
        return;
    }
    let Repeated { said, document, events } = repeated("mysql-wan-2013", &["--server", "mariadb"]);
    let unwrapped = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Connects lost on mariadb over 44.648ms with rsa1024: ",
        " %, no interval (2 blocks), here, 35.2–36.3 % published",
        "Not compared with the published costs: no interval (2 blocks).",
        "Explanation: a plain connect",
    ] {
        assert!(unwrapped.contains(part), "{part} is missing: {said}");
    }
    let cells = items(&document, "cells").iter();
    let beside = cells.filter(|cell| cell["published"]["latency_ns_mean"]["of"] == "mysql-5.6.13");
    let beside: Vec<&Value> = beside.collect();
    let [cell] = beside[..] else { panic!("one cell has published figures: {document}") };
    // 100 ÷ (100 − 36.13), and the two round trips in six that make most of it.
    let published = cell["published"]["latency_ns_mean"]["value"].as_f64().expect("a ratio");
    assert!((published - 1.5657).abs() < 1e-4, "{published}");
    // At least the greater part of that. On a busy machine flights are cut into more packets, which takes round trips.
    let [tls, plain] = [field(cell, "path"), "plain"].map(|path| best(&medians_ns(&events, path)));
    assert!(
        tls > 1.4 * plain && tls < plain + 5.9 * WAN_RTT_NS,
        "{tls} ns by TLS, {plain} ns without: {said}"
    );
}
