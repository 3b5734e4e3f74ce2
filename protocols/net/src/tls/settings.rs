//! What a client asks of TLS.

use std::net::IpAddr;
use std::path::PathBuf;

use ciphertoll_vocabulary::{Identity, SecurityLevel, TlsParameters, Verification};

use super::resumption::Sessions;
use crate::Error;

/// The CA certificates that the server's certificate must chain to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustAnchors {
    /// Those in a PEM file.
    File(PathBuf),
    /// Those in a PEM file and the system's.
    FileAndSystem(PathBuf),
    System,
}

/// Whether a connection resumes an earlier TLS session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    #[default]
    Never,
    /// Resumes the newest session of the context's own connections.
    WithinContext(ResumptionMethod),
    /// Resumes the newest session of any context that shares this store. OpenSSL only.
    AcrossContexts(ResumptionMethod, Sessions),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumptionMethod {
    /// As the server offers: by ticket or, before TLS 1.3, by session ID.
    Any,
    /// By session ID: tickets are declined (before TLS 1.3).
    SessionId,
}

/// The name or address that the certificate must contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A host name, also sent as SNI.
    Dns(String),
    Ip(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub parameters: TlsParameters,
    pub verification: Verification,
    pub anchors: TrustAnchors,
    /// Sent as SNI even if it is not verified.
    pub peer: PeerName,
    pub security_level: SecurityLevel,
    pub resumption: Resumption,
    /// The client's certificate, presented if the server asks for one.
    pub identity: Option<Identity>,
}

impl Settings {
    /// Full verification, the library's security level, full handshakes, no certificate of the client.
    #[must_use]
    pub const fn new(parameters: TlsParameters, anchors: TrustAnchors, peer: PeerName) -> Self {
        Self {
            parameters,
            verification: Verification::Full,
            anchors,
            peer,
            security_level: SecurityLevel::Default,
            resumption: Resumption::Never,
            identity: None,
        }
    }
}

impl From<&str> for PeerName {
    fn from(name: &str) -> Self {
        name.parse().map_or_else(|_| Self::Dns(name.to_owned()), Self::Ip)
    }
}

/// The length of a protocol's name, which ALPN stores in one byte (RFC 7301, 3.1).
pub(super) fn alpn_length(protocol: &[u8]) -> Result<u8, Error> {
    u8::try_from(protocol.len())
        .map_err(|_| Error::TlsSettings("the protocol's name is too long for ALPN".to_owned()))
}
