//! A bounded stack.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than there are clients; older items are dropped.
const MOST: usize = 1024;

pub(crate) struct Newest<T>(Mutex<VecDeque<T>>);

impl<T> Newest<T> {
    pub(crate) fn put(&self, item: T) {
        let mut items = self.lock();
        if items.len() == MOST {
            items.pop_front();
        }
        items.push_back(item);
    }

    /// Returns what `copy` makes of the newest item, which is removed unless `stays` returns true.
    pub(crate) fn take<U>(&self, stays: impl Fn(&T) -> bool, copy: impl Fn(&T) -> U) -> Option<U> {
        let mut items = self.lock();
        let newest = items.back()?;
        let taken = copy(newest);
        if !stays(newest) {
            items.pop_back();
        }
        Some(taken)
    }

    /// A thread that panicked has left whole items behind.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_taken_first_and_the_oldest_is_dropped() {
        let newest = Newest::default();
        for item in 0..MOST + 2 {
            newest.put(item);
        }
        let take = |stays: bool| newest.take(|_| stays, |item| *item);
        assert_eq!([take(true), take(false), take(false)], [MOST + 1, MOST + 1, MOST].map(Some));
        let mut left = Vec::new();
        while let Some(item) = take(false) {
            left.push(item);
        }
        assert_eq!((left.len(), left.last()), (MOST - 2, Some(&2)), "the first two were dropped");
    }
}
