//! `ciphertoll observe`: what is known of the traffic is what is printed.

use std::fs;

use ciphertoll_model::Engine;
use nix::unistd::geteuid;
use serde_json::{Value, json};

use crate::support::{answer, ciphertoll, text};

const CONNECTIONS: u64 = 5;
const QUERIES: u64 = 3;

/// A server and a path, and what is to be seen.
struct Case {
    engine: Engine,
    path: &'static str,
    client: &'static str,
    port: &'static str,
    kind: &'static str,
    version: Option<&'static str>,
    group: Option<&'static str>,
    login: Option<&'static str>,
}

const PSQL: &str = "psql -X -q -A -t -c 'SELECT 1' -c 'SELECT 2' -c 'SELECT 3'";
const MARIADB: &str = "mariadb -e 'SELECT 1; SELECT 2; SELECT 3'";

const fn postgres(path: &'static str, version: Option<&'static str>) -> Case {
    let (kind, group, login) = match version {
        Some(_) => ("tls", Some("p256"), None),
        None => ("none", None, Some("scram-sha-256")),
    };
    let (client, port) = (PSQL, "${PGPORT}=postgres");
    Case { engine: Engine::Postgres, path, client, port, kind, version, group, login }
}

const fn mariadb(path: &'static str, version: Option<&'static str>) -> Case {
    let (kind, group, login) = match version {
        Some(_) => ("tls", Some("x25519"), None),
        None => ("none", None, Some("mysql_native_password")),
    };
    // The first bytes say which protocol it is.
    let (client, port) = (MARIADB, "${MYSQL_TCP_PORT}");
    Case { engine: Engine::MariaDb, path, client, port, kind, version, group, login }
}

#[test]
fn what_real_clients_do_is_what_is_seen() {
    if !geteuid().is_root() {
        return ciphertoll_testing::not_for_all("only root may capture packets");
    }
    for case in [
        postgres("plain", None),
        postgres("tls1.3-p256", Some("tls1.3")),
        postgres("tls1.2-rsa2048", Some("tls1.2")),
        mariadb("plain", None),
        mariadb("tls1.3-p256", Some("tls1.3")),
        mariadb("tls1.2-p256", Some("tls1.2")),
    ] {
        if crate::url::real_server(case.engine) {
            check(&case);
        }
    }
}

fn check(case: &Case) {
    let pair = observed(case);
    let name = case.path;
    assert_eq!(pair["connections"]["begun"], CONNECTIONS, "{name}: {pair:#}");
    assert_eq!(pair["connections"]["unread"], 0, "{name}: {pair:#}");
    let share = json!([{ "queries": QUERIES, "connections": CONNECTIONS }]);
    assert_eq!(pair["queries"]["distribution"], share, "{name}: {pair:#}");
    let [encryption] = &pair["encryption"].as_array().expect("a list")[..] else {
        panic!("{name}: {pair:#}")
    };
    assert_eq!(encryption["kind"], case.kind, "{name}: {pair:#}");
    assert_eq!(encryption["connections"], CONNECTIONS, "{name}: {pair:#}");
    assert_eq!(encryption.get("version").and_then(Value::as_str), case.version, "{name}: {pair:#}");
    assert_eq!(encryption.get("group").and_then(Value::as_str), case.group, "{name}: {pair:#}");
    assert_eq!(encryption["resumed"], 0, "{name}: {pair:#}");
    let login = case.login.map(|method| json!([{ "method": method, "connections": CONNECTIONS }]));
    assert_eq!(pair["logins"], login.unwrap_or_else(|| json!([])), "{name}: {pair:#}");
    assert_eq!(pair["failures"], json!([]), "{name}: {pair:#}");
    assert!(pair["connect_ms"]["median"].as_f64().is_some_and(|ms| ms > 0.0), "{name}: {pair:#}");
}

/// The only pair that is seen while the client connects so many times.
fn observed(case: &Case) -> Value {
    let place = tempfile::tempdir().expect("a directory");
    let (program, client, port) = (env!("CARGO_BIN_EXE_ciphertoll"), case.client, case.port);
    let script = format!(
        "cd {} && mkfifo ready && \
         {{ {program} observe --interface lo --for 60s --port {port} --format json >seen.json 2>ready & }} && \
         observer=$! && head -n 1 ready && \
         for i in $(seq {CONNECTIONS}); do {client} >/dev/null || exit 3; done; \
         kill -INT $observer; wait $observer",
        text(place.path()),
    );
    let server = case.engine.label();
    let mut command =
        ciphertoll(&["lab", "--server", server, "--path", case.path, "-q", "--", "sh", "-c", &script]);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = fs::read_to_string(place.path().join("seen.json")).expect("a document");
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    let [pair] = &seen["pairs"].as_array().expect("a list")[..] else { panic!("{seen:#}") };
    pair.clone()
}

#[test]
fn what_is_no_capture_is_refused_in_one_line() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("notes.txt");
    fs::write(&file, "these are no packets, but long enough to be some").expect("written");
    for (name, reason) in
        [(text(&file), "is not a capture"), ("/nowhere/trace.pcap", "cannot read the capture")]
    {
        let refused = answer(&["observe", "--pcap", name], place.path());
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(reason) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    }
    let both = answer(&["observe", "--pcap", "-", "--interface", "lo"], place.path());
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let port = answer(&["observe", "--pcap", "-", "--port", "5432=oracle"], place.path());
    assert!(port.stderr.contains("postgres, mysql or mongodb"), "{}", port.stderr);
}
