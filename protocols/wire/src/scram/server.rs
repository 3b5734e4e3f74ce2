//! The server side.

use std::borrow::Cow;

use zeroize::Zeroizing;

use crate::scram::{
    cache::KeyCache,
    digest::Digest,
    error::Error,
    keys::{self, ScramKey},
    mechanism::{Binding, Mechanism},
    message::{Attributes, base64, push_base64},
    verifier::Verifier,
};

/// The channel binding type that is supported, as the GS2 header names it.
const END_POINT: &str = "p=tls-server-end-point";
/// Room for a nonce in base64, a comma and the name of an attribute.
const NONCE_ROOM: usize = 32;

/// The server's first message, and the state to verify the client's proof.
pub struct ServerFirst {
    verifier: Verifier,
    /// The `c` attribute that the client must send.
    channel: Cow<'static, str>,
    /// What both sides sign, as far as it is known: the client's first message without its header, and the server's.
    auth_message: String,
    /// Where the server's message begins in it.
    message_at: usize,
    /// The length of the attribute `r` in the server's message.
    nonce_bytes: usize,
}

impl ServerFirst {
    /// The server's part of a nonce; its base64 needs no padding.
    pub const NONCE_BYTES: usize = 18;

    /// Answers a client's first message; the digest is the verifier's. `channel` is the binding that this
    /// server supports, whether the client uses it or not: a client that claims the server offered none is
    /// refused.
    pub fn answer(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
    ) -> Result<Self, Error> {
        Self::with_random(verifier, mechanism, channel, client_first, keys::random()?)
    }

    /// Answers with random bytes that are used for nothing else.
    pub fn with_random(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
        random: [u8; Self::NONCE_BYTES],
    ) -> Result<Self, Error> {
        Self::begin(verifier, mechanism, channel, client_first, |message| push_base64(message, &random))
    }

    /// Answers with a fixed nonce, for test vectors. It must be printable and without comma.
    pub fn with_nonce(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
        nonce: &str,
    ) -> Result<Self, Error> {
        Self::begin(verifier, mechanism, channel, client_first, |message| message.push_str(nonce))
    }

    fn begin(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
        push_nonce: impl FnOnce(&mut String),
    ) -> Result<Self, Error> {
        let mut attributes = Attributes::new(client_first, "first message")?;
        let flag = attributes.field()?;
        let channel = match (mechanism, flag, channel) {
            (Mechanism::Sha256, "n", _) => Cow::Borrowed("biws"),
            (Mechanism::Sha256, "y", Binding::None | Binding::NotOffered) => Cow::Borrowed("eSws"),
            (Mechanism::Sha256Plus, END_POINT, Binding::ServerEndPoint(hash)) => {
                Cow::Owned(base64(&[END_POINT.as_bytes(), b",,", hash].concat()))
            }
            _ => return Err(Error::BindingMismatch),
        };
        if !attributes.field()?.is_empty() {
            return Err(attributes.error("an authorization identity, which is not supported"));
        }
        let client_bare = attributes.rest();
        attributes.value('n')?;
        let client_nonce = attributes.nonce()?;
        // The client's final message repeats the nonces and the channel.
        let nonces = 2 * (client_nonce.len() + NONCE_ROOM);
        let room = client_bare.len() + verifier.challenge().len() + nonces + channel.len() + NONCE_ROOM;
        let mut auth_message = String::with_capacity(room);
        auth_message.extend([client_bare, ","]);
        let message_at = auth_message.len();
        auth_message.extend(["r=", client_nonce]);
        push_nonce(&mut auth_message);
        let nonce_bytes = auth_message.len() - message_at;
        auth_message.extend([",", verifier.challenge()]);
        Ok(Self { verifier: verifier.clone(), channel, auth_message, message_at, nonce_bytes })
    }

    /// The message to send.
    pub fn message(&self) -> &[u8] {
        &self.auth_message.as_bytes()[self.message_at..]
    }

    /// Verifies the client's final message. Returns the server's final message if the proof is right.
    pub fn judge(self, client_final: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.verified(client_final)?.0)
    }

    /// The same, with the keys that the proof reveals: they suffice to log in to a server that has the same verifier.
    pub fn judge_with_keys(self, client_final: &[u8]) -> Result<(Vec<u8>, KeyCache), Error> {
        let verifier = self.verifier.clone();
        let (message, client_key) = self.verified(client_final)?;
        Ok((message, verifier.cached_keys(client_key)))
    }

    fn verified(self, client_final: &[u8]) -> Result<(Vec<u8>, Zeroizing<ScramKey>), Error> {
        let mut attributes = Attributes::new(client_final, "final message")?;
        let whole = attributes.rest();
        let without_proof = whole.rsplit_once(",p=").map_or(whole, |(before, _)| before);
        if attributes.value('c')? != self.channel {
            return Err(Error::BindingMismatch);
        }
        if attributes.field()?.as_bytes() != &self.message()[..self.nonce_bytes] {
            return Err(attributes.error("another nonce"));
        }
        let proof = proof(&mut attributes, self.verifier.digest())?;
        let Self { verifier, mut auth_message, .. } = self;
        auth_message.extend([",", without_proof]);
        let client_key = verifier.proven(auth_message.as_bytes(), &proof).ok_or(Error::WrongProof)?;
        let signature = verifier.signature(auth_message.as_bytes());
        let mut message = auth_message;
        message.clear();
        message.push_str("v=");
        push_base64(&mut message, &signature);
        Ok((message.into_bytes(), client_key))
    }
}

/// The proof, which must be the last attribute. Extensions before it may be ignored.
fn proof(attributes: &mut Attributes<'_>, digest: Digest) -> Result<ScramKey, Error> {
    while !attributes.rest().starts_with("p=") {
        attributes.field()?;
    }
    let proof = attributes.key('p', digest)?;
    if attributes.rest().is_empty() {
        Ok(proof)
    } else {
        Err(attributes.error("unexpected bytes at its end"))
    }
}
