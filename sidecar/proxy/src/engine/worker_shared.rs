//! Values that several workers use.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that workers use in turn. With a single worker it needs no lock.
pub(super) enum WorkerShared<T> {
    Alone(Box<T>),
    Locked(Arc<Mutex<T>>),
}

impl<T> WorkerShared<T> {
    pub(super) fn for_workers(value: T, threads: usize) -> Vec<Self> {
        if threads == 1 {
            return vec![Self::Alone(Box::new(value))];
        }
        let value = Arc::new(Mutex::new(value));
        (0..threads).map(|_| Self::Locked(Arc::clone(&value))).collect()
    }

    pub(super) fn with<R>(&mut self, update: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Self::Alone(value) => update(value),
            // A worker that panics stops all of them.
            Self::Locked(value) => update(&mut value.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub(super) fn read<R>(&self, inspect: impl FnOnce(&T) -> R) -> R {
        match self {
            Self::Alone(value) => inspect(value),
            Self::Locked(value) => inspect(&value.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
