//! What a server stores of a password.

use zeroize::{Zeroize, Zeroizing};

use crate::scram::{
    digest::Digest,
    error::Error,
    keys::{self, MAX_ITERATIONS, ScramKey, ScramKeys},
    message::{base64, from_base64, key_from_base64},
};

/// The salt length of PostgreSQL.
const SALT_BYTES: usize = 16;

/// A salted, iterated hash of a password, and the key to sign with. It suffices to verify a client and to
/// impersonate the server, but not to log in. Hence it has no `Debug`.
#[derive(Clone)]
pub struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: ScramKey,
    pub(crate) server_key: ScramKey,
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
        Ok(Self { iterations, salt: salt.to_vec(), stored_key: keys.stored()?, server_key: *keys.server() })
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
        Ok(Self {
            iterations: bounded(iterations)?,
            salt: salt.ok_or(invalid("the salt is empty or not base64"))?,
            stored_key: key_from_base64(Digest::Sha256, stored_key).ok_or(invalid("not a key"))?,
            server_key: key_from_base64(Digest::Sha256, server_key).ok_or(invalid("not a key"))?,
        })
    }

    /// The text that [`Verifier::parse`] reads and that PostgreSQL accepts in place of a password.
    pub fn text(&self) -> Zeroizing<String> {
        let (stored, server) =
            (Zeroizing::new(base64(&self.stored_key)), Zeroizing::new(base64(&self.server_key)));
        let text = format!(
            "{}${}:{}${}:{}",
            self.digest().mechanism(),
            self.iterations,
            base64(&self.salt),
            stored.as_str(),
            server.as_str()
        );
        Zeroizing::new(text)
    }

    pub fn digest(&self) -> Digest {
        self.stored_key.digest()
    }

    pub fn iterations(&self) -> u32 {
        self.iterations
    }
}

impl Drop for Verifier {
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
