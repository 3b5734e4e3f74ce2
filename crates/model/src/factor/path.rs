//! The path: how bytes get from client to server.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_text, match_name};

/// How bytes get from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// TCP, no encryption.
    Plain,
    /// A unix socket, no encryption.
    Unix,
    /// TLS over TCP, verified.
    Tls(TlsPath),
}

/// A TLS path: the protocol version and the server certificate's key. Client and server agree on
/// the rest by their defaults; what they agreed on is observed on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsPath {
    /// The one version the client offers.
    pub version: TlsVersion,
    /// The server certificate's key.
    pub key: ServerKey,
}

/// A TLS protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// The key of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerKey {
    /// ECDSA on NIST P-256.
    P256,
    /// RSA with a 2048-bit modulus.
    Rsa2048,
}

impl Path {
    /// Every path.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::Unix,
        Self::tls(TlsVersion::Tls13, ServerKey::P256),
        Self::tls(TlsVersion::Tls13, ServerKey::Rsa2048),
        Self::tls(TlsVersion::Tls12, ServerKey::P256),
        Self::tls(TlsVersion::Tls12, ServerKey::Rsa2048),
    ];

    /// A TLS path.
    pub const fn tls(version: TlsVersion, key: ServerKey) -> Self {
        Self::Tls(TlsPath { version, key })
    }

    /// The TLS part, where there is one.
    pub fn as_tls(self) -> Option<TlsPath> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Plain | Self::Unix => None,
        }
    }
}

impl TlsVersion {
    /// As in a path's name and in reports: `tls1.3`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tls12 => "tls1.2",
            Self::Tls13 => "tls1.3",
        }
    }
}

impl ServerKey {
    /// Every key.
    pub const ALL: [Self; 2] = [Self::P256, Self::Rsa2048];

    /// As in a path's name: `p256`.
    pub fn label(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Rsa2048 => "rsa2048",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => formatter.write_str("plain"),
            Self::Unix => formatter.write_str("unix"),
            Self::Tls(TlsPath { version, key }) => write!(formatter, "{}-{}", version.label(), key.label()),
        }
    }
}

impl FromStr for Path {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name(Factor::Path, text, &Self::ALL, |path| path.to_string())
    }
}

as_text!(Path);

impl fmt::Display for TlsVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for TlsVersion {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name(Factor::Path, text, &[Self::Tls12, Self::Tls13], |version| version.to_string())
    }
}

as_text!(TlsVersion);
