//! The hash function that an exchange is made with.

use openssl::hash::MessageDigest;

/// A hash function. It names the mechanism, and every key, proof and signature is as long as what it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Digest {
    /// SHA-1 (RFC 5802), which MongoDB alone speaks still.
    Sha1,
    /// SHA-256 (RFC 7677).
    #[default]
    Sha256,
}

impl Digest {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha1, Self::Sha256];

    /// The mechanism's name in SASL, where nothing is bound.
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The length of what it makes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    pub(super) fn openssl(self) -> MessageDigest {
        match self {
            Self::Sha1 => MessageDigest::sha1(),
            Self::Sha256 => MessageDigest::sha256(),
        }
    }
}
