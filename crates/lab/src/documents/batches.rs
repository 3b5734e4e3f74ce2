//! Which records are loaded next, and by whom: batches in order, none too far ahead of the slowest.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The batches of one load, for several loaders.
pub(super) struct Batches {
    records: u32,
    batch_records: u32,
    /// How many may be begun from the first that is not done on. So the number of records that are there after an
    /// interruption tells which those are, but for so many batches.
    window: u32,
    first: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The first that nobody has begun.
    next: u32,
    /// The first that is not done.
    undone: u32,
    /// Those behind it that are.
    done: BTreeSet<u32>,
    outlook: Outlook,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outlook {
    GoingOn,
    Ended,
}

/// What a loader may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This one.
    Batch(u32),
    /// None before another is done.
    Later,
    /// None any more.
    Nothing,
}

impl Batches {
    /// All batches of so many records from `first` on, of which so many may be begun before the first is done.
    pub(super) fn new(records: u32, batch_records: u32, window: u32, first: u32) -> Self {
        let state = State { next: first, undone: first, done: BTreeSet::new(), outlook: Outlook::GoingOn };
        Self { records, batch_records, window, first, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The batch to begin with where so many records are there already: all before are there, whole, if they were loaded
    /// in batches of this size and within this window.
    pub(super) fn first_missing(there: u64, batch_records: u32, window: u32) -> u32 {
        let begun = there.div_ceil(batch_records.into());
        u32::try_from(begun).unwrap_or(u32::MAX).saturating_sub(window)
    }

    /// The records of a batch; none behind the last.
    pub(super) fn records(&self, batch: u32) -> Range<u32> {
        let first = batch.saturating_mul(self.batch_records).min(self.records);
        first..self.records.min(first.saturating_add(self.batch_records))
    }

    /// How many records come before the first batch.
    pub(super) fn before(&self) -> u32 {
        self.records(self.first).start
    }

    /// Takes the next batch, if it can be begun now.
    pub(super) fn take(&self) -> Next {
        self.next_of(&mut self.lock())
    }

    /// Takes the next batch, once it can be begun; none at the end. For loaders that have none on their hands.
    pub(super) fn wait(&self) -> Option<u32> {
        let mut state = self.lock();
        loop {
            match self.next_of(&mut state) {
                Next::Batch(batch) => return Some(batch),
                Next::Nothing => return None,
                Next::Later => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The server has this batch.
    pub(super) fn done(&self, batch: u32) {
        let mut state = self.lock();
        let State { undone, done, .. } = &mut *state;
        done.insert(batch);
        while done.remove(undone) {
            *undone += 1;
        }
        self.changed.notify_all();
    }

    /// Nobody begins another.
    pub(super) fn end(&self) {
        self.lock().outlook = Outlook::Ended;
        self.changed.notify_all();
    }

    fn next_of(&self, state: &mut State) -> Next {
        if state.outlook == Outlook::Ended || self.records(state.next).is_empty() {
            return Next::Nothing;
        }
        if state.next >= state.undone.saturating_add(self.window) {
            return Next::Later;
        }
        let batch = state.next;
        state.next += 1;
        Next::Batch(batch)
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
    fn batches_come_in_order_up_to_the_last() {
        let batches = Batches::new(1_001, 500, 8, 0);
        let taken: Vec<Next> = (0..4).map(|_| batches.take()).collect();
        assert_eq!(taken, [Next::Batch(0), Next::Batch(1), Next::Batch(2), Next::Nothing]);
        let records = [0, 1, 2, 3].map(|batch| batches.records(batch));
        assert_eq!(records, [0..500, 500..1_000, 1_000..1_001, 1_001..1_001]);
        assert_eq!(batches.records(u32::MAX), 1_001..1_001);
        assert_eq!(Batches::new(1_001, 500, 8, 1).before(), 500);
    }

    #[test]
    fn none_is_begun_too_far_ahead() {
        let batches = Batches::new(100_000, 1, 4, 0);
        (0..4).for_each(|batch| assert_eq!(batches.take(), Next::Batch(batch)));
        assert_eq!(batches.take(), Next::Later);
        batches.done(1);
        assert_eq!(batches.take(), Next::Later);
        batches.done(0);
        assert_eq!(
            [batches.take(), batches.take(), batches.take()],
            [Next::Batch(4), Next::Batch(5), Next::Later]
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| batches.wait());
            batches.done(2);
            assert_eq!(waiting.join().unwrap(), Some(6));
            let waiting = scope.spawn(|| batches.wait());
            batches.end();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }

    /// Whatever was interrupted, and wherever: what a second load leaves out is there.
    #[test]
    fn a_second_load_leaves_out_only_what_is_there() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..2_000 {
            let (records, batch_records) = (random.random_range(1..2_000), random.random_range(1..50));
            let window = random.random_range(1..9);
            let batches = Batches::new(records, batch_records, window, 0);
            let (mut open, mut there) = (Vec::new(), 0);
            for _ in 0..random.random_range(0..300) {
                if random.random()
                    && let Next::Batch(batch) = batches.take()
                {
                    open.push(batch);
                } else if !open.is_empty() {
                    let batch = open.swap_remove(random.random_range(0..open.len()));
                    there += batches.records(batch).len() as u64;
                    batches.done(batch);
                }
            }
            // Those that were on their way may be there, in part.
            for batch in &open {
                there += random.random_range(0..=batches.records(*batch).len()) as u64;
            }
            let first = Batches::first_missing(there, batch_records, window);
            assert!(open.iter().all(|batch| *batch >= first), "{first} {open:?}");
            assert!(u64::from(Batches::new(records, batch_records, window, first).before()) <= there);
        }
    }
}
