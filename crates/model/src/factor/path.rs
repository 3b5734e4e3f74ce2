//! The path: how bytes get from client to server.

use std::fmt;
use std::str::FromStr;

use ciphertoll_vocabulary::SecurityLevel;
use serde::{Deserialize, Serialize};

use super::{
    ChainLength, Compressor, Factor, Group, LevelError, Proxy, ProxyProgram, ServerKey, Suite, TlsLibrary,
    TlsVersion, Tunnel, as_text, match_name, split_modifiers, unknown_modifier,
};

/// How bytes get from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// TCP, no encryption.
    Plain,
    /// TCP, no encryption, and messages that are compressed.
    Compressed(Compressor),
    /// A unix socket, no encryption.
    Unix,
    /// TLS over TCP, verified.
    Tls(TlsPath),
    /// TCP without encryption, led through a tunnel that has it.
    Tunnel(Tunnel),
    /// In the clear to a process on the client's own machine, which keeps encrypted connections.
    Proxy(Proxy),
}

/// A TLS path: the protocol version and the server certificate's key. On what is not named client and server agree by
/// their defaults; what they agreed on is observed on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsPath {
    /// The one version the client offers.
    pub version: TlsVersion,
    /// The server certificate's key; none where it is not for us to choose.
    pub key: Option<ServerKey>,
    /// Whether a session is taken up again.
    pub resumption: Resumption,
    /// Whether the client shows a certificate, too.
    pub client_certificate: ClientCertificate,
    /// How TLS begins.
    pub start: TlsStart,
    /// The one suite that the client offers; its defaults where absent.
    pub suite: Option<Suite>,
    /// The one group that the client offers; its defaults where absent.
    pub group: Option<Group>,
    /// How many certificates the server sends; as it does by itself where absent.
    pub chain: Option<ChainLength>,
    /// The client's TLS library.
    pub library: TlsLibrary,
    /// What messages are compressed with, before they are encrypted.
    pub compressor: Option<Compressor>,
}

/// Whether a connection takes up the TLS session of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumption {
    /// Every connection negotiates afresh, as drivers do.
    #[default]
    Never,
    /// Every connection of the trial takes up a session, by whatever the server gives for it.
    Always,
    /// The same by session id, without tickets (RFC 5246, 7.3).
    BySessionId,
}

/// Whether the client shows a certificate, beside how it logs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientCertificate {
    /// It does not.
    #[default]
    None,
    /// It does, and the account lets nobody in without: mutual TLS.
    Demanded,
}

/// How TLS begins on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsStart {
    /// The database's protocol asks for it first, as every driver does by default. `MongoDB`'s has no word for it: there it
    /// begins with the first byte.
    #[default]
    Requested,
    /// At once, named by ALPN: `PostgreSQL` 17 and later. Saves a round trip.
    Direct,
    /// The request and TLS's first message in one send, before the server has said anything. Saves a round trip; no
    /// driver does it.
    Eager,
}

impl Path {
    const TLS: usize = TlsVersion::ALL.len() * (1 + ServerKey::ALL.len());
    const COUNT: usize = 2 + Self::TLS + Tunnel::ALL.len() + ProxyProgram::ALL.len();

    /// Every path, without modifiers.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Plain; Self::COUNT];
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
        let mut tunnel = 0;
        while tunnel < Tunnel::ALL.len() {
            all[next] = Self::Tunnel(Tunnel::ALL[tunnel]);
            (next, tunnel) = (next + 1, tunnel + 1);
        }
        let mut program = 0;
        while program < ProxyProgram::ALL.len() {
            all[next] = Self::Proxy(Proxy::of(ProxyProgram::ALL[program]));
            (next, program) = (next + 1, program + 1);
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

    /// The client's TLS, where it has any.
    pub fn as_tls(self) -> Option<TlsPath> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Plain | Self::Compressed(_) | Self::Unix | Self::Tunnel(_) | Self::Proxy(_) => None,
        }
    }

    /// The TLS that the server meets: the client's, or that of the proxy between them.
    pub fn server_tls(self) -> Option<TlsPath> {
        self.as_tls().or_else(|| self.as_proxy().map(Proxy::behind))
    }

    /// The tunnel, where there is one.
    pub fn as_tunnel(self) -> Option<Tunnel> {
        match self {
            Self::Tunnel(tunnel) => Some(tunnel),
            Self::Plain | Self::Compressed(_) | Self::Unix | Self::Tls(_) | Self::Proxy(_) => None,
        }
    }

    /// The proxy, where there is one.
    pub fn as_proxy(self) -> Option<Proxy> {
        match self {
            Self::Proxy(proxy) => Some(proxy),
            Self::Plain | Self::Compressed(_) | Self::Unix | Self::Tls(_) | Self::Tunnel(_) => None,
        }
    }

    /// What messages are compressed with, where they are.
    pub fn compressor(self) -> Option<Compressor> {
        match self {
            Self::Compressed(compressor) => Some(compressor),
            Self::Tls(tls) => tls.compressor,
            Self::Plain | Self::Unix | Self::Tunnel(_) | Self::Proxy(_) => None,
        }
    }

    /// The same with one more modifier; `None` where there is no such modifier.
    fn modified(self, modifier: &str) -> Option<Result<Self, LevelError>> {
        match self {
            Self::Plain | Self::Compressed(_) => {
                let name = modifier.strip_prefix("compress=")?;
                Some(name.parse().map(Self::Compressed))
            }
            Self::Unix => None,
            Self::Tls(tls) => tls.modified(modifier).map(|modified| modified.map(Self::Tls)),
            Self::Tunnel(tunnel) => tunnel.modified(modifier).map(|tunnel| Ok(Self::Tunnel(tunnel))),
            Self::Proxy(proxy) => proxy.modified(modifier).map(|modified| modified.map(Self::Proxy)),
        }
    }
}

impl TlsPath {
    pub(super) const fn as_served(version: TlsVersion) -> Self {
        Self {
            version,
            key: None,
            resumption: Resumption::Never,
            client_certificate: ClientCertificate::None,
            start: TlsStart::Requested,
            suite: None,
            group: None,
            chain: None,
            library: TlsLibrary::OpenSsl,
            compressor: None,
        }
    }

    /// The same with one more modifier; `None` where there is no such modifier.
    fn modified(mut self, modifier: &str) -> Option<Result<Self, LevelError>> {
        let set = match modifier.split_once('=').unwrap_or((modifier, "")) {
            ("resume", "") => set(&mut self.resumption, Ok(Resumption::Always)),
            ("resume", "id") => set(&mut self.resumption, Ok(Resumption::BySessionId)),
            ("mtls", "") => set(&mut self.client_certificate, Ok(ClientCertificate::Demanded)),
            ("direct", "") => set(&mut self.start, Ok(TlsStart::Direct)),
            ("eager", "") => set(&mut self.start, Ok(TlsStart::Eager)),
            ("suite", name) => {
                set(&mut self.suite, match_name("suite", name, &Suite::ALL, Suite::label).map(Some))
            }
            ("group", name) => {
                set(&mut self.group, match_name("group", name, &Group::ALL, Group::label).map(Some))
            }
            ("chain", length) => set(&mut self.chain, length.parse().map(Some)),
            ("client", name) => {
                set(&mut self.library, match_name("TLS library", name, &TlsLibrary::ALL, TlsLibrary::label))
            }
            ("compress", name) => set(&mut self.compressor, name.parse().map(Some)),
            _ => return None,
        };
        Some(set.map(|()| self))
    }

    /// Why no client and no server could do this, if so.
    pub fn impossible(self) -> Option<String> {
        let suite = self.suite.and_then(|suite| suite.impossible(self.version, self.key));
        suite.or_else(|| self.impossible_for_rustls()).or_else(|| self.impossible_for_version())
    }

    fn impossible_for_rustls(self) -> Option<String> {
        let reason = if self.library != TlsLibrary::Rustls {
            return None;
        } else if self.version.is_forbidden() {
            format!("rustls has no {}", self.version)
        } else if self.key.is_some_and(ServerKey::is_weak) {
            "rustls takes no RSA key of less than 2048 bits".to_owned()
        } else {
            return None;
        };
        Some(reason)
    }

    fn impossible_for_version(self) -> Option<String> {
        let reason = if self.group == Some(Group::X25519MlKem768) && self.version != TlsVersion::Tls13 {
            "X25519MLKEM768 came with TLS 1.3"
        } else if self.resumption == Resumption::BySessionId && self.version == TlsVersion::Tls13 {
            "TLS 1.3 has no session ids: it resumes by tickets, +resume"
        } else if self.key == Some(ServerKey::Ed25519) && self.version.is_forbidden() {
            "Ed25519 certificates came with TLS 1.2"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// The security level that both sides need.
    pub fn security_level(self) -> SecurityLevel {
        if self.version.is_forbidden() {
            SecurityLevel::Obsolete
        } else if self.key.is_some_and(ServerKey::is_weak) {
            SecurityLevel::Weak
        } else {
            SecurityLevel::Default
        }
    }
}

fn set<T>(part: &mut T, level: Result<T, LevelError>) -> Result<(), LevelError> {
    *part = level?;
    Ok(())
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

impl fmt::Display for TlsPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.version.label())?;
        if let Some(key) = self.key {
            write!(formatter, "-{}", key.label())?;
        }
        formatter.write_str(match self.resumption {
            Resumption::Never => "",
            Resumption::Always => "+resume",
            Resumption::BySessionId => "+resume=id",
        })?;
        formatter.write_str(match self.client_certificate {
            ClientCertificate::None => "",
            ClientCertificate::Demanded => "+mtls",
        })?;
        formatter.write_str(match self.start {
            TlsStart::Requested => "",
            TlsStart::Direct => "+direct",
            TlsStart::Eager => "+eager",
        })?;
        if let Some(suite) = self.suite {
            write!(formatter, "+suite={suite}")?;
        }
        if let Some(group) = self.group {
            write!(formatter, "+group={group}")?;
        }
        if let Some(chain) = self.chain {
            write!(formatter, "+chain={chain}")?;
        }
        if self.library != TlsLibrary::OpenSsl {
            write!(formatter, "+client={}", self.library)?;
        }
        match self.compressor {
            Some(compressor) => write!(formatter, "+compress={compressor}"),
            None => Ok(()),
        }
    }
}

/// Every combination would be a line that nobody reads.
fn in_short(error: LevelError) -> LevelError {
    match error {
        LevelError::UnknownName { factor, text, nearest, .. } => {
            let keys: Vec<&str> = ServerKey::ALL
                .into_iter()
                .filter(|key| key.rsa_bits().is_none())
                .map(ServerKey::label)
                .collect();
            let known = ["plain", "unix"].into_iter().map(ToOwned::to_owned);
            let tls = format!("tls1.x[-KEY] (KEY {}, rsa1024 to 4096)", keys.join(", "));
            let tunnels = ["ssh-CIPHER", "openvpn-CIPHER", "wireguard", "stunnel"].map(ToOwned::to_owned);
            let proxies = ProxyProgram::ALL.map(|program| program.label().to_owned());
            let known = known.chain([tls]).chain(tunnels).chain(proxies).collect();
            LevelError::UnknownName { factor, text, nearest, known }
        }
        other => other,
    }
}

impl FromStr for Path {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let (name, mut modifiers) = split_modifiers(text);
        let path = match_name(Factor::Path.label(), name, &Self::ALL, |path| path.to_string()).map_err(in_short)?;
        modifiers.try_fold(path, |path, modifier| {
            path.modified(modifier).unwrap_or_else(|| Err(unknown_modifier(Factor::Path.label(), name, modifier)))
        })
    }
}

as_text!(Path);
