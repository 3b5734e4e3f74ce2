//! The client's role.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    Binding, DerivedKeys, Digest, Error, KeyCache, KeyDerivation, MAX_ITERATIONS,
    keys::{self, Key, Keys},
    message::{Attributes, base64, escape},
};

/// As much as PostgreSQL's own client takes; its base64 needs no padding.
const NONCE_BYTES: usize = 18;
/// More than any server's reason has; what is longer is cut.
const MAX_REASON_CHARACTERS: usize = 256;

/// The client's first message, and what its answer is judged by.
pub struct ClientFirst {
    digest: Digest,
    min_iterations: u32,
    max_iterations: u32,
    /// The GS2 header's length in `message`.
    header_bytes: usize,
    /// The GS2 header and the data that binds the channel.
    channel: Vec<u8>,
    nonce: String,
    message: String,
}

/// The client's second and last message, and what the server must sign.
pub struct ClientFinal {
    message: String,
    iterations: u32,
    /// What a server can only know that has the password's verifier.
    expected: Zeroizing<Key>,
}

impl ClientFirst {
    /// Begins an exchange. PostgreSQL takes the user from elsewhere and wants it empty here.
    pub fn new(user: &str, binding: Binding<'_>) -> Result<Self, Error> {
        Ok(Self::with_nonce(user, binding, &base64(&keys::random::<NONCE_BYTES>()?)))
    }

    /// Begins an exchange with a nonce that is not random: for test vectors. It must be printable and without comma.
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

    /// The same with another digest than SHA-256.
    #[must_use]
    pub fn digest(self, digest: Digest) -> Self {
        Self { digest, ..self }
    }

    /// The same, but a server that asks for fewer iterations is refused.
    #[must_use]
    pub fn min_iterations(self, min_iterations: u32) -> Self {
        Self { min_iterations, ..self }
    }

    /// The same, but a server that asks for more iterations is refused.
    #[must_use]
    pub fn max_iterations(self, max_iterations: u32) -> Self {
        Self { max_iterations, ..self }
    }

    /// The message to send.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// Answers the server's first message. This derives keys from the password: about 0.2 µs for each iteration, 1 ms
    /// for as many as servers ask for.
    pub fn answer(self, password: &[u8], server_first: &[u8]) -> Result<ClientFinal, Error> {
        let challenge = self.challenge(server_first)?;
        let keys = Keys::derive(challenge.digest, password, &challenge.salt, challenge.iterations)?;
        challenge.answer(&keys)
    }

    /// The same with keys that are kept: nothing is derived where salt and iterations are those of the time before.
    pub fn answer_cached(
        self,
        password: &[u8],
        cache: &KeyCache,
        server_first: &[u8],
    ) -> Result<ClientFinal, Error> {
        let challenge = self.max_iterations(cache.max_iterations()).challenge(server_first)?;
        let keys = cache.keys(challenge.digest, password, &challenge.salt, challenge.iterations)?;
        challenge.answer(&keys)
    }

    /// Reads the server's first message. Its answer takes keys that may still have to be derived.
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

/// The server's first message, and what its answer is made of besides keys.
pub(crate) struct Challenge {
    digest: Digest,
    salt: Vec<u8>,
    iterations: u32,
    without_proof: String,
    auth_message: String,
}

impl Challenge {
    /// The keys of the answer, if the cache has them.
    pub(crate) fn known_keys(&self, cache: &KeyCache) -> Option<Keys> {
        cache.known(self.digest, &self.salt, self.iterations)
    }

    /// Has the keys of the answer derived.
    pub(crate) fn derivation(&self, password: &[u8], cache: &Arc<KeyCache>) -> (KeyDerivation, DerivedKeys) {
        KeyDerivation::new(self.digest, password, &self.salt, self.iterations, cache)
    }

    /// Answers it.
    pub(crate) fn answer(self, keys: &Keys) -> Result<ClientFinal, Error> {
        let Self { iterations, without_proof, auth_message, .. } = self;
        let proof = keys.proof(auth_message.as_bytes())?;
        Ok(ClientFinal {
            message: format!("{without_proof},p={}", base64(&proof)),
            iterations,
            expected: Zeroizing::new(keys::server_signature(keys.server(), auth_message.as_bytes())?),
        })
    }
}

impl ClientFinal {
    /// The message to send.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// The iterations that the server asked for.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Judges the server's last message: whether the server, too, knows the password.
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

/// A count of iterations, saturated where it is beyond all reason.
fn iterations(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the iterations are not a number");
    }
    match text.parse().unwrap_or(u64::MAX) {
        0 => Err("no iterations"),
        iterations => Ok(iterations),
    }
}
