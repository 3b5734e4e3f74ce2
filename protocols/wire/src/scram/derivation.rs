//! Key derivation on another thread, as it may take seconds.

use std::sync::{Arc, OnceLock, Weak};

use zeroize::Zeroizing;

use crate::scram::{cache::KeyCache, digest::Digest, error::Error, keys::ScramKeys};

/// The derivation of keys that a login waits for. Runs on any thread.
pub struct KeyDerivation {
    digest: Digest,
    password: Zeroizing<Vec<u8>>,
    salt: Vec<u8>,
    iterations: u32,
    cache: Arc<KeyCache>,
    result: Weak<OnceLock<Result<ScramKeys, Error>>>,
}

/// The login's handle of a [`KeyDerivation`].
pub(crate) struct DerivedKeys(Arc<OnceLock<Result<ScramKeys, Error>>>);

impl KeyDerivation {
    pub(crate) fn new(
        digest: Digest,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
        cache: &Arc<KeyCache>,
    ) -> (Self, DerivedKeys) {
        let result = Arc::new(OnceLock::new());
        let derivation = Self {
            digest,
            password: Zeroizing::new(password.to_vec()),
            salt: salt.to_vec(),
            iterations,
            cache: Arc::clone(cache),
            result: Arc::downgrade(&result),
        };
        (derivation, DerivedKeys(result))
    }

    /// Derives the keys, unless they have been cached meanwhile or the login has ended. Afterwards the login
    /// must be stepped again.
    pub fn run(self) {
        if let Some(result) = self.result.upgrade() {
            let keys = self.cache.keys(self.digest, &self.password, &self.salt, self.iterations);
            // Set only once, because `run` consumes self.
            let _ = result.set(keys);
        }
    }
}

impl DerivedKeys {
    /// The keys, if they have been derived.
    pub(crate) fn get(&self) -> Option<Result<ScramKeys, Error>> {
        self.0.get().cloned()
    }
}
