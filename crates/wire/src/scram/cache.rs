//! A client's keys, kept from one exchange to the next.

use std::sync::{Mutex, PoisonError};

use super::{Digest, Error, keys::Keys};

/// The keys of one password, for the digest, the salt and the iterations that its server last asked for: a server keeps both until
/// the password is set anew. Shared by all who log in with that password, on any thread.
#[derive(Default)]
pub struct KeyCache(Mutex<Option<Entry>>);

struct Entry {
    digest: Digest,
    salt: Vec<u8>,
    iterations: u32,
    keys: Keys,
}

impl KeyCache {
    /// A cache that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn keys(
        &self,
        digest: Digest,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Keys, Error> {
        // A thread that panicked has left an entry that is whole.
        let mut entry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*entry
            && known.digest == digest
            && known.salt == salt
            && known.iterations == iterations
        {
            return Ok(known.keys.clone());
        }
        let keys = Keys::derive(digest, password, salt, iterations)?;
        *entry = Some(Entry { digest, salt: salt.to_vec(), iterations, keys: keys.clone() });
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_derived_anew_only_for_another_salt_count_or_digest() {
        let cache = KeyCache::new();
        let stored = |digest, password: &[u8], salt: &[u8], iterations| {
            cache.keys(digest, password, salt, iterations).unwrap().stored().unwrap().to_vec()
        };
        let first = stored(Digest::Sha256, b"secret", b"salt", 4096);
        // The password is no part of what is asked: whose cache it is knows it. A wrong one shows that nothing is derived.
        assert_eq!(stored(Digest::Sha256, b"unused", b"salt", 4096), first);
        let other_salt = stored(Digest::Sha256, b"secret", b"pepper", 4096);
        assert_ne!(other_salt, first);
        let other_count = stored(Digest::Sha256, b"secret", b"pepper", 4097);
        assert_ne!(other_count, other_salt);
        assert_eq!(stored(Digest::Sha1, b"secret", b"pepper", 4097).len(), 20);
        assert_eq!(stored(Digest::Sha256, b"secret", b"salt", 4096), first);
    }
}
