//! A bounded stack of sessions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than there are clients; older items are dropped.
const MOST: usize = 1024;

/// How often a session may be offered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// TLS 1.3: once, so that observers cannot link connections (RFC 8446, C.4). Each connection brings new
    /// sessions.
    Once,
    /// Before TLS 1.3: any number of times, because a resumed connection may bring no new session.
    Often,
}

pub(crate) struct Newest<T>(Mutex<VecDeque<(Reuse, T)>>);

impl<T: Clone> Newest<T> {
    pub(crate) fn put(&self, reuse: Reuse, item: T) {
        let mut items = self.lock();
        if items.len() == MOST {
            items.pop_front();
        }
        items.push_back((reuse, item));
    }

    /// The newest item, which stays if it may be offered again.
    pub(crate) fn take(&self) -> Option<T> {
        let mut items = self.lock();
        match items.back()? {
            (Reuse::Often, newest) => Some(newest.clone()),
            (Reuse::Once, _) => items.pop_back().map(|(_, newest)| newest),
        }
    }

    /// A thread that panicked has left whole items behind.
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Reuse, T)>> {
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
            newest.put(Reuse::Once, item);
        }
        let mut taken = Vec::new();
        while let Some(item) = newest.take() {
            taken.push(item);
        }
        assert!(taken.into_iter().eq((2..MOST + 2).rev()), "the first two were dropped");
        newest.put(Reuse::Often, 7);
        assert_eq!([newest.take(), newest.take()], [Some(7), Some(7)]);
    }
}
