//! Times that the observer prints are those that the client measured, over links of any length.

use std::time::Duration;

use ciphertoll_model::Engine;
use ciphertoll_net::tls::{Group, TlsParameters, TlsVersion};
use ciphertoll_net::{Dialer, Phase, PhaseTimes};
use nix::unistd::geteuid;
use serde_json::Value;

use super::lab::{Lab, Start, connect};
use crate::support::real_link;

const CONNECTS: usize = 31;
/// How far the medians may differ: the part of the time, and what a busy machine takes to wake the client up.
const PART: f64 = 0.05;
const WAKE_UP_MS: f64 = 1.0;
/// A phase of no packet of its own, such as a request for TLS that is sent with the hello.
const UNSEEN_MS: f64 = 0.2;

const PHASES: [Phase; 5] =
    [Phase::TcpConnect, Phase::ServerGreeting, Phase::TlsRequest, Phase::TlsHandshake, Phase::Auth];

#[test]
fn times_are_those_that_the_client_measured() {
    if !geteuid().is_root() {
        return ciphertoll_testing::not_for_all("only root may capture packets");
    }
    for (engine, server) in [(Engine::Postgres, "postgres"), (Engine::MariaDb, "mariadb")] {
        if !crate::url::real_server(engine) || !real_link() {
            return;
        }
        for link in ["0ms", "10ms", "45ms"] {
            let lab = Lab::start(engine, server, "tls1.3-p256", &["--link", link]);
            let parameters =
                TlsParameters { group: Some(Group::P256), ..TlsParameters::new(TlsVersion::Tls13) };
            let settings = lab.settings(parameters);
            let observer = lab.observe();
            let measured = lab.inside(|| {
                // Otherwise a busy machine's other processes run between a packet and the client's look at the clock.
                ciphertoll_link::ask_for_real_time();
                let dialer = lab.dialer(Start::Tls, lab.password(), Some(&settings));
                (0..CONNECTS).map(|_| one(&dialer)).collect::<Vec<_>>()
            });
            compare(&format!("{server} {link}"), &observer.end(), &measured);
        }
    }
}

fn one(dialer: &Dialer) -> PhaseTimes {
    let mut connected = connect(dialer).unwrap_or_else(|error| panic!("{error}"));
    let times = *connected.stopwatch.times();
    // Inside of TLS, the first query shows that the login is complete.
    connected.server.encode_query(connected.channel.output(), "SELECT 1").expect("a query");
    connected.channel.send().expect("sent");
    connected.channel.receive().expect("an answer");
    connected.server.encode_goodbye(connected.channel.output());
    connected.channel.close().expect("a goodbye");
    times
}

fn compare(name: &str, seen: &Value, measured: &[PhaseTimes]) {
    let [pair] = &seen["pairs"].as_array().expect("a list")[..] else { panic!("{seen:#}") };
    let is_near = |what: &str, seen: Option<f64>, own: f64| {
        let seen = seen.unwrap_or_else(|| panic!("{name} {what}: {own} ms is not seen in {pair:#}"));
        let most = own * PART + WAKE_UP_MS;
        assert!((seen - own).abs() <= most, "{name} {what}: {seen} ms, the client {own} ms: {pair:#}");
    };
    for phase in PHASES {
        let own = median_ms(measured, |times| times.of(phase));
        if own > UNSEEN_MS {
            let phases = pair["phases"].as_array().expect("a list");
            let seen = phases.iter().find(|seen| seen["phase"] == name_of(phase));
            is_near(&name_of(phase), seen.and_then(|seen| seen["ms"]["median"].as_f64()), own);
        }
    }
    let tcp = median_ms(measured, |times| times.of(Phase::TcpConnect));
    is_near("round trip", pair["round_trip_ms"]["median"].as_f64(), tcp);
    is_near("connect", pair["connect_ms"]["median"].as_f64(), median_ms(measured, PhaseTimes::total));
}

fn median_ms(measured: &[PhaseTimes], of: impl Fn(&PhaseTimes) -> Duration) -> f64 {
    let mut times: Vec<_> = measured.iter().map(of).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn name_of(phase: Phase) -> String {
    serde_json::to_value(phase).expect("a name").as_str().expect("text").to_owned()
}
