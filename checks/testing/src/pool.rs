//! Servers that tests share.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Fixtures that tests share, one test at a time. Tests that run in parallel have fixtures of their own; the next tests
/// use them again.
///
/// A server ends with the thread that started it, so each fixture has its own thread, on which its tests run.
pub struct Pool<F: 'static> {
    open: Arc<dyn Fn() -> Option<F> + Send + Sync>,
    idle: Mutex<Vec<FixtureThread<F>>>,
}

struct FixtureThread<F> {
    jobs: Sender<Job<F>>,
    thread: JoinHandle<()>,
}

type Job<F> = Box<dyn FnOnce(Option<&mut F>) + Send>;
type Outcome = Result<(), Box<dyn Any + Send>>;

impl<F> Pool<F> {
    /// `open` starts a fixture; `None` if it reported why its tests are skipped.
    pub fn new(open: impl Fn() -> Option<F> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { open: Arc::new(open), idle: Mutex::default() })
    }

    /// Runs a test on an idle fixture, or on a new one.
    ///
    /// # Panics
    ///
    /// If the test panics, or its fixture cannot be started.
    pub fn run(&self, test: impl FnOnce(&mut F) + Send + 'static) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fixture = idle.unwrap_or_else(|| FixtureThread::start(Arc::clone(&self.open)));
        let outcome = fixture.run(test);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(fixture);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

impl<F> Drop for Pool<F> {
    /// Waits until all fixtures have ended.
    fn drop(&mut self) {
        for FixtureThread { jobs, thread } in
            self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..)
        {
            drop(jobs);
            // The panic of a fixture that did not start was reported by its test.
            let _ = thread.join();
        }
    }
}

impl<F: 'static> FixtureThread<F> {
    fn start(open: Arc<dyn Fn() -> Option<F> + Send + Sync>) -> Self {
        let (jobs, received) = mpsc::channel::<Job<F>>();
        let thread = thread::spawn(move || {
            let mut fixture = open();
            for job in received {
                job(fixture.as_mut());
            }
        });
        Self { jobs, thread }
    }

    fn run(&self, test: impl FnOnce(&mut F) + Send + 'static) -> Outcome {
        let (sender, outcome) = mpsc::channel::<Outcome>();
        let job: Job<F> = Box::new(move |fixture| {
            // After a panic the fixture serves the next test: a test must not rely on what an earlier one left.
            let outcome = catch_unwind(AssertUnwindSafe(|| fixture.map_or((), test)));
            // The receiver waits below.
            let _ = sender.send(outcome);
        });
        // Fails if the thread has ended; then the job and its sender are dropped, and there is no outcome.
        let _ = self.jobs.send(job);
        outcome.recv().unwrap_or_else(|_| Err(Box::new("the fixture did not start")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn tests_share_a_fixture_and_a_panic_is_that_of_its_test() {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let pool = Pool::new(move || Some(count.fetch_add(1, Ordering::SeqCst)));
        pool.run(|fixture| *fixture += 10);
        let failed = catch_unwind(AssertUnwindSafe(|| pool.run(|fixture| assert_eq!(*fixture, 0))));
        assert!(failed.is_err());
        pool.run(|fixture| assert_eq!(*fixture, 10));
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn without_a_fixture_tests_are_skipped_and_one_that_does_not_start_fails_them() {
        Pool::new(|| None::<()>).run(|()| panic!("there is no fixture"));
        let pool = Pool::new(|| -> Option<()> { panic!("no server starts") });
        for _ in 0..2 {
            assert!(catch_unwind(AssertUnwindSafe(|| pool.run(|()| {}))).is_err());
        }
    }
}
