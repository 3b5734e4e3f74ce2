//! Proxies of two threads: one pool for the clients of both, and one registry of connection IDs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::Case;
use super::fixture::{Fixture, Proxy, one};
use super::raw::RawClient;

pub(crate) const CASES: [Case; 2] = [
    ("one connection serves clients of both threads", one_connection),
    ("a late KILL hits no other client", late_kills),
];

/// Cases that also run on two threads: those of the shared pool, of its limits, of KILL, and of upgrades.
pub(crate) const ALSO_ON_TWO: [&str; 19] = [
    "a command that takes too long is cancelled, and its connection goes on",
    "a user that waits is served before one that floods the pool",
    "a password that changes each second costs no client a connect",
    "a KILL hits the right command",
    "a KILL among other statements hits the right command",
    "a KILL reaches clients in every state",
    "nonces under eight clients",
    "no session state reaches the next client",
    "a transaction that was left open is rolled back",
    "a connection in an unknown state is closed",
    "a client waits for a connection up to the queue time",
    "a stop waits for clients, up to a limit",
    "an upgrade under load loses no client",
    "reloads, checks, warm-up and kills at once keep the pool's count right",
    "two clients share a connection",
    "prepared statements keep their meaning",
    "many clients on few connections",
    "random clients find their own session state",
    "a switchover by pause, kill and resume shows no client an error",
];

fn connect_repeatedly(proxy: &Proxy, client_loop: usize, rounds: usize) {
    for round in 0..rounds {
        let mut client = proxy.client();
        for step in 0..2 {
            let nonce = format!("{client_loop}-{round}-{step}");
            assert_eq!(one(&mut client, &format!("SELECT '{nonce}'")), nonce);
        }
    }
}

fn one_connection(fixture: &mut Fixture) {
    let mut proxy = fixture.proxy(&["--pool-size", "1"]);
    thread::scope(|scope| {
        for client_loop in 0..8 {
            let proxy: &Proxy = &proxy;
            scope.spawn(move || connect_repeatedly(proxy, client_loop, 30));
        }
    });
    // At most one connection of each client was opened with other capabilities, or to learn the greeting.
    assert!(proxy.process.count("event=server-moved") > 0, "clients of both threads have waited for it");
}

/// Clients disconnect while others kill them; no other client is hit.
fn late_kills(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--pool-size", "3"]);
    let (named, over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (proxy, named, over) = (&proxy, &named, &over);
        scope.spawn(move || {
            let mut killer = proxy.raw();
            loop {
                let number = named.load(Ordering::SeqCst);
                killer.query(&format!("KILL QUERY {number}"));
                // The kill has taken effect, or the target has left.
                let answer = killer.word();
                assert!(answer[0] == 0 || RawClient::error(&[answer]) == Some(1094));
                if over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let bystanders: Vec<_> = (0..3)
            .map(|client_loop| scope.spawn(move || connect_repeatedly(proxy, client_loop, 60)))
            .collect();
        for _ in 0..60 {
            let mut victim = proxy.raw();
            named.store(victim.connection_id, Ordering::SeqCst);
            victim.query("SELECT 1");
            // Whatever the result, it belongs to this client.
            victim.results();
        }
        let ended: Vec<_> = bystanders.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "a bystander was hit");
    });
}
