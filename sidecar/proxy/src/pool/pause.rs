//! Paused keys: none of their connections is handed out and none is opened, so their clients wait. Connections that clients
//! use are closed by their workers when the clients release them, and the others at once. A key is paused until the last
//! connection is closed and beyond, whichever clients and connections come and go.

use std::hash::Hash;

use super::{ConnectionPool, WorkerBound};

type Covers<K> = Box<dyn Fn(&K) -> bool + Send>;

/// Which keys are paused, also those that no client has named yet.
pub(super) struct PauseRule<K> {
    /// Workers apply each rule, one after the other: an older one must not replace a newer one.
    version: u64,
    covers: Option<Covers<K>>,
}

impl<K> Default for PauseRule<K> {
    fn default() -> Self {
        Self { version: 0, covers: None }
    }
}

impl<K> PauseRule<K> {
    pub(super) fn covers(&self, key: &K) -> bool {
        self.covers.as_ref().is_some_and(|covers| covers(key))
    }
}

impl<K: Clone + Eq + Hash, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    /// Pauses the keys that `covers` names, and no others. A rule that is not newer than the present one changes nothing.
    pub fn set_paused(&mut self, version: u64, covers: impl Fn(&K) -> bool + Send + 'static) {
        if version <= self.pause.version {
            return;
        }
        for pool in self.pools.iter_mut().flatten() {
            pool.is_paused = covers(&pool.key);
        }
        self.pause = PauseRule { version, covers: Some(Box::new(covers)) };
    }

    pub fn is_paused(&self, key: &K) -> bool {
        self.get(key).map_or_else(|| self.pause.covers(key), |pool| pool.is_paused)
    }

    /// Connections of these keys in any state: also those that are being opened or moved.
    pub fn open_of(&self, is_meant: impl Fn(&K) -> bool) -> usize {
        let pools = self.pools.iter().flatten().filter(|pool| is_meant(&pool.key));
        pools.map(|pool| pool.open).sum()
    }
}
