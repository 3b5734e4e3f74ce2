//! `ciphertoll observe`: what is known of the traffic is what is printed.

mod asked;
mod callers;
mod clients;
mod confined;
mod costs;
mod flood;
mod known;
mod lab;
mod names;
mod oracle;
mod times;

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
    assert_eq!(pair.get("users"), None, "{name}: nobody asked for names: {pair:#}");
    assert!(pair["connect_ms"]["median"].as_f64().is_some_and(|ms| ms > 0.0), "{name}: {pair:#}");
}

/// The only pair that is seen while the client connects so many times.
fn observed(case: &Case) -> Value {
    let place = tempfile::tempdir().expect("a directory");
    let (program, client, port) = (env!("CARGO_BIN_EXE_ciphertoll"), case.client, case.port);
    let script = format!(
        "cd {} && mkfifo ready && \
         {{ {program} observe --interface lo --for 60s --port {port} --format json -o seen.json >screen 2>ready & }} && \
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

/// A capture of a client that only connects, ten times.
fn capture() -> Vec<u8> {
    const RAW_IP: u32 = 101;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let mut file = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, RAW_IP].map(u32::to_le_bytes).concat();
    // The version is two numbers of 16 bits.
    file[4..8].copy_from_slice(&[2, 0, 4, 0]);
    for client in 0..10_u16 {
        let ports = [40_000 + client, 5432];
        for (step, (from, flags)) in [(0, SYN), (1, SYN | ACK), (0, ACK)].into_iter().enumerate() {
            let addresses = [[10, 0, 0, 7], [10, 0, 0, 5]];
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
            packet.extend([addresses[from], addresses[1 - from]].concat());
            packet.extend([ports[from], ports[1 - from]].map(u16::to_be_bytes).concat());
            packet.extend([u32::from(step == 2), u32::from(step > 0)].map(u32::to_be_bytes).concat());
            packet.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            let micros = u32::from(client) * 1_000 + step as u32;
            let length = packet.len() as u32;
            file.extend([1_796_000_000, micros, length, length].map(u32::to_le_bytes).concat());
            file.extend(packet);
        }
    }
    file
}

#[test]
fn a_file_gets_the_document_and_the_terminal_the_first_screen() {
    let place = tempfile::tempdir().expect("a directory");
    let (trace, file) = (place.path().join("trace.pcap"), place.path().join("seen"));
    fs::write(&trace, capture()).expect("written");
    let screen = answer(&["observe", "--pcap", text(&trace)], place.path());
    assert!(screen.stdout.contains("10 new connections"), "{}{}", screen.stdout, screen.stderr);
    fs::write(&file, "long ".repeat(100_000)).expect("written");
    for (format, start) in [
        ("terminal", text(&trace)),
        ("html", "<!DOCTYPE html>"),
        ("markdown", "### "),
        ("csv", "client,server,"),
        ("cyclonedx", "{"),
        ("json", "{"),
    ] {
        let alone = answer(&["observe", "--pcap", text(&trace), "--format", format], place.path());
        assert_eq!((alone.code, alone.stderr.lines().count()), (Some(0), 1), "{format}: {}", alone.stderr);
        assert!(alone.stderr.starts_with("recorded in ciphertoll-runs/"), "{format}: {}", alone.stderr);
        let both =
            answer(&["observe", "--pcap", text(&trace), "--format", format, "-o", text(&file)], place.path());
        assert_eq!((both.code, &both.stdout), (Some(0), &screen.stdout), "{format}: {}", both.stderr);
        let written = fs::read_to_string(&file).expect("a document");
        assert!(written.starts_with(start), "{format}: {written}");
        assert_eq!(written, alone.stdout, "{format}: the old content is gone");
        if start == "{" {
            let document: Value = serde_json::from_str(&written).expect("JSON");
            assert!(document.to_string().contains("10.0.0.5:5432"), "{document:#}");
        }
    }
    let refused = answer(&["observe", "--pcap", text(&trace), "-o", "/nowhere/seen"], place.path());
    assert_eq!(refused.code, Some(9), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot write /nowhere/seen"), "{}", refused.stderr);
}

#[test]
fn a_file_that_is_no_capture_leaves_the_output_as_it_was() {
    let place = tempfile::tempdir().expect("a directory");
    let (trace, file) = (place.path().join("notes.txt"), place.path().join("seen"));
    fs::write(&trace, "no capture").expect("written");
    fs::write(&file, "before").expect("written");
    let refused = answer(&["observe", "--pcap", text(&trace), "-o", text(&file)], place.path());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).expect("a file"), "before");
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
