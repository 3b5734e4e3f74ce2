//! Paused keys: none of their connections is handed out and none is opened, so their clients wait. Connections that clients
//! use are closed by their workers when the clients release them, and the others at once. A key is paused until the last
//! connection is closed and beyond, whichever clients and connections come and go.

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
    /// Becomes this rule if it is newer.
    pub(super) fn replace(&mut self, version: u64, covers: impl Fn(&K) -> bool + Send + 'static) -> bool {
        let is_newer = version > self.version;
        if is_newer {
            *self = Self { version, covers: Some(Box::new(covers)) };
        }
        is_newer
    }

    pub(super) fn covers(&self, key: &K) -> bool {
        self.covers.as_ref().is_some_and(|covers| covers(key))
    }
}
