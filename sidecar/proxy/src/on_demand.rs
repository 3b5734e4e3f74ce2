//! A thread that exists only while it has work. While a process has one thread, the kernel does not count the uses of its
//! file descriptors: an idle second thread makes every call that uses one about 60 ns slower.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Does jobs one after another on a thread that starts with the first and ends with the last.
pub(crate) struct OnDemandThread<J> {
    name: Arc<str>,
    shared: Arc<Mutex<Work<J>>>,
}

struct Work<J> {
    jobs: VecDeque<J>,
    is_running: bool,
    /// `None` while the thread uses it.
    act: Option<Box<dyn FnMut(J) + Send>>,
}

impl<J> Clone for OnDemandThread<J> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), shared: Arc::clone(&self.shared) }
    }
}

impl<J: Send + 'static> OnDemandThread<J> {
    pub(crate) fn new(name: &str, act: impl FnMut(J) + Send + 'static) -> Self {
        let act: Box<dyn FnMut(J) + Send> = Box::new(act);
        let work = Work { jobs: VecDeque::new(), is_running: false, act: Some(act) };
        Self { name: name.into(), shared: Arc::new(Mutex::new(work)) }
    }

    /// Does this job after all earlier ones. Fails if no thread can be started; the job is lost then.
    pub(crate) fn add(&self, job: J) -> io::Result<()> {
        self.add_to(&mut lock(&self.shared), job)
    }

    /// The same, unless a job is waiting already.
    pub(crate) fn add_unless_waiting(&self, job: J) -> io::Result<()> {
        let mut work = lock(&self.shared);
        if work.jobs.is_empty() { self.add_to(&mut work, job) } else { Ok(()) }
    }

    fn add_to(&self, work: &mut Work<J>, job: J) -> io::Result<()> {
        if !work.is_running {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name(self.name.to_string()).spawn(move || Running::of(shared).run())?;
            work.is_running = true;
        }
        work.jobs.push_back(job);
        Ok(())
    }
}

/// The thread's part. When it is dropped, another thread can be started, even after a panic.
struct Running<J> {
    act: Option<Box<dyn FnMut(J) + Send>>,
    shared: Arc<Mutex<Work<J>>>,
}

impl<J> Running<J> {
    fn of(shared: Arc<Mutex<Work<J>>>) -> Self {
        let act = lock(&shared).act.take();
        Self { act, shared }
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(act) = &mut self.act {
            let mut work = lock(&shared);
            let Some(job) = work.jobs.pop_front() else {
                // Under the same lock, so that no job is added to a thread that ends.
                return self.end(work);
            };
            drop(work);
            act(job);
        }
    }

    fn end(&mut self, mut work: MutexGuard<'_, Work<J>>) {
        work.is_running = false;
        work.act = self.act.take();
    }
}

impl<J> Drop for Running<J> {
    fn drop(&mut self) {
        if self.act.is_some() {
            let shared = Arc::clone(&self.shared);
            self.end(lock(&shared));
        }
    }
}

fn lock<J>(shared: &Mutex<Work<J>>) -> MutexGuard<'_, Work<J>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_are_done_in_order_and_the_thread_ends_with_the_last() {
        let (done, jobs) = mpsc::channel();
        let act = move |job: usize| done.send((job, thread::current().id())).unwrap();
        let thread = OnDemandThread::new("test", act);
        for _ in 0..2 {
            (0..100).for_each(|job| thread.add(job).unwrap());
            let did: Vec<usize> = jobs.iter().take(100).map(|(job, _)| job).collect();
            assert_eq!(did, (0..100).collect::<Vec<_>>());
            while lock(&thread.shared).is_running {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn one_job_waits_behind_the_current_one() {
        let (begun, begins) = mpsc::channel();
        let (proceed, wait) = mpsc::channel();
        let thread = OnDemandThread::new("test", move |job: usize| {
            begun.send(job).unwrap();
            wait.recv().unwrap();
        });
        thread.add_unless_waiting(0).unwrap();
        assert_eq!(begins.recv(), Ok(0));
        (1..10).for_each(|job| thread.add_unless_waiting(job).unwrap());
        (0..2).for_each(|_| proceed.send(()).unwrap());
        assert_eq!(begins.recv(), Ok(1));
        while lock(&thread.shared).is_running {
            thread::yield_now();
        }
        assert!(begins.try_recv().is_err());
    }

    #[test]
    fn a_job_that_panics_does_not_end_the_work() {
        let (done, jobs) = mpsc::channel();
        let thread = OnDemandThread::new("test", move |job: usize| {
            assert!(job > 0, "the first job fails");
            done.send(job).unwrap();
        });
        thread.add(0).unwrap();
        while lock(&thread.shared).is_running {
            thread::yield_now();
        }
        thread.add(1).unwrap();
        assert_eq!(jobs.recv(), Ok(1));
    }
}
