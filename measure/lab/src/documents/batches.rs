//! The queue of batches of a load: in order, and limited to a window after the first incomplete batch.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The batches of a load, shared by several loading connections.
pub(super) struct BatchQueue {
    records: u32,
    batch_records: u32,
    /// Maximum number of batches from the first incomplete one on that may be started. After an interruption, the number of
    /// existing records therefore identifies them, up to this many batches.
    window: u32,
    first: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The first batch that is not started.
    next: u32,
    /// The first incomplete batch.
    undone: u32,
    /// Complete batches after it.
    done: BTreeSet<u32>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextBatch {
    Batch(u32),
    /// Wait until another batch is complete.
    Later,
    Nothing,
}

impl BatchQueue {
    /// The batches of `records` records, starting with the batch `first`.
    pub(super) fn new(records: u32, batch_records: u32, window: u32, first: u32) -> Self {
        let state = State { next: first, undone: first, done: BTreeSet::new(), ended: false };
        Self { records, batch_records, window, first, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The batch to continue with if `existing` records exist: all earlier batches are complete, if they were loaded with the
    /// same batch size and window.
    pub(super) fn first_missing(existing: u64, batch_records: u32, window: u32) -> u32 {
        let started = existing.div_ceil(batch_records.into());
        u32::try_from(started).unwrap_or(u32::MAX).saturating_sub(window)
    }

    /// The records of a batch; empty after the last batch.
    pub(super) fn records(&self, batch: u32) -> Range<u32> {
        let first = batch.saturating_mul(self.batch_records).min(self.records);
        first..self.records.min(first.saturating_add(self.batch_records))
    }

    pub(super) fn records_before(&self) -> u32 {
        self.records(self.first).start
    }

    /// Takes the next batch if it may be started now.
    pub(super) fn take(&self) -> NextBatch {
        self.next_of(&mut self.lock())
    }

    /// Waits until the next batch may be started; `None` at the end. Only for callers without an incomplete batch.
    pub(super) fn wait(&self) -> Option<u32> {
        let mut state = self.lock();
        loop {
            match self.next_of(&mut state) {
                NextBatch::Batch(batch) => return Some(batch),
                NextBatch::Nothing => return None,
                NextBatch::Later => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(super) fn complete(&self, batch: u32) {
        let mut state = self.lock();
        let State { undone, done, .. } = &mut *state;
        done.insert(batch);
        while done.remove(undone) {
            *undone += 1;
        }
        self.changed.notify_all();
    }

    /// No further batch is started.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn next_of(&self, state: &mut State) -> NextBatch {
        if state.ended || self.records(state.next).is_empty() {
            return NextBatch::Nothing;
        }
        if state.next >= state.undone.saturating_add(self.window) {
            return NextBatch::Later;
        }
        let batch = state.next;
        state.next += 1;
        NextBatch::Batch(batch)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn batches_are_taken_in_order() {
        let batches = BatchQueue::new(1_001, 500, 8, 0);
        let taken: Vec<NextBatch> = (0..4).map(|_| batches.take()).collect();
        assert_eq!(
            taken,
            [NextBatch::Batch(0), NextBatch::Batch(1), NextBatch::Batch(2), NextBatch::Nothing]
        );
        let records = [0, 1, 2, 3].map(|batch| batches.records(batch));
        assert_eq!(records, [0..500, 500..1_000, 1_000..1_001, 1_001..1_001]);
        assert_eq!(batches.records(u32::MAX), 1_001..1_001);
        assert_eq!(BatchQueue::new(1_001, 500, 8, 1).records_before(), 500);
    }

    #[test]
    fn no_batch_is_started_beyond_the_window() {
        let batches = BatchQueue::new(100_000, 1, 4, 0);
        (0..4).for_each(|batch| assert_eq!(batches.take(), NextBatch::Batch(batch)));
        assert_eq!(batches.take(), NextBatch::Later);
        batches.complete(1);
        assert_eq!(batches.take(), NextBatch::Later);
        batches.complete(0);
        assert_eq!(
            [batches.take(), batches.take(), batches.take()],
            [NextBatch::Batch(4), NextBatch::Batch(5), NextBatch::Later]
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| batches.wait());
            batches.complete(2);
            assert_eq!(waiting.join().unwrap(), Some(6));
            let waiting = scope.spawn(|| batches.wait());
            batches.end();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }

    /// For random interruptions.
    #[test]
    fn a_continued_load_skips_existing_records_only() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..2_000 {
            let (records, batch_records) = (random.random_range(1..2_000), random.random_range(1..50));
            let window = random.random_range(1..9);
            let batches = BatchQueue::new(records, batch_records, window, 0);
            let (mut open, mut existing) = (Vec::new(), 0);
            for _ in 0..random.random_range(0..300) {
                if random.random()
                    && let NextBatch::Batch(batch) = batches.take()
                {
                    open.push(batch);
                } else if !open.is_empty() {
                    let batch = open.swap_remove(random.random_range(0..open.len()));
                    existing += batches.records(batch).len() as u64;
                    batches.complete(batch);
                }
            }
            // Incomplete batches may exist in part.
            for batch in &open {
                existing += random.random_range(0..=batches.records(*batch).len()) as u64;
            }
            let first = BatchQueue::first_missing(existing, batch_records, window);
            assert!(open.iter().all(|batch| *batch >= first), "{first} {open:?}");
            assert!(
                u64::from(BatchQueue::new(records, batch_records, window, first).records_before())
                    <= existing
            );
        }
    }
}
