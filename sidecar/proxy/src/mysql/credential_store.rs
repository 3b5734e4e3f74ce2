//! The passwords that clients must know.

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::Plugin;
use ciphertoll_wire::mysql::auth::caching_sha2::CachedPassword;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::server::StoredPassword;
use foldhash::HashMap;

/// Length of a random password that no client knows.
const DECOY_BYTES: usize = 32;

/// Verifies that clients know the password of their user, by the plugins that need only the greeting's
/// challenge, or in clear text over TLS.
pub struct CredentialStore {
    passwords: HashMap<String, StoredCredentials>,
    /// For unknown users: it costs the same, but no password matches.
    decoy: StoredCredentials,
}

pub(super) struct StoredCredentials {
    native: StoredPassword,
    sha2: CachedPassword,
}

impl CredentialStore {
    /// Accepts the passwords of these users; `None` if OpenSSL has no random bytes.
    pub fn for_users<'a>(users: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Option<Self> {
        let mut decoy = [0; DECOY_BYTES];
        openssl::rand::rand_bytes(&mut decoy).ok()?;
        let passwords = users
            .into_iter()
            .map(|(user, password)| (user.to_owned(), StoredCredentials::of(password.expose())));
        Some(Self { passwords: passwords.collect(), decoy: StoredCredentials::of(&decoy) })
    }

    pub(super) fn stored(&self, user: &str) -> &StoredCredentials {
        self.passwords.get(user).unwrap_or(&self.decoy)
    }

    pub(super) fn accepts(
        &self,
        user: &str,
        plugin: Plugin,
        nonce: &[u8; NONCE_BYTES],
        proof: &[u8],
    ) -> bool {
        self.stored(user).accepts(plugin, nonce, proof)
    }
}

impl StoredCredentials {
    pub(super) fn of(password: &[u8]) -> Self {
        Self { native: StoredPassword::of(password), sha2: CachedPassword::of(password) }
    }

    /// Whether this response to the challenge was computed from the password.
    pub(super) fn accepts(&self, plugin: Plugin, nonce: &[u8; NONCE_BYTES], proof: &[u8]) -> bool {
        match plugin {
            Plugin::NativePassword => self.native.accepts(nonce, proof),
            Plugin::CachingSha2Password => self.sha2.accepts(nonce, proof),
            Plugin::Ed25519 | Plugin::Parsec => false,
        }
    }

    pub(super) fn is_of(&self, password: &[u8]) -> bool {
        self.sha2.is_of(password)
    }
}
