//! Emulated links: durations of connects, and that nothing is left behind.

use std::time::Duration;

use ciphertoll_record::ProcessIdentity;
use ciphertoll_testing::missing;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Attack, Session, assert_gone, best, ciphertoll, is, items, medians_ns, one_document, recorded_events,
    text,
};

/// Longer than the lateness of a busy machine.
const RTT_NS: f64 = 50e6;
/// Round trips of a connect to MariaDB by path, including TCP's.
const ROUND_TRIPS: [(&str, f64); 7] = [
    ("plain", 3.0),
    ("tls1.3-p256", 4.0),
    ("tls1.2-p256", 5.0),
    ("ssh-aes256-gcm", 2.0),
    ("openvpn-aes256-gcm", 3.0),
    ("wireguard", 3.0),
    ("stunnel", 4.0),
];

/// Voids no trial for lateness.
const PATIENT: [&str; 2] = ["--max-lateness", "100%"];
const ASKED: [&str; 6] = ["--link", "50ms", "--workload", "connect", "--trial-time", "1s"];
/// Duration of a trial, including warm-up.
const TRIAL: Duration = Duration::from_millis(1250);

#[test]
fn every_round_trip_takes_its_time() {
    if crate::support::real_server() {
        connects_take("mariadb", &ROUND_TRIPS);
    }
}

/// The server's first flight exceeds the initial congestion window (RFC 6928): its end waits for an acknowledgement.
#[test]
fn a_long_chain_of_ml_dsa_certificates_takes_one_more_round_trip() {
    const SERVER: &str = "mariadb-11.8";
    if ciphertoll_lab::find(&SERVER.parse().expect("a level")).is_err() {
        return missing(&format!("{SERVER} is not fetched"));
    }
    connects_take(
        SERVER,
        &[
            ("tls1.3-mldsa65+group=x25519mlkem768+chain=1+client=rustls", 4.0),
            ("tls1.3-mldsa65+group=x25519mlkem768+chain=2+client=rustls", 5.0),
        ],
    );
}

/// Measures connects over the link: each takes at least its round trips, and the fastest less than one more.
#[track_caller]
fn connects_take(server: &str, round_trips: &[(&str, f64)]) {
    let place = tempfile::tempdir().expect("a directory");
    let paths: Vec<&str> = round_trips.iter().map(|(path, _)| *path).collect();
    let output = ciphertoll(&["run", "--server", server, "--path", &paths.join(",")])
        .args(ASKED)
        .args(["--blocks", "3", "--json", "-q", "--run-dir", text(place.path())])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("cannot make a long link") {
        return missing(&said);
    }
    let document = one_document(&String::from_utf8_lossy(&output.stdout));
    let events = recorded_events(place.path());
    for &(path, round_trips) in round_trips {
        let cell =
            items(&document, "cells").iter().find(|cell| cell["path"] == path && cell["link"] == "50ms");
        let cell = cell.unwrap_or_else(|| panic!("{path} was not measured: {said}"));
        assert!(cell["blocks_used"].as_u64() > Some(0), "{cell:#}");
        let times_ns = medians_ns(&events, path);
        // A lower bound for each trial; a benchmark measures the excess.
        let least = |time_ns: &f64| *time_ns > round_trips * RTT_NS * 0.97;
        assert!(times_ns.iter().all(least), "{path}: {times_ns:?} ns, {said}");
        assert!(best(&times_ns) < (round_trips + 1.0) * RTT_NS, "{path}: {times_ns:?} ns, {said}");
    }
}

/// An operation takes longer than the requested window, and longer than the calibration of a smoke run.
#[test]
fn a_window_that_is_too_short_for_the_link_is_lengthened() {
    if !crate::support::real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let output =
        ciphertoll(&["run", "--server", "postgres", "--path", "plain,tls1.3-p256", "--link", "170ms"])
            .args([
                "--workload",
                "connect-query",
                "--clients",
                "4",
                "--size",
                "smoke",
                "--trial-time",
                "500ms",
            ])
            .args(PATIENT)
            .args(["--json", "--progress", "plain", "--run-dir", text(place.path())])
            .output()
            .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("cannot make a long link") {
        return missing(&said);
    }
    assert!(said.contains("--trial-time 500 ms is too short for 3 operations per client"), "{said}");
    let document = one_document(&String::from_utf8_lossy(&output.stdout));
    let cells = items(&document, "cells");
    assert_eq!(cells.len(), 2, "{said}");
    for cell in cells {
        assert!(cell["blocks_used"].as_u64() > Some(0), "{cell:#}: {said}");
        assert!(cell["metrics"]["rate_per_s"]["value"].as_f64() > Some(0.0), "{cell:#}");
    }
    for event in recorded_events(place.path()).iter().filter(|event| is(event, "trial_finished")) {
        // At least one operation of each of the four clients.
        assert!(event["observation"]["operations"].as_u64() >= Some(4), "{event}");
    }
}

#[test]
fn a_link_that_is_killed_or_stopped_is_made_afresh_and_nothing_stays() {
    if !crate::support::real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    // More blocks than needed, because a trial may end before the test can attack it.
    let more = ["--path", "plain,tls1.3-p256", "--blocks", "6"];
    let mut session = Session::start(place.path(), &[&["--server", "mariadb"], &ASKED[..], &more].concat());
    session.wait_for("calibration's end, or why not", |event| {
        is(event, "block_finished") || is(event, "finished")
    });
    let Some(link) = links_of(&mut session).pop() else { return missing("no link was made here") };
    let killed = interrupt(&mut session, Signal::SIGKILL);
    session
        .wait_for("another block", |event| is(event, "block_started") && event["block"] != killed["block"]);
    let another = links_of(&mut session).pop().expect("there is one again");
    assert_ne!(another.pid, link.pid);
    let stopped = interrupt(&mut session, Signal::SIGSTOP);
    session.wait_for("the end of its block", |event| is(event, "block_finished"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    session.signal(Signal::SIGINT);
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    for voided in [killed, stopped] {
        let same = |event: &&Value| ["cell", "block", "arm"].iter().all(|key| event[*key] == voided[*key]);
        let again = finished.named("trial_finished").into_iter().any(|event| same(&event));
        assert!(again, "the run went on: {voided}: {:?}", finished.told());
    }
}

/// Sends a signal to the link of a trial and waits for its replacement. Returns the event that the trial was voided.
fn interrupt(session: &mut Session, signal: Signal) -> Value {
    let attack = |session: &mut Session| {
        let process = links_of(session).pop().expect("a link");
        Attack { process, signal, gate: "link", trial: TRIAL }
    };
    let (voided, _) = session.attack_one(|_| true, attack);
    session.wait_for("a link afresh", |event| {
        is(event, "warned")
            && event["message"].as_str().is_some_and(|message| message.contains("the link went down"))
    });
    voided
}

/// All links so far, in order.
fn links_of(session: &mut Session) -> Vec<ProcessIdentity> {
    let links = session.processes().into_iter().filter(|noted| noted.what == "link");
    links.map(|noted| noted.identity).collect()
}
