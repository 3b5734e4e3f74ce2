//! The CPU time of one signature and of its verification, as in a handshake.

use ciphertoll_model::{ServerKey, SignatureTime};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Signer, Verifier};

use crate::primitives::agreement::generate_on;
use crate::primitives::error::PrimitiveError;
use crate::primitives::rounds::operation_ns;

/// What a server signs in TLS 1.3: 64 spaces, a line of 33 bytes, a zero and a hash (RFC 8446, 4.4.3). TLS
/// 1.2 signs about as much, and only its hash counts.
const SIGNED: [u8; 130] = [b' '; 130];

/// The CPU time of signing with a fresh `key` and of verifying. RSA uses PSS with SHA-256, as in TLS 1.3
/// (PKCS #1 of TLS 1.2 takes the same time); ECDSA uses SHA-256, on P-384 SHA-384. Generating a long RSA key
/// takes a second or more, during which `interrupted` is not checked. `None` for ML-DSA, which the bindings to OpenSSL do
/// not generate.
pub(crate) fn signature(
    key: ServerKey,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<SignatureTime>, PrimitiveError> {
    let failed = |why| PrimitiveError::OpenSsl { what: key.label(), why };
    if interrupted() {
        return Err(PrimitiveError::Interrupted);
    }
    let Some(private) = generate(key).map_err(failed)? else { return Ok(None) };
    let signature = sign(key, &private).map_err(failed)?;
    if !verifies(key, &private, &signature).map_err(failed)? {
        return Err(PrimitiveError::NotVerified { what: key.label() });
    }
    let sign_ns = operation_ns(interrupted, || sign(key, &private).map(drop).map_err(failed))?;
    let verify_ns =
        operation_ns(interrupted, || verifies(key, &private, &signature).map(drop).map_err(failed))?;
    Ok(Some(SignatureTime { sign_ns, verify_ns }))
}

/// `None` for ML-DSA, which the bindings to OpenSSL do not generate.
fn generate(key: ServerKey) -> Result<Option<PKey<Private>>, ErrorStack> {
    match key {
        ServerKey::P256 => generate_on(Nid::X9_62_PRIME256V1),
        ServerKey::P384 => generate_on(Nid::SECP384R1),
        ServerKey::Ed25519 => PKey::generate_ed25519(),
        ServerKey::Rsa1024 => PKey::from_rsa(Rsa::generate(1024)?),
        ServerKey::Rsa2048 => PKey::from_rsa(Rsa::generate(2048)?),
        ServerKey::Rsa3072 => PKey::from_rsa(Rsa::generate(3072)?),
        ServerKey::Rsa4096 => PKey::from_rsa(Rsa::generate(4096)?),
        ServerKey::MlDsa44 | ServerKey::MlDsa65 => return Ok(None),
    }
    .map(Some)
}

fn sign(key: ServerKey, private: &PKey<Private>) -> Result<Vec<u8>, ErrorStack> {
    let mut signer = match digest(key) {
        Some(digest) => Signer::new(digest, private)?,
        None => Signer::new_without_digest(private)?,
    };
    if key.rsa_bits().is_some() {
        signer.set_rsa_padding(Padding::PKCS1_PSS)?;
        signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
    }
    signer.sign_oneshot_to_vec(&SIGNED)
}

fn verifies(key: ServerKey, public: &PKey<Private>, signature: &[u8]) -> Result<bool, ErrorStack> {
    let mut verifier = match digest(key) {
        Some(digest) => Verifier::new(digest, public)?,
        None => Verifier::new_without_digest(public)?,
    };
    if key.rsa_bits().is_some() {
        verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
        verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
    }
    verifier.verify_oneshot(signature, &SIGNED)
}

/// Ed25519 and ML-DSA hash by themselves.
fn digest(key: ServerKey) -> Option<MessageDigest> {
    match key {
        ServerKey::Ed25519 | ServerKey::MlDsa44 | ServerKey::MlDsa65 => None,
        ServerKey::P384 => Some(MessageDigest::sha384()),
        ServerKey::P256
        | ServerKey::Rsa1024
        | ServerKey::Rsa2048
        | ServerKey::Rsa3072
        | ServerKey::Rsa4096 => Some(MessageDigest::sha256()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_verifies_its_own_signatures_only() {
        for key in ServerKey::ALL {
            let Some(private) = generate(key).unwrap() else {
                assert!(key.is_ml_dsa(), "{key}");
                continue;
            };
            let signature = sign(key, &private).unwrap();
            assert!(verifies(key, &private, &signature).unwrap(), "{key}");
            let other = sign(key, &generate(key).unwrap().unwrap()).unwrap();
            assert!(!verifies(key, &private, &other).unwrap_or(false), "{key}");
        }
    }

    #[test]
    fn signing_and_verifying_are_timed_separately() {
        // RSA verification takes a fiftieth of signing: the difference is larger than any disturbance.
        let time = signature(ServerKey::Rsa3072, &|| false).unwrap().unwrap();
        assert!(time.sign_ns > time.verify_ns && time.verify_ns > 0, "{time:?}");
    }

    #[test]
    fn an_interrupt_is_checked_before_the_key_is_generated() {
        assert!(matches!(signature(ServerKey::Rsa4096, &|| true), Err(PrimitiveError::Interrupted)));
    }
}
