//! One side of a key exchange: generating a key and deriving the shared secret.

use ciphertoll_model::{Group, KeyExchangeTime};
use openssl::derive::Deriver;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::pkey_ctx::PkeyCtx;

use crate::primitives::error::PrimitiveError;
use crate::primitives::rounds::operation_ns;

/// The CPU time of one side of a key exchange in `group`. `None` with ML-KEM, which encapsulates
/// instead: the bindings to OpenSSL offer that only as unsafe code.
pub(crate) fn key_exchange(
    group: Group,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<KeyExchangeTime>, PrimitiveError> {
    let failed = |why| PrimitiveError::OpenSsl { what: group.label(), why };
    let Some(curve) = Curve::of(group) else { return Ok(None) };
    let peer = curve.generate().map_err(failed)?;
    let agree_ns = operation_ns(interrupted, || agree(curve, &peer).map(drop).map_err(failed))?;
    Ok(Some(KeyExchangeTime { agree_ns }))
}

#[derive(Clone, Copy)]
enum Curve {
    Montgomery,
    Named(Nid),
}

impl Curve {
    fn of(group: Group) -> Option<Self> {
        Some(match group {
            Group::X25519 => Self::Montgomery,
            Group::P256 => Self::Named(Nid::X9_62_PRIME256V1),
            Group::P384 => Self::Named(Nid::SECP384R1),
            Group::P521 => Self::Named(Nid::SECP521R1),
            Group::X25519MlKem768
            | Group::SecP256r1MlKem768
            | Group::MlKem768
            | Group::SecP384r1MlKem1024
            | Group::MlKem1024 => return None,
        })
    }

    fn generate(self) -> Result<PKey<Private>, ErrorStack> {
        match self {
            Self::Montgomery => PKey::generate_x25519(),
            Self::Named(curve) => generate_on(curve),
        }
    }
}

/// Generated as OpenSSL's TLS does it.
pub(crate) fn generate_on(curve: Nid) -> Result<PKey<Private>, ErrorStack> {
    let mut context = PkeyCtx::new_id(Id::EC)?;
    context.keygen_init()?;
    context.set_ec_paramgen_curve_nid(curve)?;
    context.keygen()
}

fn agree(curve: Curve, peer: &PKeyRef<impl HasPublic>) -> Result<Vec<u8>, ErrorStack> {
    derived(&*curve.generate()?, peer)
}

fn derived(own: &PKeyRef<Private>, peer: &PKeyRef<impl HasPublic>) -> Result<Vec<u8>, ErrorStack> {
    let mut deriver = Deriver::new(own)?;
    // Validates the peer's point, as TLS does.
    deriver.set_peer(peer)?;
    deriver.derive_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_every_curve() {
        for group in Group::ALL {
            let Some(curve) = Curve::of(group) else { continue };
            let (one, other) = (curve.generate().unwrap(), curve.generate().unwrap());
            assert_eq!(derived(&one, &other).unwrap(), derived(&other, &one).unwrap(), "{group}");
            assert_ne!(agree(curve, &one).unwrap(), agree(curve, &one).unwrap(), "{group}: fresh keys");
        }
    }

    #[test]
    fn every_group_except_mlkem_is_timed() {
        for group in Group::ALL {
            let time = key_exchange(group, &|| false).unwrap();
            assert_eq!(time.is_some(), !group.has_ml_kem(), "{group}");
            assert!(time.is_none_or(|time| time.agree_ns > 0), "{group}");
        }
    }
}
