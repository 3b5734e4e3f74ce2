//! Names of users and databases: in no output and no record, unless `--names` asks for them.

use std::fs;
use std::path::Path;

use ciphertoll_model::Engine;
use ciphertoll_net::tls::TlsVersion;
use serde_json::{Value, json};

use super::known::{QUERIES, connects, lab, only_pair, parameters};
use super::lab::Start;
use crate::support::{answer, text};

const FORMATS: [&str; 6] = ["terminal", "html", "markdown", "csv", "json", "cyclonedx"];
/// In each name of the capture.
const NAMES: [&str; 2] = ["zebra_user", "zebra_data"];

/// What a side sends: the client first, or the server.
type Turn = (usize, Vec<u8>);

fn postgres() -> Vec<Turn> {
    let startup = b"\0\x03\0\0user\0zebra_user\0database\0zebra_data\0\0";
    vec![
        (0, [&(startup.len() as u32 + 4).to_be_bytes()[..], startup].concat()),
        (1, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I".to_vec()),
        (0, b"Q\0\0\0\x17SELECT 'zebra_sql'\0".to_vec()),
        (1, b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I".to_vec()),
    ]
}

fn mysql() -> Vec<Turn> {
    let packet =
        |sequence: u8, payload: &[u8]| [&[payload.len() as u8, 0, 0, sequence][..], payload].concat();
    let mut greeting = b"\x0a8.0.36\0\x07\0\0\0ABCDEFGH\0\xff\xff\x2d\x02\0\xff\xdf\x15".to_vec();
    greeting.extend([0; 10]);
    greeting.extend(b"IJKLMNOPQRST\0mysql_clear_password\0");
    // Capabilities with a database.
    let mut login = b"\x8d\xa2\x0a\0\0\0\0\x01\x2d".to_vec();
    login.extend([0; 23]);
    login.extend(b"zebra_user\0\x0dzebra_secret\0zebra_data\0mysql_clear_password\0");
    vec![
        (1, packet(0, &greeting)),
        (0, packet(1, &login)),
        (1, packet(2, &[0, 0, 0, 2, 0, 0, 0])),
        (0, packet(0, b"\x03SELECT 'zebra_sql'")),
        (1, packet(1, &[0, 0, 0, 2, 0, 0, 0])),
    ]
}

fn mongodb() -> Vec<Turn> {
    let payload = b"n,,n=zebra_user,r=nonce";
    let elements = [
        &b"\x10saslStart\0\x01\0\0\0\x02mechanism\0\x0e\0\0\0SCRAM-SHA-256\0\x05payload\0"[..],
        &[payload.len() as u8, 0, 0, 0, 0],
        payload,
        b"\x02$db\0\x0b\0\0\0zebra_data\0",
    ]
    .concat();
    let document = [&(elements.len() as u32 + 5).to_le_bytes()[..], &elements, b"\0"].concat();
    let message = [&[0; 8][..], &2013_u32.to_le_bytes(), &[0; 5], &document].concat();
    vec![(0, [&(message.len() as u32 + 4).to_le_bytes()[..], &message].concat())]
}

/// A capture with a connection to each kind of server.
fn capture() -> Vec<u8> {
    const RAW_IP: u32 = 101;
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, RAW_IP].map(u32::to_le_bytes).concat();
    let mut micros = 0_u32;
    for (port, turns) in [(5432, postgres()), (3306, mysql()), (27017, mongodb())] {
        let handshake = [(0, SYN, Vec::new()), (1, SYN | ACK, Vec::new()), (0, ACK, Vec::new())];
        let turns = turns.into_iter().map(|(from, payload)| (from, ACK, payload));
        let mut sent = [0_u32; 2];
        for (from, flags, payload) in handshake.into_iter().chain(turns) {
            let (addresses, ports) = ([[10, 0, 0, 7], [10, 0, 0, 5]], [40_000_u16, port]);
            let mut packet = vec![0x45, 0];
            packet.extend((40 + payload.len() as u16).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            packet.extend([addresses[from], addresses[1 - from]].concat());
            packet.extend([ports[from], ports[1 - from]].map(u16::to_be_bytes).concat());
            packet.extend([sent[from], sent[1 - from]].map(u32::to_be_bytes).concat());
            packet.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
            packet.extend(&payload);
            sent[from] += payload.len() as u32 + u32::from(flags & SYN != 0);
            micros += 1_000;
            let length = packet.len() as u32;
            file.extend([1_796_000_000, micros, length, length].map(u32::to_le_bytes).concat());
            file.extend(packet);
        }
    }
    file
}

/// All that is in the directory of records.
fn records(place: &Path) -> String {
    let mut all = String::new();
    let mut directories = vec![place.join("ciphertoll-runs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            match fs::read(&path) {
                Ok(bytes) => all += &String::from_utf8_lossy(&bytes),
                Err(_) => directories.push(path),
            }
        }
    }
    all
}

fn outputs(names: &[&str]) -> Vec<(&'static str, String)> {
    let place = tempfile::tempdir().expect("a directory");
    let trace = place.path().join("trace.pcap");
    fs::write(&trace, capture()).expect("written");
    let mut outputs = Vec::new();
    for format in FORMATS {
        let common = ["observe", "--pcap", text(&trace), "--format", format];
        let written = answer(&[&common[..], names].concat(), place.path());
        assert_eq!(written.code, Some(0), "{format}: {}", written.stderr);
        outputs.push((format, written.stdout + &written.stderr));
        let file = place.path().join("file");
        let both = answer(&[&common[..], &["-o", text(&file)], names].concat(), place.path());
        let file = fs::read_to_string(&file).expect("a document");
        outputs.push((format, format!("{file}{}", both.stderr)));
    }
    outputs.push(("record", records(place.path())));
    outputs
}

#[test]
fn no_name_is_in_any_output_unless_it_is_asked_for() {
    for (format, output) in outputs(&[]) {
        assert!(output.contains("10.0.0.5"), "{format}: {output}");
        assert!(!output.contains("zebra"), "{format}: {output}");
    }
}

#[test]
fn names_are_in_every_output_but_the_inventory_if_they_are_asked_for() {
    for (format, output) in outputs(&["--names"]) {
        for name in NAMES {
            // Markdown escapes what could be a mark.
            let is_there = output.contains(name) || output.contains(&name.replace('_', "\\_"));
            assert_eq!(is_there, format != "cyclonedx", "{format}: {output}");
        }
        assert!(!output.contains("secret") && !output.contains("zebra_sql"), "{format}: {output}");
        assert!(!output.contains("zebra\\_sql"), "{format}: {output}");
    }
    let json = outputs(&["--names"]).into_iter().find(|(format, _)| *format == "json").expect("JSON").1;
    let document = json.rsplit_once('}').expect("a document").0.to_owned() + "}";
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let pairs = document["pairs"].as_array().expect("a list");
    assert_eq!(pairs.len(), 3, "{document:#}");
    for pair in pairs {
        assert_eq!(pair["users"], users(NAMES[0], NAMES[1], 1), "{pair:#}");
    }
}

fn users(user: &str, database: &str, connections: usize) -> Value {
    json!([{ "user": user, "database": database, "connections": connections }])
}

#[test]
fn names_of_our_client_are_those_that_are_seen() {
    for (engine, server) in
        [(Engine::Postgres, "postgres"), (Engine::MariaDb, "mariadb"), (Engine::FerretDb, "ferretdb")]
    {
        let Some(lab) = lab(engine, server, "plain") else { continue };
        let (user, database) = lab.account();
        let database = if engine == Engine::FerretDb { "admin".to_owned() } else { database };
        let observer = lab.observe_with(&["--names"]);
        connects(&lab, Start::Plain, None);
        let seen = only_pair(&observer.end());
        assert_eq!(seen["users"], users(&user, &database, QUERIES.len()), "{server}: {seen:#}");
        let observer = lab.observe();
        connects(&lab, Start::Plain, None);
        let unnamed = observer.end();
        assert_eq!(only_pair(&unnamed).get("users"), None, "{server}: {unnamed:#}");
        assert_eq!(unnamed.get("names"), None, "{server}: {unnamed:#}");
    }
}

#[test]
fn encryption_hides_the_names_of_our_client() {
    let Some(lab) = lab(Engine::Postgres, "postgres", "tls1.3-p256") else { return };
    let settings = lab.settings(parameters(TlsVersion::Tls13, None));
    let observer = lab.observe_with(&["--names"]);
    connects(&lab, Start::Tls, Some(&settings));
    let seen = observer.end();
    assert_eq!((only_pair(&seen).get("users"), &seen["names"]), (None, &json!(true)), "{seen:#}");
}
