use openssl::hash::MessageDigest;

/// The hash function of an exchange. It determines the mechanism's name and the length of keys, proofs and
/// signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Digest {
    /// SHA-1 (RFC 5802), for MongoDB only.
    Sha1,
    /// SHA-256 (RFC 7677).
    #[default]
    Sha256,
}

impl Digest {
    pub const ALL: [Self; 2] = [Self::Sha1, Self::Sha256];

    /// The SASL mechanism's name, without channel binding.
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The length of a digest.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    pub(crate) fn openssl(self) -> MessageDigest {
        match self {
            Self::Sha1 => MessageDigest::sha1(),
            Self::Sha256 => MessageDigest::sha256(),
        }
    }
}
