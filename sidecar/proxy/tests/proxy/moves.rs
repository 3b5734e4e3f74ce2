//! Clients move from one thread to the other and back, because a reload changes how busy a thread may be.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::Case;
use crate::cases::{cancel_request, one};
use crate::operations::{admin_address, await_that, samples, settings};
use crate::process::Process;
use crate::site::{RawClient, Site, ThreadLoad, client_at};
use crate::threads::{ASKED, ran_ns, threads_at};

pub(crate) const CASES: [Case; 2] = [
    ("clients move between threads and notice nothing", moves),
    ("a thread that no longer serves leaves its connections to the first", leaves_connections),
];

/// Clients rest, so that the load of both threads is far below that of one processor.
pub(crate) const REST: Duration = Duration::from_millis(2);
const ROUNDS: usize = 4;

/// A number of clients of two threads.
pub(crate) struct MovingClients {
    _directory: TempDir,
    file: String,
    count: usize,
    is_over: AtomicBool,
    served: AtomicUsize,
}

impl MovingClients {
    pub(crate) fn new(count: usize) -> Self {
        let (directory, file) = settings(&configuration(100));
        let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { _directory: directory, file, count, is_over, served }
    }

    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--config", &self.file, ASKED[0], ASKED[1]]
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(crate) fn served(&self) {
        self.served.fetch_add(1, Ordering::SeqCst);
    }

    /// Moves all clients several times, while `staying` threads run `stay`.
    pub(crate) fn run(&self, process: &mut Process, stay: impl Fn(usize) + Sync, staying: usize) {
        thread::scope(|scope| {
            let stay = &stay;
            let clients: Vec<_> = (0..staying).map(|at| scope.spawn(move || stay(at))).collect();
            for _ in 0..ROUNDS {
                self.await_spread(process, 0, "clients are spread", |[first, second]| {
                    first.abs_diff(second) <= 2
                });
                self.await_spread(process, 100, "clients are on one thread", |[_, second]| second == 0);
            }
            // Clients on both threads, for what follows: some of them have moved.
            self.await_spread(process, 0, "clients are spread", |[first, second]| {
                first.abs_diff(second) <= 2
            });
            self.is_over.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().expect("it noticed nothing");
            }
        });
    }

    /// Sets the load, and waits until clients are spread so and every one was served.
    fn await_spread(
        &self,
        process: &mut Process,
        percent: u8,
        what: &str,
        is_so: impl Fn([usize; 2]) -> bool,
    ) {
        fs::write(&self.file, configuration(percent)).expect("ours to write");
        process.signal(Signal::SIGHUP);
        process.await_line("event=reloaded");
        let admin = admin_address(&process.log);
        await_that(what, || {
            let each: Vec<usize> = threads_at(admin).iter().map(|(clients, _)| *clients as usize).collect();
            each.iter().sum::<usize>() == self.count && is_so([each[0], each[1]])
        });
        let before = self.served.load(Ordering::SeqCst);
        await_that("clients are served", || self.served.load(Ordering::SeqCst) > before + self.count);
    }
}

fn configuration(thread_load: u8) -> String {
    format!("[limits]\nthread-load = {thread_load}\n")
}

/// Clients keep their session, their transaction and their cancel token when they move.
fn moves(site: &mut Site) {
    const STAYING: usize = 6;
    const SLEEPING: usize = 4;
    let moving = MovingClients::new(STAYING + SLEEPING);
    site.thread_load = ThreadLoad::AsConfigured;
    let mut proxy = site.proxy(&moving.arguments());
    site.thread_load = ThreadLoad::None;
    let mut sleepers: Vec<RawClient> = (0..SLEEPING).map(|_| proxy.raw(&[])).collect();
    for sleeper in &mut sleepers {
        sleeper.answer();
        sleeper.query("SELECT pg_sleep(600)");
    }
    let (socket, user, database) = (proxy.socket(), proxy.user.clone(), proxy.database.clone());
    let stay = |at: usize| {
        let mut client = client_at(&socket, &user, &database).expect("the login succeeds");
        let name = format!("client {at}");
        client.query(&format!("SET application_name = '{name}'")).expect("a setting");
        // This pins a client of transaction mode. The others are detached from their connections.
        let has_table = at.is_multiple_of(2);
        if has_table {
            client.query("CREATE TEMP TABLE mine (n int)").expect("a table");
        }
        for round in 0.. {
            if moving.is_over() {
                break;
            }
            client.query("BEGIN").expect("a transaction");
            if has_table {
                client.query(&format!("INSERT INTO mine VALUES ({round})")).expect("a row");
            }
            thread::sleep(REST);
            let last = if has_table { "SELECT max(n) FROM mine" } else { &format!("SELECT {round}") };
            assert_eq!(one(&mut client, last), round.to_string());
            client.query("COMMIT").expect("its end");
            assert_eq!(one(&mut client, "SHOW application_name"), name);
            thread::sleep(REST);
            moving.served();
        }
    };
    moving.run(&mut proxy.process, stay, STAYING);
    for sleeper in &mut sleepers {
        let mut canceller = proxy.raw_silent();
        canceller.send(&cancel_request(sleeper.process_id, &sleeper.key));
        assert!(canceller.message().is_err());
        assert_eq!(RawClient::error_state(&sleeper.answer()).as_deref(), Some("57014"));
    }
    let admin = admin_address(&proxy.process.log);
    assert!(samples(admin)["client_moves_total"] > 0.0);
    assert!(proxy.process.count("event=client-moved") > 0);
}

/// The thread of a worker without clients and connections ends.
fn leaves_connections(site: &mut Site) {
    const CLIENTS: usize = 6;
    let (_directory, file) = settings(&configuration(0));
    site.thread_load = ThreadLoad::AsConfigured;
    let mut proxy = site.proxy(&["--config", &file, "--pool-size", "8", ASKED[0], ASKED[1]]);
    site.thread_load = ThreadLoad::None;
    let admin = admin_address(&proxy.process.log);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.query("BEGIN").expect("a transaction");
    }
    let connections = |thread: usize| threads_at(admin)[thread].1 as usize;
    assert!(connections(0) > 0 && connections(1) > 0, "{:?}", threads_at(admin));
    thread::spawn(move || drop(clients)).join().expect("they leave");
    await_that("all have left", || threads_at(admin).iter().all(|(clients, _)| *clients == 0));

    fs::write(&file, configuration(100)).expect("ours to write");
    proxy.process.signal(Signal::SIGHUP);
    proxy.process.await_line("event=reloaded");
    await_that("the first thread has all connections", || connections(0) == CLIENTS && connections(1) == 0);
    await_that("the second thread has ended", || !ran_ns(proxy.process.id()).contains_key("serve-1"));

    let opened = || samples(admin)["connects_total"].round() as usize;
    let before = opened();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.query("BEGIN").expect("a transaction");
        assert_eq!(one(client, "SELECT 1"), "1");
    }
    assert_eq!(opened(), before, "they are used again");
}
