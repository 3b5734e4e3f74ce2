//! The path: how bytes get from client to server.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Factor, LevelError, as_text, match_name, split_modifiers, unknown_modifier};

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
    /// The server certificate's key; none where it is not for us to choose.
    pub key: Option<ServerKey>,
    /// How TLS begins.
    pub start: TlsStart,
    /// The client's TLS library.
    pub library: TlsLibrary,
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

/// How TLS begins on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsStart {
    /// The database's protocol asks for it first, as every driver does by default.
    #[default]
    Requested,
    /// At once, named by ALPN: `PostgreSQL` 17 and later. Saves a round trip.
    Direct,
}

/// A client's TLS library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsLibrary {
    /// The system's OpenSSL, which libpq and most other drivers use.
    #[default]
    OpenSsl,
    /// rustls, which drivers written in Rust use.
    Rustls,
}

impl Path {
    /// Every path, without modifiers.
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::Unix,
        Self::tls(TlsVersion::Tls13, ServerKey::P256),
        Self::tls(TlsVersion::Tls13, ServerKey::Rsa2048),
        Self::tls(TlsVersion::Tls12, ServerKey::P256),
        Self::tls(TlsVersion::Tls12, ServerKey::Rsa2048),
        Self::tls_as_served(TlsVersion::Tls13),
        Self::tls_as_served(TlsVersion::Tls12),
    ];

    /// A TLS path without modifiers.
    pub const fn tls(version: TlsVersion, key: ServerKey) -> Self {
        Self::Tls(TlsPath { key: Some(key), ..TlsPath::as_served(version) })
    }

    /// A TLS path without modifiers to a server that has a certificate of its own.
    pub const fn tls_as_served(version: TlsVersion) -> Self {
        Self::Tls(TlsPath::as_served(version))
    }

    /// The TLS part, where there is one.
    pub fn as_tls(self) -> Option<TlsPath> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Plain | Self::Unix => None,
        }
    }
}

impl TlsPath {
    const fn as_served(version: TlsVersion) -> Self {
        Self { version, key: None, start: TlsStart::Requested, library: TlsLibrary::OpenSsl }
    }

    /// The same with one more modifier; `None` where there is no such modifier.
    fn modified(mut self, modifier: &str) -> Option<Self> {
        match modifier {
            "direct" => self.start = TlsStart::Direct,
            "client=openssl" => self.library = TlsLibrary::OpenSsl,
            "client=rustls" => self.library = TlsLibrary::Rustls,
            _ => return None,
        }
        Some(self)
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

impl TlsLibrary {
    /// As in a path's modifier and in a leg: `rustls`.
    pub fn label(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::Rustls => "rustls",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => formatter.write_str("plain"),
            Self::Unix => formatter.write_str("unix"),
            Self::Tls(TlsPath { version, key, start, library }) => {
                formatter.write_str(version.label())?;
                if let Some(key) = key {
                    write!(formatter, "-{}", key.label())?;
                }
                if *start == TlsStart::Direct {
                    formatter.write_str("+direct")?;
                }
                if *library != TlsLibrary::OpenSsl {
                    write!(formatter, "+client={}", library.label())?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Path {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let (name, mut modifiers) = split_modifiers(text);
        let path = match_name(Factor::Path, name, &Self::ALL, |path| path.to_string())?;
        modifiers.try_fold(path, |path, modifier| {
            let modified = path.as_tls().and_then(|tls| tls.modified(modifier)).map(Self::Tls);
            modified.ok_or_else(|| unknown_modifier(Factor::Path, name, modifier))
        })
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

impl fmt::Display for TlsLibrary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for TlsLibrary {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name(Factor::Path, text, &[Self::OpenSsl, Self::Rustls], |library| library.to_string())
    }
}

as_text!(TlsVersion, TlsLibrary);
