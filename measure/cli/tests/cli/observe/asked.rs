//! What servers accept is asked of real ones, by a process without rights that ends with the observer.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::Engine;
use ciphertoll_net::tls::{TlsParameters, TlsVersion};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};

use super::lab::{Lab, Start, connect};

const NOBODY: &str = "65534";
/// Many times what it takes.
const LONG: Duration = Duration::from_mins(1);

#[test]
fn servers_say_what_they_accept() {
    if !geteuid().is_root() {
        return ciphertoll_testing::missing("only root may capture packets");
    }
    let cases = [(Engine::Postgres, "tls1.3-p256", "p256"), (Engine::MariaDb, "tls1.3-rsa2048", "rsa2048")];
    for (engine, path, key) in cases {
        let lab = Lab::start(engine, engine.label(), path, &[]);
        let observer = lab.observe_with(&["--probe", "--resolve"]);
        let settings = lab.settings(TlsParameters::new(TlsVersion::Tls13));
        lab.inside(|| connect(&lab.dialer(Start::Tls, lab.password(), Some(&settings))).expect("a login"));
        let seen = observer.end();
        let probe = &seen["probes"][0];
        assert_eq!(probe["server"], lab.address.to_string(), "{seen:#}");
        assert_eq!((&probe["unknown"], &probe["error"]), (&json!(null), &json!(null)), "{probe:#}");
        let accepted = |list: &str, field: &str| -> Vec<&str> {
            let list = probe[list].as_array().expect("a list").iter();
            list.filter_map(|one| if field.is_empty() { one.as_str() } else { one[field].as_str() }).collect()
        };
        assert_eq!(accepted("versions", "version"), ["tls1.3", "tls1.2"], "{probe:#}");
        assert!(accepted("groups", "").contains(&"p256"), "{probe:#}");
        assert_eq!(accepted("certificates", "key").first(), Some(&key), "{probe:#}");
        // The probe's own connections come after the observation.
        assert_eq!(seen["pairs"][0]["connections"]["begun"], 1, "{seen:#}");
    }
}

#[test]
fn the_process_that_asks_has_no_rights_and_ends_with_the_observer() {
    if !geteuid().is_root() {
        return ciphertoll_testing::missing("only root may capture packets");
    }
    let lab = Lab::start(Engine::Postgres, "postgres", "plain", &[]);
    let mut observer = lab.observe_with(&["--probe"]);
    let companion = child_of(observer.child.id());
    await_that("it gives up its rights", || {
        let status = fs::read_to_string(companion.join("status")).expect("it runs");
        let value = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .split_whitespace()
                .next()
        };
        let (user, capabilities) = (value("Uid:"), value("CapPrm:"));
        user == Some(NOBODY) && capabilities == Some("0000000000000000") && value("NoNewPrivs:") == Some("1")
    });
    observer.child.kill().and_then(|()| observer.child.wait()).expect("it ran");
    await_that("it ends", || has_ended(&companion));
}

/// A server that is silent when it is probed.
#[test]
fn a_second_interrupt_ends_the_probe_and_what_was_seen_is_printed() {
    if !geteuid().is_root() {
        return ciphertoll_testing::missing("only root may capture packets");
    }
    let place = tempfile::tempdir().expect("a directory");
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = server.local_addr().expect("it is bound");
    let port = format!("{}=postgres", address.port());
    let mut observer = Command::new(env!("CARGO_BIN_EXE_ciphertoll"))
        .args([
            "observe",
            "--for",
            "10m",
            "--interface",
            "lo",
            "--probe",
            "--format",
            "json",
            "--port",
            &port,
        ])
        .current_dir(&place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said =
        BufReader::new(observer.stderr.take().expect("it has an output")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("observing")));
    let mut client = TcpStream::connect(address).expect("a connection");
    client.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).expect("an SSLRequest");
    let interrupt = || kill(Pid::from_raw(observer.id().cast_signed()), Signal::SIGINT);
    interrupt().expect("it runs");
    assert!(said.any(|line| line.starts_with("probing 1 server")));
    // One that comes before it waits is not heard.
    let told = thread::scope(|scope| {
        let rest = scope.spawn(|| said.collect::<Vec<_>>());
        while !rest.is_finished() && interrupt().is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        rest.join().expect("no panic")
    });
    let output = observer.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("interrupted: ")), "{told:?}");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(
        (&seen["pairs"][0]["server"], &seen["probes"]),
        (&json!(address.to_string()), &json!(null)),
        "{seen:#}"
    );
}

fn child_of(parent: u32) -> PathBuf {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("it runs");
    let mut children = children.split_whitespace().map(|child| PathBuf::from(format!("/proc/{child}")));
    let asks = |child: &PathBuf| {
        fs::read(child.join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == b"__observe-ask"))
    };
    children.find(asks).expect("a process that asks")
}

/// One that nobody waits for is as good as gone.
fn has_ended(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
