//! The pool's lock with more threads than this machine has processors: measures how long one connect holds the lock, and
//! computes from it how busy the lock is, and how long a thread waits for it.
//!
//!     cargo run --release -p ciphertoll-proxy --example pool_lock -- 20000
//!
//! The argument is the number of connects per second that one thread serves alone (`make bench-pools`, "connect, SELECT 1,
//! disconnect", 8 clients, one thread).

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use ciphertoll_proxy::{Acceptable, ConnectionPool, PoolAction, PoolKey, WorkerBound};

const WARM_UP: usize = 10_000;
const CONNECTS: usize = 200_000;
/// Server connections of each thread.
const CONNECTIONS: u32 = 8;
const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Id {
    thread: u32,
    number: u32,
}

impl WorkerBound for Id {
    fn thread(self) -> usize {
        self.thread as usize
    }

    fn slot(self) -> usize {
        (self.number * THREADS[THREADS.len() - 1] + self.thread) as usize
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key(&'static str, &'static str);

impl PoolKey for Key {
    fn user(&self) -> &str {
        self.0
    }

    fn database(&self) -> &str {
        self.1
    }
}

type Pool = ConnectionPool<Key, Id, Id>;
const KEY: Key = Key("app", "shop");

/// A pool in which each thread has idle connections.
fn pool(threads: u32) -> Pool {
    let mut pool = Pool::new((threads * CONNECTIONS) as usize);
    for number in 0..CONNECTIONS {
        for thread in 0..threads {
            pool.open_unconditionally(&KEY);
            pool.opened(&KEY);
            pool.release(&KEY, Id { thread, number });
        }
    }
    pool
}

/// What the workers do with the pool for one client in transaction mode, each call under the lock: it acquires a
/// connection, keeps it after its transaction, and leaves it to any other client. Returns how often the lock was taken.
fn connect(pool: &Mutex<Pool>, client: Id, now: Instant) -> usize {
    let lock = || pool.lock().expect("no panic");
    let action = lock().acquire(&KEY, client, Acceptable::Any, now);
    let (PoolAction::Take(server) | PoolAction::TakeUnreset(server)) = action else {
        panic!("each thread has connections of its own: {action:?}")
    };
    assert!(lock().keep(&KEY, server));
    // The worker looks whether more connections than permitted are open: before it assigns, keeps and leaves one.
    let is_over_limit = (0..3).any(|_| lock().is_over_limit(&KEY));
    assert!(!is_over_limit && lock().resume_kept(&KEY, server));
    assert!(lock().keep_orphaned(&KEY, server));
    // A kept connection can be used by another key's client: the worker looks for such clients before it sleeps.
    assert!(lock().queue_length(&KEY).is_none() && lock().unserved_key().is_none());
    9
}

/// The time of one connect's operations, when `threads` threads do nothing else.
fn time_of(threads: u32) -> (Duration, usize) {
    let (pool, barrier) = (Arc::new(Mutex::new(pool(threads))), Arc::new(Barrier::new(threads as usize)));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (pool, barrier) = (Arc::clone(&pool), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let (client, now) = (Id { thread, number: 0 }, Instant::now());
                for _ in 0..WARM_UP {
                    connect(&pool, client, now);
                }
                barrier.wait();
                let began = Instant::now();
                let locks: HashSet<usize> = (0..CONNECTS).map(|_| connect(&pool, client, now)).collect();
                (began.elapsed() / CONNECTS as u32, locks.into_iter().max().unwrap_or_default())
            })
        })
        .collect();
    let times = workers.into_iter().map(|worker| worker.join().expect("no panic"));
    times.max().unwrap_or_default()
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let argument = std::env::args().nth(1).and_then(|text| text.parse::<f64>().ok());
    let connects_per_s = argument.filter(|rate| *rate > 0.0).unwrap_or(20_000.0);
    let (held, locks) = time_of(1);
    writeln!(out, "one connect takes the lock {locks} times and holds it for {} ns in all", held.as_nanos())?;
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        let (contended, _) = time_of(2);
        writeln!(
            out,
            "two threads that do nothing else: {} ns per connect and thread",
            contended.as_nanos()
        )?;
    }
    writeln!(out, "model for {connects_per_s:.0} connects/s and thread:")?;
    writeln!(out, "threads  connects/s  lock busy  wait per connect  rate ÷ without a lock")?;
    for threads in THREADS {
        let (held_s, rate) = (held.as_secs_f64(), connects_per_s * f64::from(threads));
        // The other threads' use of the lock. Each use is short and has a fixed length: the mean wait is that of M/D/1.
        let busy = (rate - connects_per_s) * held_s;
        let wait_s = held_s * busy / (2.0 * (1.0 - busy).max(f64::EPSILON));
        let slowed = 1.0 / (1.0 + wait_s * connects_per_s);
        let (rate_per_s, busy_percent, nanos) = (rate * slowed, busy * 100.0, wait_s * 1e9);
        writeln!(
            out,
            "{threads:>7}  {rate_per_s:>10.0}  {busy_percent:>7.1} %  {nanos:>13.0} ns  {slowed:>21.3}"
        )?;
    }
    Ok(())
}
