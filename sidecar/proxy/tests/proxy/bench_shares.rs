//! `make bench-shares`: the 99th percentile of one user's queries, alone and while another user floods the pool.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;

use crate::Case;
use crate::bench_failover::spread;
use crate::fixture::Fixture;
use crate::say;
use crate::shares::{SECOND, proxy_with, second};

pub(crate) const CASES: [Case; 1] = [("a user's queries beside another user's flood", compare)];

const CLIENTS: usize = 4;
const FLOODING: usize = 64;
const POOL_SIZE: usize = 8;
/// It waits at the server: otherwise the CPUs of this machine would be what the users share.
const QUERY: &str = "SELECT pg_sleep(0.005)";
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(4);

fn compare(fixture: &mut Fixture) {
    say(&format!(
        "{CLIENTS} clients of one user, {FLOODING} of another one, all with {QUERY}, {POOL_SIZE} server connections; \
         {ROUNDS} rounds: median (lowest to highest)"
    ));
    say("| the other user's pool-size | p99 alone | p99 beside the flood | ratio |");
    say("| --- | --- | --- | --- |");
    for (limit, text) in [("none", ""), ("4", "pool-size = 4\n")] {
        let settings = format!("[limits]\npool-size = {POOL_SIZE}\nqueue-time = \"60s\"\n{SECOND}{text}");
        let (proxy, _directory) = proxy_with(fixture, &settings);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(p99_ms(|| proxy.try_client()));
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..FLOODING {
                    scope.spawn(|| {
                        let mut client = second(&proxy).expect("the login succeeds");
                        while !stop.load(Ordering::Acquire) {
                            client.query(QUERY).expect("an answer");
                        }
                    });
                }
                beside.push(p99_ms(|| proxy.try_client()));
                stop.store(true, Ordering::Release);
            });
        }
        let ratios = beside.iter().zip(&alone).map(|(beside, alone)| Some(beside / alone));
        let of = |times: &[f64]| spread(times.iter().copied().map(Some));
        say(&format!("| {limit} | {} ms | {} ms | {} |", of(&alone), of(&beside), spread(ratios)));
    }
}

fn p99_ms(connect: impl Fn() -> Result<Client, Error> + Sync) -> f64 {
    let mut times: Vec<f64> = thread::scope(|scope| {
        let of_client = || {
            let mut client = connect().expect("the login succeeds");
            let (mut times, began) = (Vec::new(), Instant::now());
            while began.elapsed() < TIME {
                let asked = Instant::now();
                client.query(QUERY).expect("an answer");
                times.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            times
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(of_client)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
