//! Long links made on this machine: what they do to connects, and that nothing of them stays.

use std::time::{Duration, Instant};

use ciphertoll_record::ProcessIdentity;
use ciphertoll_skip::missing;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Session, alone, assert_gone, ciphertoll, is, items, one_document, text};

/// Longer than a busy machine is late by.
const RTT_NS: f64 = 50e6;
/// That a link is down is known at once; on however busy a machine, it is by then.
const NOTICED: Duration = Duration::from_secs(30);
/// Round trips of a connect to MariaDB, TCP's included, by path.
const ROUND_TRIPS: [(&str, f64); 7] = [
    ("plain", 3.0),
    ("tls1.3-p256", 4.0),
    ("tls1.2-p256", 5.0),
    ("ssh-aes256-gcm", 2.0),
    ("openvpn-aes256-gcm", 3.0),
    ("wireguard", 3.0),
    ("stunnel", 4.0),
];

const ASKED: [&str; 10] =
    ["--server", "mariadb", "--link", "50ms", "--workload", "connect", "--trial-time", "1s", "--blocks", "3"];

#[test]
fn every_round_trip_takes_its_time() {
    if !crate::support::real_server() {
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let paths = ROUND_TRIPS.map(|(path, _)| path).join(",");
    let output = ciphertoll(&["run", "--path", &paths])
        .args(ASKED)
        .args(["--json", "-q", "--run-dir", text(place.path())])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("no long link can be made here") {
        return missing(&said);
    }
    let document = one_document(&String::from_utf8_lossy(&output.stdout));
    for (path, round_trips) in ROUND_TRIPS {
        let cell =
            items(&document, "cells").iter().find(|cell| cell["path"] == path && cell["link"] == "50ms");
        let cell = cell.unwrap_or_else(|| panic!("{path} was not measured: {said}"));
        let time_ns = cell["metrics"]["latency_ns_p50"]["value"].as_f64().expect("a time");
        // At least that: how much more, is for a benchmark to say.
        assert!(time_ns > round_trips * RTT_NS * 0.97, "{path}: {time_ns} ns, {said}");
        assert!(time_ns < (round_trips + 1.0) * RTT_NS, "{path}: {time_ns} ns, {said}");
    }
}

#[test]
fn a_link_that_is_killed_or_stopped_is_made_afresh_and_nothing_stays() {
    if !crate::support::real_server() {
        return;
    }
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let mut session = Session::start(place.path(), &[&ASKED[..], &["--path", "plain,tls1.3-p256"]].concat());
    let begun = session.wait_for("a trial, or why not", |event| {
        is(event, "trial_started") && event["block"] == 1 || is(event, "finished")
    });
    let Some(link) = links_of(&mut session).pop() else { return missing("no link was made here") };
    assert!(is(&begun, "trial_started"));
    session.load();
    interrupt(&mut session, &link, Signal::SIGKILL);
    session.wait_for("another block", |event| is(event, "trial_started") && event["block"] == 2);
    let another = links_of(&mut session).pop().expect("there is one again");
    assert_ne!(another.pid, link.pid);
    session.load();
    interrupt(&mut session, &another, Signal::SIGSTOP);
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    let voided = finished.named("trial_voided");
    let of_links = voided.iter().filter(|event| event["reason"].to_string().contains("link"));
    assert!(of_links.count() >= 2, "{voided:?}");
    assert!(finished.named("trial_finished").len() >= 6, "the run went on: {:?}", finished.told());
}

/// Does to a link what it does not survive, and waits for another, which must not take long.
fn interrupt(session: &mut Session, link: &ProcessIdentity, signal: Signal) {
    let began = Instant::now();
    kill(Pid::from_raw(link.pid), signal).expect("it runs");
    session.wait_for("a link afresh", |event| {
        is(event, "warned")
            && event["message"].as_str().is_some_and(|message| message.contains("link afresh"))
    });
    assert!(began.elapsed() < NOTICED, "{signal}: {:?}", began.elapsed());
}

/// All that were made, the last one last.
fn links_of(session: &mut Session) -> Vec<ProcessIdentity> {
    let links = session.processes().into_iter().filter(|noted| noted.what == "link");
    links.map(|noted| noted.identity).collect()
}
