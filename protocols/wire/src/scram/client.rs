//! The client side.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::scram::{
    cache::KeyCache,
    derivation::{DerivedKeys, KeyDerivation},
    digest::Digest,
    error::Error,
    keys::{self, HmacKey, MAX_ITERATIONS, ScramKey, ScramKeys},
    mechanism::Binding,
    message::{Attributes, base64, escape},
};

/// The nonce length of PostgreSQL's client; its base64 needs no padding.
const NONCE_BYTES: usize = 18;
/// Longer than any server's reason; the rest is cut.
const MAX_REASON_CHARACTERS: usize = 256;

/// The client's first message, and the state to answer the server's.
pub struct ClientFirst {
    digest: Digest,
    min_iterations: u32,
    max_iterations: u32,
    /// The length of the GS2 header in `message`.
    header_bytes: usize,
    /// The GS2 header and the channel binding data.
    channel: Vec<u8>,
    nonce: String,
    message: String,
}

/// The client's final message, and the signature expected from the server.
pub struct ClientFinal {
    message: String,
    iterations: u32,
    /// Only a server with the password's verifier can compute it.
    expected: Zeroizing<ScramKey>,
}

impl ClientFirst {
    /// Starts an exchange. PostgreSQL ignores the user and expects it to be empty.
    pub fn new(user: &str, binding: Binding<'_>) -> Result<Self, Error> {
        Ok(Self::with_nonce(user, binding, &base64(&keys::random::<NONCE_BYTES>()?)))
    }

    /// Starts an exchange with a fixed nonce, for test vectors. It must be printable and without comma.
    pub fn with_nonce(user: &str, binding: Binding<'_>, nonce: &str) -> Self {
        let (header, data) = match binding {
            Binding::None => ("n,,", &[][..]),
            Binding::NotOffered => ("y,,", &[][..]),
            Binding::ServerEndPoint(hash) => ("p=tls-server-end-point,,", hash),
        };
        Self {
            digest: Digest::Sha256,
            min_iterations: 1,
            max_iterations: MAX_ITERATIONS,
            header_bytes: header.len(),
            channel: [header.as_bytes(), data].concat(),
            nonce: nonce.to_owned(),
            message: format!("{header}n={},r={nonce}", escape(user)),
        }
    }

    /// Uses another digest than SHA-256.
    #[must_use]
    pub fn digest(self, digest: Digest) -> Self {
        Self { digest, ..self }
    }

    /// Refuses a server that requests fewer iterations.
    #[must_use]
    pub fn min_iterations(self, min_iterations: u32) -> Self {
        Self { min_iterations, ..self }
    }

    /// Refuses a server that requests more iterations.
    #[must_use]
    pub fn max_iterations(self, max_iterations: u32) -> Self {
        Self { max_iterations, ..self }
    }

    /// The message to send.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// Answers the server's first message. Derives keys from the password: about 0.2 µs per iteration, 1 ms
    /// for the usual number.
    pub fn answer(self, password: &[u8], server_first: &[u8]) -> Result<ClientFinal, Error> {
        let challenge = self.challenge(server_first)?;
        let keys = ScramKeys::derive(challenge.digest, password, &challenge.salt, challenge.iterations)?;
        Ok(challenge.answer(&keys))
    }

    /// The same with cached keys, if salt and iterations are unchanged.
    pub fn answer_cached(
        self,
        password: &[u8],
        cache: &KeyCache,
        server_first: &[u8],
    ) -> Result<ClientFinal, Error> {
        let challenge = self.max_iterations(cache.max_iterations()).challenge(server_first)?;
        let keys = cache.keys(challenge.digest, password, &challenge.salt, challenge.iterations)?;
        Ok(challenge.answer(&keys))
    }

    /// Parses the server's first message. Its answer needs keys that may have to be derived.
    pub(crate) fn challenge(self, server_first: &[u8]) -> Result<Challenge, Error> {
        let mut attributes = Attributes::new(server_first, "first message")?;
        let whole = attributes.rest();
        let nonce = attributes.nonce()?;
        if nonce.strip_prefix(&self.nonce).is_none_or(str::is_empty) {
            return Err(attributes.error("its nonce does not extend the client's"));
        }
        let salt = attributes.base64('s')?;
        if salt.is_empty() {
            return Err(attributes.error("an empty salt"));
        }
        let iterations = iterations(attributes.value('i')?).map_err(|reason| attributes.error(reason))?;
        let limit = self.max_iterations.min(MAX_ITERATIONS);
        if iterations > u64::from(limit) {
            return Err(Error::IterationsTooMany { iterations, limit });
        }
        let iterations = iterations as u32;
        if iterations < self.min_iterations {
            return Err(Error::IterationsTooFew { iterations, limit: self.min_iterations });
        }
        let without_proof = format!("c={},r={nonce}", base64(&self.channel));
        let bare = &self.message[self.header_bytes..];
        let auth_message = format!("{bare},{whole},{without_proof}");
        Ok(Challenge { digest: self.digest, salt, iterations, without_proof, auth_message })
    }
}

/// The server's first message, and the parts of its answer that need no keys.
pub(crate) struct Challenge {
    digest: Digest,
    salt: Vec<u8>,
    iterations: u32,
    without_proof: String,
    auth_message: String,
}

impl Challenge {
    /// The keys for the answer, if they are cached.
    pub(crate) fn known_keys(&self, cache: &KeyCache) -> Option<ScramKeys> {
        cache.known(self.digest, &self.salt, self.iterations)
    }

    /// Prepares the derivation of the keys for the answer.
    pub(crate) fn derivation(&self, password: &[u8], cache: &Arc<KeyCache>) -> (KeyDerivation, DerivedKeys) {
        KeyDerivation::new(self.digest, password, &self.salt, self.iterations, cache)
    }

    pub(crate) fn answer(self, keys: &ScramKeys) -> ClientFinal {
        let Self { iterations, without_proof, auth_message, .. } = self;
        let proof = keys.proof(auth_message.as_bytes());
        ClientFinal {
            message: format!("{without_proof},p={}", base64(&proof)),
            iterations,
            expected: Zeroizing::new(HmacKey::new(keys.server()).mac(auth_message.as_bytes())),
        }
    }
}

impl ClientFinal {
    /// The message to send.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// The iterations that the server requested.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Verifies the server's final message: whether the server knows the password, too.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), Error> {
        let mut attributes = Attributes::new(server_final, "final message")?;
        if let Some(reason) = attributes.rest().strip_prefix("e=") {
            let reason = reason.chars().filter(|character| !character.is_control());
            return Err(Error::Refused { reason: reason.take(MAX_REASON_CHARACTERS).collect() });
        }
        if keys::equal(&attributes.key('v', self.expected.digest())?, &self.expected) {
            Ok(())
        } else {
            Err(Error::ServerSignature)
        }
    }
}

/// The number of iterations, saturated.
fn iterations(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the iterations are not a number");
    }
    match text.parse().unwrap_or(u64::MAX) {
        0 => Err("no iterations"),
        iterations => Ok(iterations),
    }
}
