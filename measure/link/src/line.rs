//! The delay line: one thread per direction receives frames, holds them for the link's delay, and sends them on.

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
use crate::line_end::{FrameSource, LineEnd};
use crate::realtime;
use crate::schedule::{Fate, PacketSchedule};

/// Frames received before due frames are sent again.
const BATCH: usize = 64;
/// Bytes in flight per direction, beyond which frames are dropped: 200 ms at 10 Gbit/s.
const MOST_BYTES: usize = 256 << 20;
/// How soon an idle thread notices the end.
const IDLE_NS: u64 = 50_000_000;
const LATEST_NS: u64 = 10_000_000_000;
const LATENESS_DIGITS: u8 = 2;

pub(crate) struct DelayLine {
    control: Arc<LineControl>,
    threads: Vec<JoinHandle<()>>,
}

struct LineControl {
    shape: Mutex<(LinkShape, u64)>,
    /// Incremented with each change.
    generation: AtomicU64,
    is_over: AtomicBool,
    carried: Mutex<TrafficCounters>,
}

pub(crate) struct TrafficCounters {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Lost because the link is configured to lose packets.
    pub(crate) lost: u64,
    /// Dropped because a queue was full or the other end did not accept them.
    pub(crate) dropped: u64,
    pub(crate) late_ns: Histogram<u64>,
}

impl TrafficCounters {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            lost: 0,
            dropped: 0,
            late_ns: Histogram::new_with_bounds(1, LATEST_NS, LATENESS_DIGITS)
                .unwrap_or_else(|_| unreachable!("the bounds are constant")),
        }
    }
}

impl DelayLine {
    /// Starts forwarding between two ends, without delay until `set` is called.
    pub(crate) fn start(ends: [LineEnd; 2]) -> io::Result<Self> {
        let control = Arc::new(LineControl {
            shape: Mutex::new((LinkShape::of_rtt_us(0), 0)),
            generation: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            carried: Mutex::new(TrafficCounters::new()),
        });
        let [one, other] = ends;
        let directions = [(one.try_clone()?, other.try_clone()?), (other, one)];
        // Opens both before starting a thread, so that a failure leaves nothing behind.
        let open = |(from, to)| Ok((FrameSource::open(from)?, to));
        let directions = directions.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let mut threads = Vec::new();
        for (number, (from, to)) in directions.into_iter().enumerate() {
            let control = Arc::clone(&control);
            let forwarder = move || Forwarder::new(from, to, &control, number as u64).run();
            threads.push(thread::Builder::new().name(format!("line {number}")).spawn(forwarder)?);
        }
        Ok(Self { control, threads })
    }

    /// Emulates `shape` from now on. `overhead_ns` is what the line itself adds to a round trip.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) {
        *lock(&self.control.shape) = (shape, overhead_ns);
        self.control.generation.fetch_add(1, Ordering::Release);
    }

    /// The traffic since the last call.
    pub(crate) fn take_counters(&self) -> TrafficCounters {
        std::mem::replace(&mut *lock(&self.control.carried), TrafficCounters::new())
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

struct DelayedFrame {
    due_ns: u64,
    bytes: Vec<u8>,
}

struct Forwarder<'a> {
    from: FrameSource,
    to: LineEnd,
    control: &'a LineControl,
    seed: u64,
    generation: u64,
    schedule: PacketSchedule,
    in_flight: VecDeque<DelayedFrame>,
    bytes_in_flight: usize,
    /// Buffers for reuse, so that no packet allocates one.
    spare: Vec<Vec<u8>>,
}

impl<'a> Forwarder<'a> {
    fn new(from: FrameSource, to: LineEnd, control: &'a LineControl, seed: u64) -> Self {
        let schedule = PacketSchedule::new(LinkShape::of_rtt_us(0), 0, seed);
        let (in_flight, spare) = (VecDeque::new(), Vec::new());
        Self { from, to, control, seed, generation: 0, schedule, in_flight, bytes_in_flight: 0, spare }
    }

    fn run(mut self) {
        // Wakes up on time instead of up to 50 µs late. If this fails, the lateness counters show it.
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
            self.schedule = PacketSchedule::new(shape, overhead_ns, self.seed.wrapping_add(generation << 1));
            self.generation = generation;
        }
    }

    /// Receives and sends what is available; returns whether there was anything.
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
                Fate::Due(due_ns) if self.bytes_in_flight + bytes.len() <= MOST_BYTES => {
                    self.bytes_in_flight += bytes.len();
                    self.in_flight.push_back(DelayedFrame { due_ns, bytes });
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
        if self.in_flight.front().is_none_or(|frame| frame.due_ns > now_ns) {
            return false;
        }
        let mut counters = lock(&self.control.carried);
        while let Some(frame) = self.in_flight.pop_front_if(|frame| frame.due_ns <= now_ns) {
            self.bytes_in_flight -= frame.bytes.len();
            match self.to.send(&frame.bytes) {
                Ok(()) => {
                    counters.packets += 1;
                    counters.bytes += frame.bytes.len() as u64;
                    counters.late_ns.saturating_record(monotonic_ns().saturating_sub(frame.due_ns).max(1));
                }
                Err(_) => counters.dropped += 1,
            }
            self.spare.push(frame.bytes);
        }
        true
    }

    fn wait(&self) {
        let now_ns = monotonic_ns();
        let until_ns = self.in_flight.front().map_or(u64::MAX, |frame| frame.due_ns);
        let wait_ns = until_ns.saturating_sub(now_ns).min(IDLE_NS);
        if wait_ns == 0 {
            return;
        }
        let timeout = TimeSpec::new(0, wait_ns.cast_signed());
        // Whether interrupted or not, the loop checks everything again.
        let _ = ppoll(&mut [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)], Some(timeout), None);
    }
}

/// Data behind the mutex are valid even if a thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
