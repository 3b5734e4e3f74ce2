//! The delay line: a thread for each direction takes what comes, holds it for as long as the link is, and sends it on.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ciphertoll_model::LinkShape;
use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;

use crate::clock::monotonic_ns;
use crate::end::{End, Sink, Source};
use crate::realtime;
use crate::schedule::{Fate, Schedule};

/// Frames that are taken before those that are due are looked after again.
const BATCH: usize = 64;
/// More on the way than this are dropped: 200 ms at 10 Gbit/s.
const MOST_BYTES: usize = 256 << 20;
/// How soon a thread with nothing to do sees that it is to end.
const IDLE_NS: u64 = 50_000_000;
const LATEST_NS: u64 = 10_000_000_000;
const LATENESS_DIGITS: u8 = 2;

/// Both directions.
pub(crate) struct Line {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads are told.
struct Control {
    shape: Mutex<(LinkShape, u64)>,
    /// Goes up with each change.
    generation: AtomicU64,
    is_over: AtomicBool,
    carried: Mutex<Tally>,
}

/// What was carried.
pub(crate) struct Tally {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// By the link's own nature.
    pub(crate) lost: u64,
    /// For want of room, or because the other end did not take them.
    pub(crate) dropped: u64,
    pub(crate) late_ns: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            lost: 0,
            dropped: 0,
            // Bounds and digits that are constant do not fail.
            late_ns: Histogram::new_with_bounds(1, LATEST_NS, LATENESS_DIGITS)
                .unwrap_or_else(|_| unreachable!("the bounds are constant")),
        }
    }
}

impl Line {
    /// Begins to carry between two interfaces, at once until told otherwise.
    pub(crate) fn start(ends: [End; 2]) -> io::Result<Self> {
        let control = Arc::new(Control {
            shape: Mutex::new((LinkShape::of_rtt_us(0), 0)),
            generation: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            carried: Mutex::new(Tally::new()),
        });
        let [one, other] = ends;
        let directions = [(one.try_clone()?, other.try_clone()?), (other, one)];
        let directions = directions.map(|(from, to)| Ok::<_, io::Error>((Source::of(from)?, Sink::of(to))));
        // Both before a thread: where one cannot be had, nothing is left behind.
        let directions = directions.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut threads = Vec::new();
        for (number, (from, to)) in directions.into_iter().enumerate() {
            let control = Arc::clone(&control);
            let carrier = move || Carrier::new(from, to, &control, number as u64).run();
            threads.push(thread::Builder::new().name(format!("line {number}")).spawn(carrier)?);
        }
        Ok(Self { control, threads })
    }

    /// The link is like this from now on. `overhead_ns` of each round trip is the line's own.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) {
        *lock(&self.control.shape) = (shape, overhead_ns);
        self.control.generation.fetch_add(1, Ordering::Release);
    }

    /// What was carried since the last time.
    pub(crate) fn take(&self) -> Tally {
        std::mem::replace(&mut *lock(&self.control.carried), Tally::new())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // One that panicked carries nothing any more, either.
            let _ = thread.join();
        }
    }
}

/// A frame on its way.
struct Frame {
    due_ns: u64,
    bytes: Vec<u8>,
}

/// One direction.
struct Carrier<'a> {
    from: Source,
    to: Sink,
    control: &'a Control,
    seed: u64,
    generation: u64,
    schedule: Schedule,
    on_the_way: VecDeque<Frame>,
    bytes_on_the_way: usize,
    /// Buffers that were used before: none is allocated for each packet.
    spare: Vec<Vec<u8>>,
}

impl<'a> Carrier<'a> {
    fn new(from: Source, to: Sink, control: &'a Control, seed: u64) -> Self {
        let schedule = Schedule::new(LinkShape::of_rtt_us(0), 0, seed);
        let (on_the_way, spare) = (VecDeque::new(), Vec::new());
        Self { from, to, control, seed, generation: 0, schedule, on_the_way, bytes_on_the_way: 0, spare }
    }

    fn run(mut self) {
        // Woken when it is due and not up to 50 µs later. Where that is not allowed the lateness tells.
        let _ = set_timerslack(1);
        realtime::ask_for();
        while !self.control.is_over.load(Ordering::Acquire) {
            self.follow();
            if !self.carry() {
                self.wait();
            }
        }
    }

    fn follow(&mut self) {
        let generation = self.control.generation.load(Ordering::Acquire);
        if generation != self.generation {
            let (shape, overhead_ns) = *lock(&self.control.shape);
            self.schedule = Schedule::new(shape, overhead_ns, self.seed.wrapping_add(generation << 1));
            self.generation = generation;
        }
    }

    /// Takes and sends what there is; whether there was anything.
    fn carry(&mut self) -> bool {
        let mut has_worked = false;
        for _ in 0..BATCH {
            has_worked |= self.send_due();
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            let Some(taken) = self.from.take(&mut bytes) else {
                self.spare.push(bytes);
                break;
            };
            has_worked = true;
            match self.schedule.fate(taken.came_ns, taken.bytes) {
                Fate::Due(due_ns) if self.bytes_on_the_way + bytes.len() <= MOST_BYTES => {
                    self.bytes_on_the_way += bytes.len();
                    self.on_the_way.push_back(Frame { due_ns, bytes });
                }
                Fate::Due(_) => {
                    lock(&self.control.carried).dropped += 1;
                    self.spare.push(bytes);
                }
                Fate::Lost => {
                    lock(&self.control.carried).lost += 1;
                    self.spare.push(bytes);
                }
            }
        }
        let dropped = self.from.take_dropped();
        if dropped > 0 {
            lock(&self.control.carried).dropped += dropped;
        }
        has_worked
    }

    fn send_due(&mut self) -> bool {
        let now_ns = monotonic_ns();
        if self.on_the_way.front().is_none_or(|frame| frame.due_ns > now_ns) {
            return false;
        }
        let mut tally = lock(&self.control.carried);
        while let Some(frame) = self.on_the_way.pop_front_if(|frame| frame.due_ns <= now_ns) {
            self.bytes_on_the_way -= frame.bytes.len();
            match self.to.send(&frame.bytes) {
                Ok(()) => {
                    tally.packets += 1;
                    tally.bytes += frame.bytes.len() as u64;
                    tally.late_ns.saturating_record(monotonic_ns().saturating_sub(frame.due_ns).max(1));
                }
                Err(_) => tally.dropped += 1,
            }
            self.spare.push(frame.bytes);
        }
        true
    }

    fn wait(&self) {
        let now_ns = monotonic_ns();
        let until_ns = self.on_the_way.front().map_or(u64::MAX, |frame| frame.due_ns);
        let wait_ns = until_ns.saturating_sub(now_ns).min(IDLE_NS);
        if wait_ns == 0 {
            return;
        }
        let timeout = TimeSpec::new(0, wait_ns.cast_signed());
        // Interrupted or not, what there is to do is looked at anew.
        let _ = ppoll(&mut [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)], Some(timeout), None);
    }
}

/// A thread that panicked has left whole values behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
