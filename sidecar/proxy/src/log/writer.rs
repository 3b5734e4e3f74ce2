//! The thread that writes log lines to stderr, and the bounded queue in front of it: a pipe that is not read
//! must not block the worker threads. The thread exists only while there are lines, see [`crate::on_demand`].

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::format::{Format, report};

const MAX_LINES: usize = 1024;
/// How long the thread waits for further lines, so that not every line starts one.
const LINGER: Duration = Duration::from_secs(1);

static STDERR: LazyLock<Queue> = LazyLock::new(Queue::new);

pub(super) struct Queue {
    lines: Mutex<Lines>,
    /// Signalled when a line was added.
    added: Condvar,
    /// Signalled when all lines were written.
    emptied: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<String>,
    /// Dropped since the last report, and the format of the report.
    dropped: Option<(u64, Format)>,
    /// The thread is writing lines that are no longer in the queue.
    is_writing: bool,
    has_thread: bool,
}

/// Whether lines have a thread that writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Present,
    /// The caller must start it.
    Missing,
}

impl Queue {
    fn new() -> Self {
        Self {
            lines: Mutex::default(),
            added: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, or drops it if the queue is full. Never waits for the output.
    fn add(&self, line: String, format: Format) -> Writer {
        let mut lines = self.lock();
        if lines.waiting.len() >= MAX_LINES {
            let before = lines.dropped.map_or(0, |(count, _)| count);
            lines.dropped = Some((before + 1, format));
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Writer::Present;
        }
        lines.waiting.push_back(line);
        if !std::mem::replace(&mut lines.has_thread, true) {
            return Writer::Missing;
        }
        drop(lines);
        self.added.notify_one();
        Writer::Present
    }

    /// Waits for lines; `None` if there are none for a while. The report of dropped lines follows the queued lines.
    fn next(&self) -> Option<VecDeque<String>> {
        let mut lines = self.lock();
        lines.is_writing = false;
        if lines.waiting.is_empty() {
            self.emptied.notify_all();
            let wait = self.added.wait_timeout_while(lines, LINGER, |lines| lines.waiting.is_empty());
            lines = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        if lines.waiting.is_empty() {
            lines.has_thread = false;
            return None;
        }
        lines.is_writing = true;
        let mut batch = std::mem::take(&mut lines.waiting);
        batch.extend(lines.dropped.take().map(|(count, format)| report(format, count)));
        Some(batch)
    }

    fn write_to(&self, mut output: impl Write) {
        while let Some(lines) = self.next() {
            for line in lines {
                // There is nowhere to report that stderr is closed.
                let _ = output.write_all(line.as_bytes());
            }
        }
    }

    /// Writes on this thread, because no other one can be started.
    fn write_here(&self) {
        let mut lines = self.lock();
        lines.has_thread = false;
        for line in std::mem::take(&mut lines.waiting) {
            let _ = io::stderr().lock().write_all(line.as_bytes());
        }
    }

    /// Waits until all lines are written, or until `timeout` is over.
    fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut lines = self.lock();
        while lines.is_writing || !lines.waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            lines = self.emptied.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Hands a line to the writer of stderr.
pub(super) fn write(line: String, format: Format) {
    if STDERR.add(line, format) == Writer::Missing {
        let started = thread::Builder::new().name("log".to_owned()).spawn(|| STDERR.write_to(io::stderr()));
        if started.is_err() {
            STDERR.write_here();
        }
    }
}

pub(super) fn flush(timeout: Duration) {
    STDERR.flush(timeout);
}

pub(super) fn dropped() -> u64 {
    STDERR.dropped.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    /// Takes a line only when the test says so.
    struct Stalled {
        proceed: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.proceed.recv().map_err(io::Error::other)?;
            let line = String::from_utf8(bytes.to_vec()).map_err(io::Error::other)?;
            self.written.send(line).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_output_drops_lines_and_reports_how_many() {
        const EXTRA: usize = 7;
        let queue = Arc::new(Queue::new());
        let (proceed, stalled) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        let shared = Arc::clone(&queue);
        let start = || thread::spawn(move || shared.write_to(Stalled { proceed: stalled, written }));
        let add = |line: String| {
            queue.add(line, Format::Text);
        };
        // The thread takes the first line out of the queue; the others fill it.
        assert_eq!(queue.add("first".to_owned(), Format::Text), Writer::Missing);
        let thread = start();
        while !queue.lock().is_writing {
            thread::yield_now();
        }
        for number in 0..MAX_LINES + EXTRA {
            add(number.to_string());
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), EXTRA as u64);
        // One more than those in the queue: the report.
        for _ in 0..MAX_LINES + 2 {
            proceed.send(()).unwrap();
        }
        queue.flush(Duration::from_hours(1));
        let lines: Vec<String> = lines.try_iter().collect();
        assert_eq!(lines.len(), MAX_LINES + 2);
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("first", "0"));
        assert_eq!(lines[MAX_LINES], (MAX_LINES - 1).to_string());
        assert!(lines[MAX_LINES + 1].contains("7 log lines were dropped"), "{}", lines[MAX_LINES + 1]);
        // Without further lines the thread ends, and the next line needs another one.
        thread.join().unwrap();
        assert_eq!(queue.add("later".to_owned(), Format::Text), Writer::Missing);
        assert_eq!(queue.add("later".to_owned(), Format::Text), Writer::Present);
    }

    #[test]
    fn a_flush_gives_up_on_a_stalled_output() {
        let queue = Queue::new();
        queue.flush(Duration::ZERO);
        queue.add("never written".to_owned(), Format::Text);
        queue.flush(Duration::ZERO);
        assert_eq!(queue.lock().waiting.len(), 1);
    }
}
