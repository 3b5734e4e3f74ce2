//! Proxies in a run: what they make of connects, proxies that are killed or stopped in mid-trial, and that nothing of them
//! stays.

use std::path::Path;
use std::time::Duration;

use ciphertoll_model::Engine;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Between, Interruption, Session, assert_gone, best, is, items, medians_ns, one_document, real_server_of,
    until,
};

/// Proxies of one engine.
struct Tested {
    engine: Engine,
    server: &'static str,
    path: &'static str,
    /// Paths, and what their processes are called in the ledger.
    proxies: &'static [(&'static str, &'static str)],
    /// How their clients log in.
    admission: &'static str,
    /// The path that takes longer.
    slower: &'static str,
}

const ALL: [Tested; 2] = [
    Tested {
        engine: Engine::Postgres,
        server: "postgres",
        path: "plain,tls1.3-p256,proxy,pgbouncer",
        proxies: &[("proxy", "ciphertoll-proxy"), ("pgbouncer", "PgBouncer")],
        admission: "trust",
        // It has a login by SCRAM.
        slower: "plain",
    },
    Tested {
        engine: Engine::MariaDb,
        server: "mariadb",
        path: "plain,tls1.3-p256,proxysql,proxysql+mode=transaction",
        proxies: &[("proxysql", "ProxySQL"), ("proxysql+mode=transaction", "ProxySQL")],
        admission: "native",
        slower: "tls1.3-p256",
    },
];

const BETWEEN: Between = Between { what: "proxy", tried: "proxy_tried", trial: Duration::from_millis(750) };

const FEW_BLOCKS: [&str; 2] = ["--blocks", "2"];
/// More than are needed, for trials that are over before the test gets to them.
const MORE_BLOCKS: [&str; 2] = ["--blocks", "6"];

impl Tested {
    /// A run of their paths; `None` without a server.
    fn start(&self, place: &Path, blocks: &[&'static str; 2]) -> Option<Session> {
        if !real_server_of(self.engine) {
            return None;
        }
        let asked = ["--server", self.server, "--path", self.path, "--workload", "connect-query"];
        let asked = [&asked[..], &["--trial-time", "500ms"], blocks].concat();
        let mut session = Session::start(place, &asked);
        session.wait_for("calibration's end", |event| is(event, "block_finished"));
        Some(session)
    }
}

#[test]
fn a_run_tells_what_a_proxy_makes_of_connects() {
    for tested in ALL {
        let place = tempfile::tempdir().expect("a directory");
        let Some(mut session) = tested.start(place.path(), &FEW_BLOCKS) else { continue };
        let here = BETWEEN.here(&session, tested.proxies);
        // They are known from here on, should the run be over before the test asks again.
        session.identities();
        session.wait_for("the end", |event| is(event, "looked"));
        let (processes, scratch) = (session.identities(), session.scratch().to_owned());
        let finished = session.finish();
        assert_gone(&processes, &scratch);
        let document = one_document(&finished.stdout);
        for (path, program) in here {
            let cell = items(&document, "cells").iter().find(|cell| cell["path"] == path).expect("a cell");
            let has_blocks = cell["blocks_used"].as_u64() > Some(0);
            assert!(has_blocks || !items(cell, "voided").is_empty(), "{cell:#}");
            if has_blocks {
                let [proxied, direct] =
                    [path, tested.slower].map(|path| best(&medians_ns(&finished.events, path)));
                assert!(proxied < direct, "{path}: {proxied} ns, {}: {direct} ns", tested.slower);
                is_cured(&document, cell, program, tested.admission);
            }
        }
    }
}

/// More than a pool for one client has, and what replaces a connection that broke.
const FEW: u64 = 10;

/// Its own connections are few, and encrypted.
fn is_cured(document: &Value, cell: &Value, program: &str, admission: &str) {
    for metric in ["setup_ns", "rss_bytes_middle"] {
        assert!(cell["metrics"][metric]["value"].as_f64() > Some(0.0), "{metric}: {cell:#}");
    }
    let (front, behind): (Vec<&Value>, Vec<&Value>) =
        items(cell, "legs").iter().partition(|leg| leg["from"] == "client");
    assert!(front.iter().all(|leg| leg["tls_version"].is_null() && leg["auth"] == admission), "{front:?}");
    assert!(!behind.is_empty(), "{cell:#}");
    for leg in &behind {
        assert_eq!((&leg["tls_version"], &leg["key"]), (&"tls1.3".into(), &"p256".into()), "{leg}");
        assert_eq!(leg["library"], program);
    }
    let connections =
        |legs: &[&Value]| legs.iter().filter_map(|leg| leg["connections"].as_u64()).sum::<u64>();
    // However few connects there was time for.
    let pools = cell["blocks_used"].as_u64().expect("a number of blocks") * FEW;
    assert!(connections(&behind) <= pools && connections(&behind) < connections(&front), "{cell:#}");
    assert!(items(document, "cells").iter().any(|cell| cell["path"] == "tls1.3-p256"));
}

#[test]
fn a_proxy_that_is_killed_or_stopped_voids_its_trial_and_the_run_goes_on() {
    for tested in ALL {
        let place = tempfile::tempdir().expect("a directory");
        let Some(session) = tested.start(place.path(), &MORE_BLOCKS) else { continue };
        let of = |(path, process): (&'static str, &'static str)| {
            [Signal::SIGKILL, Signal::SIGSTOP].map(|signal| Interruption { path, process, signal })
        };
        let ahead = BETWEEN.here(&session, tested.proxies).into_iter().flat_map(of).collect();
        BETWEEN.each_voids_its_trial(session, ahead);
    }
}

#[test]
fn neither_a_killed_nor_an_interrupted_run_leaves_a_proxy() {
    for (tested, signal) in
        ALL.iter().flat_map(|tested| [(tested, Signal::SIGKILL), (tested, Signal::SIGINT)])
    {
        let place = tempfile::tempdir().expect("a directory");
        let Some(mut session) = tested.start(place.path(), &MORE_BLOCKS) else { continue };
        let Some((path, program)) = BETWEEN.here(&session, tested.proxies).first().copied() else { continue };
        session.wait_for("a trial through a proxy", |event| {
            is(event, "trial_started")
                && event["cell"].as_str().is_some_and(|cell| cell.contains(&format!("/{path}/")))
        });
        session.load();
        let scratch = session.scratch().to_owned();
        let noted = session.processes();
        assert!(noted.iter().any(|noted| noted.what == program), "{noted:?}");
        let processes = session.identities();
        session.signal(signal);
        session.finish();
        if signal == Signal::SIGKILL {
            // Children die with their parent; what they have left, the next start sweeps.
            until("the end of its processes", || {
                processes.iter().all(|process| !process.is_alive()).then_some(())
            });
            ciphertoll_record::sweep(&ciphertoll_record::scratch_root()).expect("a sweep");
        }
        assert_gone(&processes, &scratch);
    }
}
