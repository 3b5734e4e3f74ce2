//! What operators decide of keys: which are paused.

use super::{ConnectionPool, WorkerBound};
use crate::protocol::PoolKey;

impl<K: PoolKey, S: WorkerBound, C: WorkerBound> ConnectionPool<K, S, C> {
    /// Pauses the keys that `covers` names, and no others. A rule that is not newer than the present one changes nothing.
    pub fn set_paused(&mut self, version: u64, covers: impl Fn(&K) -> bool + Send + 'static) {
        if self.pause.replace(version, covers) {
            for pool in self.pools.iter_mut().flatten() {
                pool.is_paused = self.pause.covers(&pool.key);
            }
        }
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
