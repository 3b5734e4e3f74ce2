//! A client's keys, cached between exchanges.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scram::{
    digest::Digest,
    error::Error,
    keys::{MAX_ITERATIONS, ScramKeys},
};

/// The keys of one password, for the digest, salt and iterations that its server requested last. A server
/// keeps them until the password changes. Shared by all logins with that password, on any thread.
pub struct KeyCache {
    max_iterations: u32,
    origin: KeyOrigin,
    entry: Mutex<Option<CachedKeys>>,
}

/// Where the keys come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyOrigin {
    /// They are derived from a password.
    Password,
    /// From a client's proof: no password is known, so further keys cannot be derived.
    Proof,
}

struct CachedKeys {
    digest: Digest,
    salt: Vec<u8>,
    iterations: u32,
    keys: ScramKeys,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self::with_max_iterations(MAX_ITERATIONS)
    }
}

impl KeyCache {
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty cache. `max_iterations` limits what a server may request.
    pub fn with_max_iterations(max_iterations: u32) -> Self {
        Self { max_iterations, origin: KeyOrigin::Password, entry: Mutex::new(None) }
    }

    /// The keys of a client's proof, valid only for this salt and number of iterations.
    pub(crate) fn fixed(digest: Digest, salt: Vec<u8>, iterations: u32, keys: ScramKeys) -> Self {
        let entry = Mutex::new(Some(CachedKeys { digest, salt, iterations, keys }));
        // Other numbers of iterations are refused, so they cost nothing.
        Self { max_iterations: MAX_ITERATIONS, origin: KeyOrigin::Proof, entry }
    }

    /// Whether there is a password to derive keys from, or to send.
    pub(crate) fn has_password(&self) -> bool {
        self.origin == KeyOrigin::Password
    }

    /// The most iterations that a server may request.
    pub fn max_iterations(&self) -> u32 {
        self.max_iterations
    }

    fn entry(&self) -> MutexGuard<'_, Option<CachedKeys>> {
        // A thread that panicked left the entry intact.
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys, if they were the last to be derived.
    pub(crate) fn known(&self, digest: Digest, salt: &[u8], iterations: u32) -> Option<ScramKeys> {
        let entry = self.entry();
        let known = entry.as_ref()?;
        let is_same = known.digest == digest && known.salt == salt && known.iterations == iterations;
        is_same.then(|| known.keys.clone())
    }

    /// The keys, derived if they are not cached. No lock is held meanwhile, so two threads may derive the
    /// same keys.
    pub(crate) fn keys(
        &self,
        digest: Digest,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<ScramKeys, Error> {
        if let Some(keys) = self.known(digest, salt, iterations) {
            return Ok(keys);
        }
        if !self.has_password() {
            return Err(Error::OtherVerifier);
        }
        let keys = ScramKeys::derive(digest, password, salt, iterations)?;
        *self.entry() = Some(CachedKeys { digest, salt: salt.to_vec(), iterations, keys: keys.clone() });
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_derived_only_for_another_salt_count_or_digest() {
        let cache = KeyCache::new();
        let stored = |digest, password: &[u8], salt: &[u8], iterations| {
            cache.keys(digest, password, salt, iterations).unwrap().stored().to_vec()
        };
        let first = stored(Digest::Sha256, b"secret", b"salt", 4096);
        // The cache belongs to one password, which is not part of the lookup. A wrong one shows that nothing
        // is derived.
        assert_eq!(stored(Digest::Sha256, b"unused", b"salt", 4096), first);
        let other_salt = stored(Digest::Sha256, b"secret", b"pepper", 4096);
        assert_ne!(other_salt, first);
        let other_count = stored(Digest::Sha256, b"secret", b"pepper", 4097);
        assert_ne!(other_count, other_salt);
        assert_eq!(stored(Digest::Sha1, b"secret", b"pepper", 4097).len(), 20);
        assert_eq!(stored(Digest::Sha256, b"secret", b"salt", 4096), first);
    }
}
