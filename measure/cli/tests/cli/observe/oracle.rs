//! The same packets, observed live, from a capture of tcpdump, and read by tshark.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ciphertoll_model::Engine;
use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{self, Group, ResumptionMethod, TlsParameters, TlsVersion};
use ciphertoll_testing::{missing, not_for_all};
use serde_json::Value;

use super::known::lab;
use super::lab::{Lab, Start};
use crate::support::{MOMENT, ciphertoll, text, until_within};

const CONNECTS: usize = 3;
/// In immediate mode, each packet takes the room of the longest one.
const ROOM_KIB: &str = "65536";
/// Reads of the file until it must be complete.
const MOST_TRIES: usize = 100;

/// How one connection was encrypted: version, suite, group, and whether it was resumed.
type Encryption = (String, String, Option<String>, bool);

/// Writes the packets of a port on the loopback interface to a file.
struct Tcpdump(Child);

impl Tcpdump {
    fn start(file: &Path, port: u16) -> Option<Self> {
        let mut command = Command::new("tcpdump");
        command.args([
            "-i",
            "lo",
            "-s",
            "0",
            "-U",
            "--immediate-mode",
            "-B",
            ROOM_KIB,
            "-Z",
            "root",
            "-w",
            text(file),
        ]);
        command.args(["tcp", "port", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            missing("tcpdump is not installed");
            return None;
        };
        let said = BufReader::new(child.stderr.take().expect("it has an output")).lines();
        let listens = said.map_while(Result::ok).any(|line| line.contains("listening on"));
        assert!(listens, "tcpdump does not listen");
        Some(Self(child))
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        // It has ended if it failed.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_capture_of_the_same_packets_says_the_same_and_so_does_tshark() {
    for (engine, server, path, version) in [
        (Engine::MariaDb, "mariadb", "tls1.3-p256", TlsVersion::Tls13),
        (Engine::MariaDb, "mariadb", "tls1.2-rsa2048", TlsVersion::Tls12),
        (Engine::Postgres, "postgres", "tls1.3-p256", TlsVersion::Tls13),
        (Engine::Postgres, "postgres", "tls1.2-p256", TlsVersion::Tls12),
    ] {
        let Some(lab) = lab(engine, server, path) else { return };
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("trace.pcap");
        let Some(tcpdump) = Tcpdump::start(&file, lab.address.port()) else { return };
        let observer = lab.observe();
        traffic(&lab, version);
        let live = without_times(&observer.end());
        let port = format!("{}={}", lab.address.port(), lab.protocol());
        // tcpdump may write later than the packets pass.
        let mut tries = 0;
        until_within(MOMENT, "the same connections in the file", || {
            let seen = from_file(&file, &port);
            tries += 1;
            assert!(tries < MOST_TRIES || seen == live, "live: {live:#}, from the file: {seen:#}");
            (seen == live).then_some(())
        });
        drop(tcpdump);
        if std::env::var_os("CIPHERTOLL_TEST_FULL").is_none() {
            not_for_all("tshark is compared by make test-full");
            continue;
        }
        let decode = if engine == Engine::Postgres { "pgsql" } else { "mysql" };
        let Some(known) = Tshark::read(&file, lab.address.port(), decode) else { return };
        let by_tshark = count(known.connections.into_values());
        let seen = count(seen_encryptions(&live));
        assert!(!seen.is_empty() && seen == by_tshark, "{server} {path}: {live:#}, tshark: {by_tshark:?}");
        for kind in live["encryption"].as_array().expect("a list") {
            let subject = kind["certificate"]["subject"].as_str();
            let name =
                subject.and_then(|subject| subject.split(", ").find_map(|part| part.strip_prefix("CN=")));
            let is_known = name.is_none_or(|name| known.names.iter().any(|known| known == name));
            assert!(is_known, "{name:?}: {:?}", known.names);
        }
    }
}

/// Full and resumed handshakes, and those with other groups.
fn traffic(lab: &Lab, version: TlsVersion) {
    for group in [None, Some(Group::P256), Some(Group::P384)] {
        let parameters = TlsParameters { group, ..TlsParameters::new(version) };
        let settings = tls::Settings {
            resumption: tls::Resumption::WithinContext(ResumptionMethod::Any),
            ..lab.settings(parameters)
        };
        let dialer = lab.dialer(Start::Tls, lab.password(), Some(&settings));
        for _ in 0..CONNECTS {
            let Ok(mut client) = Client::dial(&dialer) else { continue };
            client.query("SELECT 1").expect("an answer");
            client.close().expect("a goodbye");
        }
    }
}

/// The only pair, without what the clock says; without bytes, since a server may end its last session later; and without
/// processes, which a capture does not have.
fn without_times(seen: &Value) -> Value {
    let mut pair = seen["pairs"][0].clone();
    let fields = pair.as_object_mut().expect("a pair");
    for name in ["bytes", "connects_per_s", "round_trip_ms", "connect_ms", "phases", "processes"] {
        fields.remove(name);
    }
    pair
}

fn from_file(file: &Path, port: &str) -> Value {
    let mut command = ciphertoll(&["observe", "--pcap", text(file), "--format", "json", "--port", port]);
    let output = command.current_dir(file.parent().expect("a directory")).output();
    let output = output.expect("the program starts");
    match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(seen) if seen["pairs"][0].is_object() => without_times(&seen),
        // There is no packet in it so far.
        _ => Value::Null,
    }
}

fn seen_encryptions(pair: &Value) -> impl Iterator<Item = Encryption> {
    // Where the server refused all groups, nothing was selected.
    let kinds = pair["encryption"].as_array().expect("a list").iter().filter(|kind| kind["kind"] == "tls");
    let one = |kind: &Value| {
        let text = |name: &str| kind[name].as_str().map(ToOwned::to_owned);
        let of = |is_resumed| {
            (
                text("version").unwrap_or_default(),
                text("suite").unwrap_or_default(),
                text("group"),
                is_resumed,
            )
        };
        let number = |name: &str| usize::try_from(kind[name].as_u64().expect("a number")).expect("few");
        let (all, resumed) = (number("connections"), number("resumed"));
        std::iter::repeat_n(of(true), resumed).chain(std::iter::repeat_n(of(false), all - resumed))
    };
    kinds.flat_map(one).collect::<Vec<_>>().into_iter()
}

fn count(all: impl Iterator<Item = Encryption>) -> BTreeMap<Encryption, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

/// What tshark reads in a file.
struct Tshark {
    /// By its number of the TCP stream.
    connections: BTreeMap<String, Encryption>,
    /// All names in certificates.
    names: Vec<String>,
}

impl Tshark {
    fn read(file: &Path, port: u16, protocol: &str) -> Option<Self> {
        let fields = |filter: &str, fields: &[&str]| {
            let mut command = Command::new("tshark");
            command.args(["-r", text(file), "-d", &format!("tcp.port=={port},{protocol}"), "-Y", filter]);
            command.args(["-T", "fields", "-E", "separator=;", "-e", "tcp.stream"]);
            command.args(fields.iter().flat_map(|field| ["-e", *field])).stderr(Stdio::null());
            let Ok(output) = command.output() else {
                missing("tshark is not installed");
                return None;
            };
            assert!(output.status.success(), "tshark {filter}: {:?}", output.status);
            let printed = String::from_utf8(output.stdout).expect("text");
            let row = |line: &str| line.split(';').map(ToOwned::to_owned).collect::<Vec<_>>();
            Some(printed.lines().map(row).collect::<Vec<_>>())
        };
        let hellos = fields(
            "tls.handshake.type == 2",
            &[
                "tls.handshake.extensions.supported_version",
                "tls.handshake.ciphersuite",
                "tls.handshake.extensions_key_share_group",
                "tls.handshake.extension.type",
            ],
        )?;
        let certificates =
            fields("tls.handshake.type == 11", &["x509sat.uTF8String", "x509sat.printableString"])?;
        let exchanges = fields("tls.handshake.type == 12", &["tls.handshake.server_named_curve"])?;
        let find = |rows: &[Vec<String>], stream: &str| rows.iter().find(|row| row[0] == stream).cloned();
        let mut connections = BTreeMap::new();
        for hello in hellos {
            let is_tls13 = hello[1].contains("0x0304");
            let stream = hello[0].clone();
            let group = if is_tls13 {
                Some(hello[3].clone()).filter(|group| !group.is_empty())
            } else {
                find(&exchanges, &stream).map(|exchange| exchange[1].clone())
            };
            let is_resumed = if is_tls13 {
                hello[4].split(',').any(|extension| extension == "41")
            } else {
                find(&certificates, &stream).is_none()
            };
            let version = if is_tls13 { "tls1.3" } else { "tls1.2" }.to_owned();
            // After a HelloRetryRequest, the second one counts.
            connections
                .insert(stream, (version, suite(&hello[2]), group.map(|group| label(&group)), is_resumed));
        }
        let names = certificates.iter().flat_map(|row| row[1..].iter().flat_map(|names| names.split(',')));
        Some(Self { names: names.map(ToOwned::to_owned).collect(), connections })
    }
}

fn suite(number: &str) -> String {
    let name = match number {
        "0x1301" => "TLS_AES_128_GCM_SHA256",
        "0x1302" => "TLS_AES_256_GCM_SHA384",
        "0x1303" => "TLS_CHACHA20_POLY1305_SHA256",
        "0xc02b" => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "0xc02c" => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "0xc02f" => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "0xc030" => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        other => other,
    };
    name.to_owned()
}

fn label(group: &str) -> String {
    let number = group.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let name = match number.or_else(|| group.parse().ok()) {
        Some(23) => "p256",
        Some(24) => "p384",
        Some(29) => "x25519",
        Some(4588) => "x25519mlkem768",
        _ => group,
    };
    name.to_owned()
}
