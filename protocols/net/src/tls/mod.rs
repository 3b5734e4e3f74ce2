//! One interface to two TLS libraries, bytes in and bytes out, so that the same buffers and the same readiness loop
//! serve encrypted and plain connections.
//!
//! Part of the cost of encryption is the library's. OpenSSL is used by most drivers, rustls by drivers written in
//! Rust; a cost that both show is not specific to one library.

mod acceptor;
mod certificate;
mod context;
mod files;
mod handshake_size;
mod memory;
mod observed;
mod openssl;
mod resumption;
mod rustls;
mod session;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::Error;

pub use ciphertoll_vocabulary::{
    Group, Identity, SecurityLevel, ServerKey, Suite, TlsLibrary, TlsVersion, Verification,
};
pub use ciphertoll_wire::tls::{KeyShare, NamedGroup};

pub use self::acceptor::{Acceptor, AcceptorSettings};
pub use self::context::Context;
pub use self::files::{FileError, FilePurpose, check_file};
pub use self::handshake_size::HandshakeSize;
pub use self::resumption::Sessions;
pub(crate) use self::session::{Decrypted, Filled, Handshake, TlsSession};

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
    pub library: TlsLibrary,
    /// The only version offered.
    pub version: TlsVersion,
    pub verification: Verification,
    pub anchors: TrustAnchors,
    /// Sent as SNI even if it is not verified.
    pub peer: PeerName,
    /// The only suite offered; the library's defaults if absent.
    pub suite: Option<Suite>,
    /// The only group offered; the library's defaults if absent.
    pub group: Option<Group>,
    pub security_level: SecurityLevel,
    pub resumption: Resumption,
    /// The client's certificate, presented if the server asks for one.
    pub identity: Option<Identity>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Negotiated {
    pub library: TlsLibrary,
    /// `tls1.3`.
    pub version: &'static str,
    pub suite: &'static str,
    /// The key exchange group; `None` if the handshake had no key exchange.
    pub group: Option<Cow<'static, str>>,
    /// The key type of the server's certificate: `p256`, `rsa2048`.
    pub key: Cow<'static, str>,
    pub resumed: bool,
    /// How many certificates the server sent; `None` if the session was resumed.
    pub chain: Option<u8>,
    /// Whether the server sent a HelloRetryRequest, which costs a round trip.
    pub hello_retry: bool,
    /// The server's signature scheme in the handshake. TLS 1.2: as the server named it; its names of ECDSA mean any
    /// curve. TLS 1.3 encrypts it; there it follows from the key, and is absent for RSA. Absent in other versions, and
    /// if the session was resumed.
    pub signature: Option<Cow<'static, str>>,
    /// The key shares of the client's first hello that the server did not select.
    pub unused_shares: Vec<KeyShare>,
}

impl From<&str> for PeerName {
    fn from(name: &str) -> Self {
        name.parse().map_or_else(|_| Self::Dns(name.to_owned()), Self::Ip)
    }
}

/// `OpenSSL 3.5.9 29 Sep 2026`: the OpenSSL that this process has loaded.
pub fn openssl_version() -> &'static str {
    ::openssl::version::version()
}

/// Whether the OpenSSL of this process has ML-KEM and ML-DSA: from 3.5 on.
pub fn openssl_has_post_quantum() -> bool {
    /// `OPENSSL_VERSION_NUMBER` of 3.5.
    const OPENSSL_3_5: i64 = 0x3050_0000;
    ::openssl::version::number() >= OPENSSL_3_5
}

/// Whether the library has a group.
pub fn has_group(library: TlsLibrary, group: Group) -> bool {
    match library {
        TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => openssl::has_group(group),
        TlsLibrary::Rustls => rustls::has_group(group),
    }
}

/// The length of a protocol's name, which ALPN stores in one byte (RFC 7301, 3.1).
fn alpn_length(protocol: &[u8]) -> Result<u8, Error> {
    u8::try_from(protocol.len())
        .map_err(|_| Error::TlsSettings("the protocol's name is too long for ALPN".to_owned()))
}

#[cfg(test)]
mod tests;
