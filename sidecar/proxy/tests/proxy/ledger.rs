//! Clients that write numbered rows while hosts fail, and what they know of the rows.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Row;

use crate::operations::await_that;
use crate::say;

const WRITERS: usize = 64;
/// Rows that are enough to know that the writers are served.
const ROWS: u64 = 5 * WRITERS as u64;

#[derive(Default)]
pub(crate) struct Ledger {
    acknowledged: Mutex<Vec<String>>,
    count: AtomicU64,
    stop: AtomicBool,
    /// When the last row was acknowledged, and the longest time between two.
    last: Mutex<Option<Instant>>,
    longest: Mutex<Duration>,
}

/// Stops the writers even if the case fails.
struct Stop<'a>(&'a Ledger);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

impl Ledger {
    /// Runs `case` while writers insert into `numbered (writer, number)`; it starts when all of them are served.
    pub(crate) fn written_during(
        connect: impl Fn() -> Result<Client, Error> + Sync,
        case: impl FnOnce(&Self),
    ) -> Self {
        let ledger = Self::default();
        thread::scope(|scope| {
            let _stop = Stop(&ledger);
            for writer in 0..WRITERS {
                let (ledger, connect) = (&ledger, &connect);
                scope.spawn(move || ledger.write(connect, writer));
            }
            ledger.await_more("rows are written");
            case(&ledger);
        });
        ledger
    }

    /// Writes rows with this writer's own numbers, each at most once, until it is told to stop.
    fn write(&self, connect: impl Fn() -> Result<Client, Error>, writer: usize) {
        let mut client: Option<Client> = None;
        let mut number = 0;
        while !self.stop.load(Ordering::Acquire) {
            number += 1;
            let Some(mut connected) = client.take().or_else(|| connect().ok()) else { continue };
            // After an error it is not known whether the row was written: it is not written again.
            if connected.execute(&format!("INSERT INTO numbered VALUES ({writer}, {number})")).is_ok() {
                self.acknowledge(format!("{writer} {number}"));
                client = Some(connected);
            }
        }
    }

    fn acknowledge(&self, row: String) {
        self.acknowledged.lock().expect("no panic").push(row);
        self.count.fetch_add(1, Ordering::AcqRel);
        let now = Instant::now();
        if let Some(last) = self.last.lock().expect("no panic").replace(now) {
            let mut longest = self.longest.lock().expect("no panic");
            *longest = longest.max(now.duration_since(last));
        }
    }

    /// Says how long after `what`, which happened at `since`, the first row was acknowledged.
    pub(crate) fn await_first(&self, what: &str, since: Instant) {
        let before = self.count.load(Ordering::Acquire);
        await_that("rows are written again", || self.count.load(Ordering::Acquire) > before);
        say(&format!("the first row was acknowledged {:?} after {what}", since.elapsed()));
    }

    pub(crate) fn await_more(&self, what: &str) {
        let before = self.count.load(Ordering::Acquire);
        await_that(what, || self.count.load(Ordering::Acquire) >= before + ROWS);
    }

    /// No acknowledged row is lost, and none is there twice; `rows` are `writer number`, of all servers.
    pub(crate) fn check(&self, rows: impl IntoIterator<Item = Row>) {
        let mut found = HashSet::new();
        for row in rows.into_iter().flatten().flatten() {
            let row = String::from_utf8(row).expect("text");
            assert!(found.insert(row.clone()), "{row} was written twice");
        }
        let acknowledged = self.acknowledged.lock().expect("no panic");
        assert_eq!(
            acknowledged.iter().find(|row| !found.contains(*row)),
            None,
            "an acknowledged row is lost"
        );
        let longest = *self.longest.lock().expect("no panic");
        say(&format!("{} rows, the longest pause {longest:?}", acknowledged.len()));
    }
}
