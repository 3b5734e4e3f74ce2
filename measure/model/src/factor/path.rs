//! The path: how bytes get from client to server.

use std::fmt;
use std::str::FromStr;

use ciphertoll_vocabulary::Legacy;

use super::{
    Compressor, Factor, LevelError, Proxy, ProxyProgram, ServerKey, TlsPath, TlsVersion, Tunnel, as_text,
    match_name, parse_modified,
};

/// How bytes get from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// TCP, no encryption.
    Plain,
    /// TCP, no encryption, compressed messages.
    Compressed(Compressor),
    /// A unix socket, no encryption.
    Unix,
    /// TLS over TCP, verified.
    Tls(TlsPath),
    /// Unencrypted TCP through an encrypted tunnel.
    Tunnel(Tunnel),
    /// Unencrypted to a local process that holds encrypted connections to the server.
    Proxy(Proxy),
}

impl Path {
    /// Every path, without modifiers.
    pub fn all() -> Vec<Self> {
        let tls = TlsPath::all().map(Self::Tls);
        let tunnels = Tunnel::all().into_iter().map(Self::Tunnel);
        let proxies = ProxyProgram::all().into_iter().map(|program| Self::Proxy(Proxy::of(program)));
        [Self::Plain, Self::Unix].into_iter().chain(tls).chain(tunnels).chain(proxies).collect()
    }

    pub const fn tls(version: TlsVersion, key: ServerKey) -> Self {
        Self::Tls(TlsPath { key: Some(key), ..TlsPath::as_served(version) })
    }

    /// A TLS path without modifiers, to a server whose certificate is not ours to choose.
    pub const fn tls_as_served(version: TlsVersion) -> Self {
        Self::Tls(TlsPath::as_served(version))
    }

    /// The client's TLS parameters, if the path has TLS.
    pub fn as_tls(self) -> Option<TlsPath> {
        if let Self::Tls(tls) = self { Some(tls) } else { None }
    }

    /// The TLS parameters of the connection to the server: the client's, or those of the proxy.
    pub fn server_tls(self) -> Option<TlsPath> {
        self.as_tls().or_else(|| self.as_proxy().map(Proxy::upstream_tls))
    }

    pub fn as_tunnel(self) -> Option<Tunnel> {
        if let Self::Tunnel(tunnel) = self { Some(tunnel) } else { None }
    }

    pub fn as_proxy(self) -> Option<Proxy> {
        if let Self::Proxy(proxy) = self { Some(proxy) } else { None }
    }

    pub fn compressor(self) -> Option<Compressor> {
        match self {
            Self::Compressed(compressor) => Some(compressor),
            Self::Tls(tls) => tls.compressor,
            Self::Plain | Self::Unix | Self::Tunnel(_) | Self::Proxy(_) => None,
        }
    }

    /// Why no recommendation may name it, if its cryptography is legacy.
    pub fn legacy(self) -> Option<Legacy> {
        if let Self::Tunnel(tunnel) = self {
            return tunnel.has_legacy_cipher().then_some(Legacy::TunnelCipher);
        }
        let TlsPath { parameters, key, .. } = self.server_tls()?;
        Legacy::of(parameters, key)
    }

    /// Applies a modifier; `None` if it does not exist.
    fn modified(self, modifier: &str) -> Result<Option<Self>, LevelError> {
        Ok(match self {
            Self::Plain | Self::Compressed(_) => match modifier.strip_prefix("compress=") {
                Some(name) => Some(Self::Compressed(name.parse()?)),
                None => None,
            },
            Self::Unix => None,
            Self::Tls(tls) => tls.modified(modifier)?.map(Self::Tls),
            Self::Tunnel(tunnel) => tunnel.modified(modifier).map(Self::Tunnel),
            Self::Proxy(proxy) => proxy.modified(modifier)?.map(Self::Proxy),
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => formatter.write_str("plain"),
            Self::Compressed(compressor) => write!(formatter, "plain+compress={compressor}"),
            Self::Unix => formatter.write_str("unix"),
            Self::Tls(tls) => tls.fmt(formatter),
            Self::Tunnel(tunnel) => tunnel.fmt(formatter),
            Self::Proxy(proxy) => proxy.fmt(formatter),
        }
    }
}

/// Shortens the list of known names: all combinations would be unreadable.
fn in_short(error: LevelError) -> LevelError {
    match error {
        LevelError::UnknownName { factor, text, nearest, .. } => {
            let keys = ServerKey::ALL.into_iter().filter(|key| key.rsa_bits().is_none());
            let keys: Vec<&str> = keys.map(ServerKey::label).collect();
            let known = ["plain", "unix"].into_iter().map(ToOwned::to_owned);
            let tls = format!("tls1.x[-KEY] (KEY {}, rsaBITS)", keys.join(", "));
            let tunnels = ["ssh-CIPHER", "openvpn-CIPHER", "wireguard", "stunnel"].map(ToOwned::to_owned);
            let proxies = ProxyProgram::all().into_iter().map(|program| program.label().to_owned());
            let known = known.chain([tls]).chain(tunnels).chain(proxies).collect();
            LevelError::UnknownName { factor, text, nearest, known }
        }
        other => other,
    }
}

impl FromStr for Path {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let level = |name: &str| {
            match_name(Factor::Path.label(), name, &Self::all(), |path| path.to_string()).map_err(in_short)
        };
        parse_modified(Factor::Path, text, level, Self::modified)
    }
}

as_text!(Path);
