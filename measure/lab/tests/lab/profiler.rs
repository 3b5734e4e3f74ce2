//! `perf`, attached to running processes.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ciphertoll_lab::{Error, Lab, check_perf};
use ciphertoll_testing::not_for_all;

use crate::common;

const MOST_THREADS: usize = 4_000;

#[test]
fn a_profile_that_could_lack_threads_is_refused() {
    if let Err(unusable) = check_perf() {
        return not_for_all(&unusable);
    }
    let place = common::place();
    let cache = place.path().join("cache");
    let lab = Lab::open_in(common::helper(), &place.path().join("scratch"), cache).unwrap();

    let (is_over, has_begun) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let sleep_until_over = || {
                while !is_over.load(Ordering::Relaxed) {
                    thread::park_timeout(Duration::from_millis(100));
                }
            };
            for started in 0..MOST_THREADS {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                scope.spawn(sleep_until_over);
                if started == 0 {
                    has_begun.wait();
                }
                thread::park_timeout(Duration::from_millis(1));
            }
        });
        has_begun.wait();
        let refused = lab.attach_profiler("client", &[std::process::id().cast_signed()]);
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(refused, Err(Error::ThreadsStarted { .. })), "{:?}", refused.err());
    });

    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let attached = lab.attach_profiler("client", &[child.id().cast_signed()]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(attached.is_ok(), "{:?}", attached.err());
}
