//! The mechanisms of SHA-256, with and without channel binding.

/// The mechanisms of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    Sha256,
    Sha256Plus,
}

impl Mechanism {
    /// The name in SASL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Sha256, Self::Sha256Plus].into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }
}

/// The channel binding of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding<'a> {
    None,
    /// The client supports channel binding, but the server does not offer it. The client says so, which
    /// reveals an attacker who removed the offer.
    NotOffered,
    /// `tls-server-end-point` (RFC 5929): a hash of the server's certificate.
    ServerEndPoint(&'a [u8]),
}

impl Binding<'_> {
    pub fn mechanism(self) -> Mechanism {
        match self {
            Self::None | Self::NotOffered => Mechanism::Sha256,
            Self::ServerEndPoint(_) => Mechanism::Sha256Plus,
        }
    }
}
