//! What a server stores of a password.

use std::sync::Arc;

use zeroize::{Zeroize, Zeroizing};

use crate::scram::{
    cache::KeyCache,
    digest::Digest,
    error::Error,
    keys::{self, HmacKey, MAX_ITERATIONS, ScramKey, ScramKeys},
    message::{base64, from_base64, key_from_base64},
};

/// The salt length of PostgreSQL.
const SALT_BYTES: usize = 16;

/// A salted, iterated hash of a password, and the key to sign with. It suffices to verify a client and to
/// impersonate the server, but not to log in. Hence it has no `Debug`. Clones share its keys.
#[derive(Clone)]
pub struct Verifier(Arc<VerifierKeys>);

struct VerifierKeys {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: ScramKey,
    server_key: ScramKey,
    /// The rest is computed from the above, once for all logins.
    proof_key: HmacKey,
    signature_key: HmacKey,
    /// Salt and iterations, as in the server's first message.
    challenge: String,
}

impl Verifier {
    /// The verifier of a password with a fresh salt; 1 to [`MAX_ITERATIONS`] iterations.
    pub fn of(password: &[u8], iterations: u32) -> Result<Self, Error> {
        Self::with_salt(password, iterations, &keys::random::<SALT_BYTES>()?)
    }

    pub fn with_salt(password: &[u8], iterations: u32, salt: &[u8]) -> Result<Self, Error> {
        Self::with_digest(Digest::Sha256, password, iterations, salt)
    }

    /// A verifier for another digest than SHA-256.
    pub fn with_digest(digest: Digest, password: &[u8], iterations: u32, salt: &[u8]) -> Result<Self, Error> {
        if salt.is_empty() {
            return Err(Error::InvalidVerifier { reason: "an empty salt" });
        }
        let iterations = bounded(iterations)?;
        let keys = ScramKeys::derive(digest, password, salt, iterations)?;
        Ok(Self::new(iterations, salt.to_vec(), keys.stored(), *keys.server()))
    }

    fn new(iterations: u32, salt: Vec<u8>, stored_key: ScramKey, server_key: ScramKey) -> Self {
        Self(Arc::new(VerifierKeys {
            iterations,
            challenge: format!("s={},i={iterations}", base64(&salt)),
            salt,
            stored_key,
            server_key,
            proof_key: HmacKey::new(&stored_key),
            signature_key: HmacKey::new(&server_key),
        }))
    }

    /// Parses `SCRAM-SHA-256$ITERATIONS:SALT$StoredKey:ServerKey`, the form of PostgreSQL's `rolpassword`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let invalid = |reason| Error::InvalidVerifier { reason };
        let rest = text.strip_prefix(Digest::Sha256.mechanism()).and_then(|rest| rest.strip_prefix('$'));
        let rest = rest.ok_or(invalid("another scheme"))?;
        let (work, keys) = rest.split_once('$').ok_or(invalid("no keys"))?;
        let (iterations, salt) = work.split_once(':').ok_or(invalid("no salt"))?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(invalid("one key is missing"))?;
        let iterations = iterations.parse().map_err(|_| invalid("the iterations are not a number"))?;
        let salt = from_base64(salt).filter(|salt| !salt.is_empty());
        Ok(Self::new(
            bounded(iterations)?,
            salt.ok_or(invalid("the salt is empty or not base64"))?,
            key_from_base64(Digest::Sha256, stored_key).ok_or(invalid("not a key"))?,
            key_from_base64(Digest::Sha256, server_key).ok_or(invalid("not a key"))?,
        ))
    }

    /// The text that [`Verifier::parse`] reads and that PostgreSQL accepts in place of a password.
    pub fn text(&self) -> Zeroizing<String> {
        let (stored, server) =
            (Zeroizing::new(base64(&self.0.stored_key)), Zeroizing::new(base64(&self.0.server_key)));
        let text = format!(
            "{}${}:{}${}:{}",
            self.digest().mechanism(),
            self.0.iterations,
            base64(&self.0.salt),
            stored.as_str(),
            server.as_str()
        );
        Zeroizing::new(text)
    }

    pub fn digest(&self) -> Digest {
        self.0.stored_key.digest()
    }

    pub fn iterations(&self) -> u32 {
        self.0.iterations
    }

    pub(crate) fn challenge(&self) -> &str {
        &self.0.challenge
    }

    /// The `ClientKey` that a right proof reveals.
    pub(crate) fn proven(&self, auth_message: &[u8], proof: &ScramKey) -> Option<Zeroizing<ScramKey>> {
        keys::proven(&self.0.stored_key, &self.0.proof_key, auth_message, proof)
    }

    /// The keys of a login to a server with the same verifier, from the `ClientKey` that a proof has revealed.
    pub(crate) fn cached_keys(&self, client_key: Zeroizing<ScramKey>) -> KeyCache {
        let keys = ScramKeys::of(client_key, self.0.server_key);
        KeyCache::fixed(self.digest(), self.0.salt.clone(), self.0.iterations, keys)
    }

    /// `ServerSignature`.
    pub(crate) fn signature(&self, auth_message: &[u8]) -> ScramKey {
        self.0.signature_key.mac(auth_message)
    }
}

impl Drop for VerifierKeys {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

fn bounded(iterations: u32) -> Result<u32, Error> {
    match iterations {
        1..=MAX_ITERATIONS => Ok(iterations),
        0 => Err(Error::InvalidVerifier { reason: "no iterations" }),
        _ => Err(Error::IterationsTooMany { iterations: iterations.into(), limit: MAX_ITERATIONS }),
    }
}
