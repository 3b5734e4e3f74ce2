//! A TLS path: what the client offers, and the certificate that the server has.

use std::fmt;

use ciphertoll_vocabulary::SecurityLevel;
use serde::{Deserialize, Serialize};

use super::{
    Compressor, Engine, Group, LevelError, ServerKey, Suite, TlsLibrary, TlsParameters, TlsVersion,
    as_number, bounded, match_name,
};

/// A TLS path: protocol version and key of the server's certificate. Other parameters are negotiated by default and
/// observed on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsPath {
    pub parameters: TlsParameters,
    /// The key type of the server's certificate; `None` if it cannot be chosen.
    pub key: Option<ServerKey>,
    pub resumption: Resumption,
    /// Whether the client presents a certificate.
    pub client_certificate: ClientCertificate,
    pub start: TlsStart,
    /// How many certificates the server sends; its default if absent.
    pub chain: Option<ChainLength>,
    /// Compression of messages before they are encrypted.
    pub compressor: Option<Compressor>,
}

/// Whether a connection resumes an earlier TLS session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumption {
    /// Full handshakes only, the drivers' default.
    #[default]
    Never,
    /// Every connection of the trial resumes a session, as the server offers it.
    Always,
    /// Every connection resumes a session by session ID, without tickets (RFC 5246, 7.3).
    BySessionId,
}

/// Whether the client presents a certificate in addition to its login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientCertificate {
    #[default]
    None,
    /// It does, and the account requires it: mutual TLS.
    Demanded,
}

bounded! {
    /// How many certificates a server sends, its own included.
    ChainLength(u8) up to 10, read by count
}

as_number!(ChainLength of "chain", "1 to 10 certificates after chain=");

/// How TLS begins on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsStart {
    /// As the database protocol requests it, every driver's default. `MongoDB`'s protocol has no request: there, TLS
    /// starts with the first byte.
    #[default]
    Requested,
    /// At once, identified by ALPN: `PostgreSQL` 17 and later. Saves a round trip.
    Direct,
    /// The request and the ClientHello in one send, before the server's reply. Saves a round trip; no driver does it.
    Eager,
}

impl TlsPath {
    /// Every version and key, without modifiers.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let keys = || ServerKey::ALL.map(Some).into_iter().chain([None]);
        TlsVersion::ALL
            .into_iter()
            .flat_map(move |version| keys().map(move |key| Self { key, ..Self::as_served(version) }))
    }

    pub(super) const fn as_served(version: TlsVersion) -> Self {
        Self {
            parameters: TlsParameters::new(version),
            key: None,
            resumption: Resumption::Never,
            client_certificate: ClientCertificate::None,
            start: TlsStart::Requested,
            chain: None,
            compressor: None,
        }
    }

    pub(super) fn modified(mut self, modifier: &str) -> Result<Option<Self>, LevelError> {
        match modifier.split_once('=').unwrap_or((modifier, "")) {
            ("resume", "") => self.resumption = Resumption::Always,
            ("resume", "id") => self.resumption = Resumption::BySessionId,
            ("mtls", "") => self.client_certificate = ClientCertificate::Demanded,
            ("direct", "") => self.start = TlsStart::Direct,
            ("eager", "") => self.start = TlsStart::Eager,
            ("suite", name) => {
                self.parameters.suite = Some(match_name("suite", name, &Suite::ALL, Suite::label)?);
            }
            ("group", name) => {
                self.parameters.group = Some(match_name("group", name, &Group::ALL, Group::label)?);
            }
            ("chain", length) => self.chain = Some(length.parse()?),
            ("client", name) => {
                self.parameters.library =
                    match_name("TLS library", name, &TlsLibrary::ALL, TlsLibrary::label)?;
            }
            ("compress", name) => self.compressor = Some(name.parse()?),
            _ => return Ok(None),
        }
        Ok(Some(self))
    }

    /// Why this cannot be negotiated, if so.
    pub fn impossible(self) -> Option<String> {
        let suite =
            self.parameters.suite.and_then(|suite| suite.impossible(self.parameters.version, self.key));
        suite.or_else(|| self.impossible_for_rustls()).or_else(|| self.impossible_for_version())
    }

    fn impossible_for_rustls(self) -> Option<String> {
        if self.parameters.library != TlsLibrary::Rustls {
            None
        } else if self.parameters.version.is_forbidden() {
            Some(format!("rustls has no {}", self.parameters.version))
        } else {
            let is_weak = self.key.is_some_and(ServerKey::is_weak);
            is_weak.then(|| "rustls accepts no RSA key of less than 2048 bits".to_owned())
        }
    }

    fn impossible_for_version(self) -> Option<String> {
        let reason = if self.parameters.group.is_some_and(Group::has_ml_kem)
            && self.parameters.version != TlsVersion::Tls13
        {
            "ML-KEM needs TLS 1.3"
        } else if self.key.is_some_and(ServerKey::is_ml_dsa) && self.parameters.version != TlsVersion::Tls13 {
            "ML-DSA certificates need TLS 1.3"
        } else if self.resumption == Resumption::BySessionId && self.parameters.version == TlsVersion::Tls13 {
            "TLS 1.3 has no session IDs: it resumes by tickets, +resume"
        } else if self.key == Some(ServerKey::Ed25519) && self.parameters.version.is_forbidden() {
            "Ed25519 certificates need TLS 1.2"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// Why servers of this release cannot negotiate it, if their release alone tells; `name` is the server's in a sentence.
    pub fn impossible_for_release(self, engine: Engine, release: &str, name: &str) -> Option<String> {
        /// The first PostgreSQL with several groups (`ssl_groups`).
        const POSTGRES_WITH_GROUPS: [u32; 1] = [18];
        /// The first MySQL seen that refuses X25519, ML-KEM and ML-DSA certificates, whatever its OpenSSL has.
        const MYSQL_WITH_NIST_ONLY: [u32; 2] = [9, 7];
        let release: Vec<u32> = release.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        match (engine, self.parameters.group, self.key) {
            (Engine::Postgres, Some(group), _)
                if group != Group::P256 && release[..] < POSTGRES_WITH_GROUPS[..] =>
            {
                let [first] = POSTGRES_WITH_GROUPS;
                Some(format!(
                    "{name} supports P-256 only (ssl_ecdh_curve): version {first} is the first with several groups"
                ))
            }
            (Engine::MySql, _, Some(key)) if key.is_ml_dsa() && release[..] >= MYSQL_WITH_NIST_ONLY[..] => {
                Some(format!("{name} refuses every handshake with an {key} certificate"))
            }
            (Engine::MySql, Some(group), _)
                if !matches!(group, Group::P256 | Group::P384 | Group::P521)
                    && release[..] >= MYSQL_WITH_NIST_ONLY[..] =>
            {
                Some(format!("{name} supports NIST curves only, not {group}"))
            }
            _ => None,
        }
    }

    /// The security level that both sides need.
    pub fn security_level(self) -> SecurityLevel {
        if self.parameters.version.is_forbidden() {
            SecurityLevel::Obsolete
        } else if self.key.is_some_and(ServerKey::is_weak) {
            SecurityLevel::Weak
        } else {
            SecurityLevel::Default
        }
    }
}

impl fmt::Display for TlsPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.parameters.version.label())?;
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
        if let Some(suite) = self.parameters.suite {
            write!(formatter, "+suite={suite}")?;
        }
        if let Some(group) = self.parameters.group {
            write!(formatter, "+group={group}")?;
        }
        if let Some(chain) = self.chain {
            write!(formatter, "+chain={chain}")?;
        }
        if self.parameters.library != TlsLibrary::OpenSsl {
            write!(formatter, "+client={}", self.parameters.library)?;
        }
        match self.compressor {
            Some(compressor) => write!(formatter, "+compress={compressor}"),
            None => Ok(()),
        }
    }
}
