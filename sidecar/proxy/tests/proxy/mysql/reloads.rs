//! SIGHUP during load, health checks and kills.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use ciphertoll_net::blocking::Client;
use nix::sys::signal::Signal;

use super::Case;
use super::fixture::{Fixture, Proxy, client_at};
use crate::operations::{await_that, settings};

pub(crate) const CASES: [Case; 1] =
    [("reloads, checks, warm-up and kills at once keep the pool's count right", at_once)];

/// Responses are right, and the limit of connections holds, whatever happens at the same time.
fn at_once(fixture: &mut Fixture) {
    const CLIENT_LOOPS: usize = 5;
    let (directory, file) = settings("warm-up = 2\nhealth-time = \"10ms\"\n[limits]\npool-size = 3\n");
    let ca = directory.path().join("ca.pem");
    let pem = fs::read(fixture.server().ca_file()).expect("the authority");
    fs::write(&ca, &pem).expect("ours to write");
    let url =
        fixture.url().replace(&fixture.server().ca_file().display().to_string(), &ca.display().to_string());
    let mut proxy = fixture.proxy_to(&url, fixture.password(), &["--config", &file]);
    let (stop, served) = (AtomicBool::new(false), AtomicU32::new(0));
    let (socket, user, database) = (proxy.socket.clone(), proxy.user.clone(), proxy.database.clone());
    let client_loop = || {
        while !stop.load(Ordering::Relaxed) {
            let round = served.load(Ordering::Relaxed);
            let answer = client_at(&socket, &user, &database).and_then(|mut client| {
                // This connection may be told to end.
                client.query(&format!("SELECT {round}"))
            });
            if let Ok(rows) = answer {
                assert_eq!(rows, [[Some(round.to_string().into_bytes())]]);
                served.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let client_loops: Vec<_> = (0..CLIENT_LOOPS).map(|_| scope.spawn(client_loop)).collect();
        for round in 0..20 {
            // Another byte changes the CA file, so all connections are obsolete.
            fs::write(&ca, [&pem[..], &b"\n".repeat(round % 3)].concat()).expect("ours to write");
            proxy.process.signal(Signal::SIGHUP);
            proxy.process.await_line("event=reloaded");
            kill_others(&socket, &user, &database);
            let before = served.load(Ordering::Relaxed);
            await_that("clients are served", || served.load(Ordering::Relaxed) > before + 20);
        }
        stop.store(true, Ordering::Relaxed);
        for client_loop in client_loops {
            client_loop.join().expect("no wrong answer");
        }
    });
    // If the pool counted a connection too many, three clients at once would never be served. Connections
    // that were killed last may not have ended yet.
    await_that("three at once are served", || {
        let Some(mut clients) = three(&proxy) else { return false };
        clients.iter_mut().all(|client| {
            client.execute("BEGIN").is_ok()
                && client.query("SELECT 1").is_ok_and(|rows| rows == [[Some(b"1".to_vec())]])
        })
    });
}

fn three(proxy: &Proxy) -> Option<[Client; 3]> {
    Some([proxy.try_client().ok()?, proxy.try_client().ok()?, proxy.try_client().ok()?])
}

/// Kills connections of this user, unless it is killed itself.
fn kill_others(socket: &Path, user: &str, database: &str) {
    let Ok(mut client) = client_at(socket, user, database) else { return };
    let others = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND RAND() < 0.5";
    let Ok(rows) = client.query(others) else { return };
    for number in rows.into_iter().flatten().flatten() {
        // It may have ended by now.
        let _ = client.execute(&format!("KILL {}", String::from_utf8_lossy(&number)));
    }
}
