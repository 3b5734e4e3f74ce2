//! The server side.

use crate::scram::{
    digest::Digest,
    error::Error,
    keys::{self, ScramKey},
    mechanism::{Binding, Mechanism},
    message::{Attributes, base64},
    verifier::Verifier,
};

const NONCE_BYTES: usize = 18;
/// The supported channel binding type, as the GS2 header names it.
const END_POINT: &str = "p=tls-server-end-point";

/// The server's first message, and the state to verify the client's proof.
pub struct ServerFirst {
    verifier: Verifier,
    nonce: String,
    /// The decoded `c` attribute that the client must send.
    channel: Vec<u8>,
    client_bare: String,
    message: String,
}

impl ServerFirst {
    /// Answers a client's first message; the digest is the verifier's. `channel` is the binding that this
    /// server supports, whether the client uses it or not: a client that claims the server offered none is
    /// refused.
    pub fn answer(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
    ) -> Result<Self, Error> {
        Self::with_nonce(verifier, mechanism, channel, client_first, &base64(&keys::random::<NONCE_BYTES>()?))
    }

    /// Answers with a fixed nonce, for test vectors. It must be printable and without comma.
    pub fn with_nonce(
        verifier: &Verifier,
        mechanism: Mechanism,
        channel: Binding<'_>,
        client_first: &[u8],
        nonce: &str,
    ) -> Result<Self, Error> {
        let mut attributes = Attributes::new(client_first, "first message")?;
        let flag = attributes.field()?;
        let data = match (mechanism, flag, channel) {
            (Mechanism::Sha256, "n", _) | (Mechanism::Sha256, "y", Binding::None | Binding::NotOffered) => {
                &[][..]
            }
            (Mechanism::Sha256Plus, END_POINT, Binding::ServerEndPoint(hash)) => hash,
            _ => return Err(Error::BindingMismatch),
        };
        if !attributes.field()?.is_empty() {
            return Err(attributes.error("an authorization identity, which is not supported"));
        }
        let client_bare = attributes.rest().to_owned();
        attributes.value('n')?;
        let nonce = format!("{}{nonce}", attributes.nonce()?);
        let message = format!("r={nonce},s={},i={}", base64(&verifier.salt), verifier.iterations);
        let channel = [flag.as_bytes(), b",,", data].concat();
        Ok(Self { verifier: verifier.clone(), nonce, channel, client_bare, message })
    }

    /// The message to send.
    pub fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// Verifies the client's final message. Returns the server's final message if the proof is right.
    pub fn judge(self, client_final: &[u8]) -> Result<Vec<u8>, Error> {
        let mut attributes = Attributes::new(client_final, "final message")?;
        let whole = attributes.rest();
        let without_proof = whole.rsplit_once(",p=").map_or(whole, |(before, _)| before);
        if attributes.base64('c')? != self.channel {
            return Err(Error::BindingMismatch);
        }
        if attributes.nonce()? != self.nonce {
            return Err(attributes.error("another nonce"));
        }
        let proof = proof(&mut attributes, self.verifier.digest())?;
        let auth_message = format!("{},{},{without_proof}", self.client_bare, self.message);
        if !keys::proves(&self.verifier.stored_key, auth_message.as_bytes(), &proof)? {
            return Err(Error::WrongProof);
        }
        let signature = keys::server_signature(&self.verifier.server_key, auth_message.as_bytes())?;
        Ok(format!("v={}", base64(&signature)).into_bytes())
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
