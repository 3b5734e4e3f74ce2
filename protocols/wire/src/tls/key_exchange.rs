//! `ServerKeyExchange` (RFC 5246, 7.4.3; RFC 8422, 5.4): the group and the signature scheme up to TLS 1.2.

use std::borrow::Cow;

use crate::tls::fields::{array, number, short_vector, vector};
use crate::tls::group::NamedGroup;
use crate::tls::signature::SignatureScheme;

/// The part of a key exchange on a named curve that is read: `ECCurveType`, `NamedCurve`, a public key of up to 255
/// bytes with its length, `SignatureAndHashAlgorithm`.
pub(crate) const MAX_CURVE_EXCHANGE_BYTES: usize = 1 + 2 + 1 + 255 + 2;
const CURVE_TYPE_NAMED: u8 = 3;
const TLS_1_2: u16 = 0x0303;

/// What the ephemeral keys of a handshake belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyExchangeGroup {
    Named(NamedGroup),
    /// The integers modulo a prime that the server sent (DHE up to TLS 1.2).
    FiniteField {
        prime_bits: u32,
    },
}

impl KeyExchangeGroup {
    /// `None` for a finite field that has no number.
    pub fn named(self) -> Option<NamedGroup> {
        match self {
            Self::Named(group) => Some(group),
            Self::FiniteField { .. } => None,
        }
    }

    /// The group's name, or `dhe2048` for a prime of 2048 bits.
    pub fn label(self) -> Cow<'static, str> {
        match self {
            Self::Named(group) => group.label(),
            Self::FiniteField { prime_bits } => format!("dhe{prime_bits}").into(),
        }
    }
}

/// The parameters at the start of a `ServerKeyExchange`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyExchangeParameters {
    Curve,
    FiniteField,
}

impl KeyExchangeParameters {
    /// Those of a suite up to TLS 1.2; `None` if it has no `ServerKeyExchange`, or a pre-shared key, whose
    /// `ServerKeyExchange` starts with something else.
    pub(crate) fn of(suite: u16) -> Option<Self> {
        if names_curve(suite) {
            return Some(Self::Curve);
        }
        has_prime(suite).then_some(Self::FiniteField)
    }

    /// The group and, in TLS 1.2, the signature scheme. `start` may end before the signature.
    pub(crate) fn read(
        self,
        mut start: &[u8],
        version: u16,
    ) -> (Option<KeyExchangeGroup>, Option<SignatureScheme>) {
        let start = &mut start;
        let Some(group) = (match self {
            Self::Curve => curve(start),
            Self::FiniteField => finite_field(start),
        }) else {
            return (None, None);
        };
        let has_key = match self {
            Self::Curve => short_vector(start).is_some(),
            Self::FiniteField => vector(start).is_some(),
        };
        // Older versions sign without naming a scheme.
        let scheme = if version == TLS_1_2 && has_key { number(start).map(SignatureScheme) } else { None };
        (Some(group), scheme)
    }
}

fn curve(start: &mut &[u8]) -> Option<KeyExchangeGroup> {
    let [kind] = array(start)?;
    let group = NamedGroup(number(start)?);
    (kind == CURVE_TYPE_NAMED).then_some(KeyExchangeGroup::Named(group))
}

/// Reads a prime and a generator.
fn finite_field(start: &mut &[u8]) -> Option<KeyExchangeGroup> {
    let prime = vector(start)?;
    let _generator = vector(start)?;
    let first = prime.iter().position(|byte| *byte != 0)?;
    // A vector has at most 65,535 bytes.
    let prime_bits = u32::try_from(prime.len() - first).ok()? * u8::BITS - prime[first].leading_zeros();
    Some(KeyExchangeGroup::FiniteField { prime_bits })
}

/// Whether a suite up to TLS 1.2 may have a `ServerKeyExchange` that starts with a curve (IANA "TLS Cipher
/// Suites": those of `ECDH` and `ECDHE` without a pre-shared key). Finite-field parameters could be mistaken
/// for one.
fn names_curve(suite: u16) -> bool {
    matches!(
        suite,
        0xc001..=0xc019       // RC4, 3DES, AES-CBC-SHA
            | 0xc023..=0xc032 // AES with SHA-2, AES-GCM
            | 0xc048..=0xc04f // ARIA-CBC
            | 0xc05c..=0xc063 // ARIA-GCM
            | 0xc072..=0xc079 // Camellia-CBC
            | 0xc086..=0xc08d // Camellia-GCM
            | 0xc0ac..=0xc0af // AES-CCM
            | 0xcc13 | 0xcc14 // ChaCha20-Poly1305, draft
            | 0xcca8 | 0xcca9 // ChaCha20-Poly1305
    )
}

/// Whether a suite has a `ServerKeyExchange` that starts with a prime: those of `DHE` and `DH_anon` without a
/// pre-shared key.
fn has_prime(suite: u16) -> bool {
    matches!(
        suite,
        0x0011..=0x001b       // RC4, DES, 3DES
            | 0x0032..=0x0034 // AES-128-CBC-SHA
            | 0x0038..=0x003a // AES-256-CBC-SHA
            | 0x0040 | 0x0067 | 0x006a..=0x006d // AES-CBC-SHA256
            | 0x0044..=0x0046 // Camellia-128-CBC-SHA
            | 0x0087..=0x0089 // Camellia-256-CBC-SHA
            | 0x0099..=0x009b // SEED
            | 0x009e | 0x009f | 0x00a2 | 0x00a3 | 0x00a6 | 0x00a7 // AES-GCM
            | 0x00bd..=0x00bf | 0x00c3..=0x00c5 // Camellia-CBC-SHA256
            | 0xc042..=0xc047 // ARIA-CBC
            | 0xc052 | 0xc053 | 0xc056 | 0xc057 | 0xc05a | 0xc05b // ARIA-GCM
            | 0xc07c | 0xc07d | 0xc080 | 0xc081 | 0xc084 | 0xc085 // Camellia-GCM
            | 0xc09e | 0xc09f | 0xc0a2 | 0xc0a3 // AES-CCM
            | 0xcc15 // ChaCha20-Poly1305, draft
            | 0xccaa // ChaCha20-Poly1305
    )
}
