//! The path: how bytes get from client to server.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    Factor, Group, LevelError, ServerKey, Suite, TlsVersion, as_text, match_name, split_modifiers,
    unknown_modifier,
};

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

/// A TLS path: the protocol version and the server certificate's key. On what is not named client and server agree by
/// their defaults; what they agreed on is observed on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsPath {
    /// The one version the client offers.
    pub version: TlsVersion,
    /// The server certificate's key; none where it is not for us to choose.
    pub key: Option<ServerKey>,
    /// How TLS begins.
    pub start: TlsStart,
    /// The one suite that the client offers; its defaults where absent.
    pub suite: Option<Suite>,
    /// The one group that the client offers; its defaults where absent.
    pub group: Option<Group>,
    /// The client's TLS library.
    pub library: TlsLibrary,
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
    pub const ALL: [Self; 2 + TlsVersion::ALL.len() * (1 + ServerKey::ALL.len())] = {
        let mut all = [Self::Plain; 2 + TlsVersion::ALL.len() * (1 + ServerKey::ALL.len())];
        all[1] = Self::Unix;
        let (mut next, mut version) = (2, 0);
        while version < TlsVersion::ALL.len() {
            let mut key = 0;
            while key < ServerKey::ALL.len() {
                all[next] = Self::tls(TlsVersion::ALL[version], ServerKey::ALL[key]);
                (next, key) = (next + 1, key + 1);
            }
            all[next] = Self::tls_as_served(TlsVersion::ALL[version]);
            (next, version) = (next + 1, version + 1);
        }
        all
    };

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
        Self {
            version,
            key: None,
            start: TlsStart::Requested,
            suite: None,
            group: None,
            library: TlsLibrary::OpenSsl,
        }
    }

    /// The same with one more modifier; `None` where there is no such modifier.
    fn modified(mut self, modifier: &str) -> Option<Result<Self, LevelError>> {
        match modifier.split_once('=').unwrap_or((modifier, "")) {
            ("direct", "") => self.start = TlsStart::Direct,
            ("suite", name) => match name.parse() {
                Ok(suite) => self.suite = Some(suite),
                Err(error) => return Some(Err(error)),
            },
            ("group", name) => match name.parse() {
                Ok(group) => self.group = Some(group),
                Err(error) => return Some(Err(error)),
            },
            ("client", name) => match name.parse() {
                Ok(library) => self.library = library,
                Err(error) => return Some(Err(error)),
            },
            _ => return None,
        }
        Some(Ok(self))
    }

    /// Why no client and no server could do this, if so.
    pub fn impossible(self) -> Option<String> {
        let suite = self.suite.and_then(|suite| suite.impossible(self.version, self.key));
        suite.or_else(|| {
            let by_rustls = self.library == TlsLibrary::Rustls;
            if by_rustls && self.key.is_some_and(ServerKey::is_weak) {
                return Some("rustls takes no RSA key of less than 2048 bits".to_owned());
            }
            let needs_tls13 = self.group == Some(Group::X25519MlKem768) && self.version == TlsVersion::Tls12;
            needs_tls13.then(|| "X25519MLKEM768 came with TLS 1.3".to_owned())
        })
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
            Self::Tls(TlsPath { version, key, start, suite, group, library }) => {
                formatter.write_str(version.label())?;
                if let Some(key) = key {
                    write!(formatter, "-{}", key.label())?;
                }
                if *start == TlsStart::Direct {
                    formatter.write_str("+direct")?;
                }
                if let Some(suite) = suite {
                    write!(formatter, "+suite={suite}")?;
                }
                if let Some(group) = group {
                    write!(formatter, "+group={group}")?;
                }
                if *library != TlsLibrary::OpenSsl {
                    write!(formatter, "+client={}", library.label())?;
                }
                Ok(())
            }
        }
    }
}

/// Every combination would be a line that nobody reads.
fn in_short(error: LevelError) -> LevelError {
    match error {
        LevelError::UnknownName { factor, text, nearest, .. } => {
            let keys = ServerKey::ALL.map(ServerKey::label).join(", ");
            let versions = TlsVersion::ALL.map(TlsVersion::label);
            let known = ["plain", "unix"].into_iter().chain(versions).map(ToOwned::to_owned);
            let known =
                known.chain([format!("{}-KEY with KEY one of {keys}", versions.join("-KEY or "))]).collect();
            LevelError::UnknownName { factor, text, nearest, known }
        }
        other => other,
    }
}

impl FromStr for Path {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let (name, mut modifiers) = split_modifiers(text);
        let path = match_name(Factor::Path, name, &Self::ALL, |path| path.to_string()).map_err(in_short)?;
        modifiers.try_fold(path, |path, modifier| {
            let modified = path.as_tls().and_then(|tls| tls.modified(modifier));
            modified.unwrap_or_else(|| Err(unknown_modifier(Factor::Path, name, modifier))).map(Self::Tls)
        })
    }
}

as_text!(Path);

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

as_text!(TlsLibrary);
