//! TLS behind one face, bytes in and bytes out, so that the same buffers and the same readiness
//! loop serve encrypted and plain connections.
//!
//! There are two libraries because what encryption costs is partly the library's doing: OpenSSL is what most
//! drivers use, rustls is what drivers in Rust use, and a toll that both have is not an accident of one.

mod acceptor;
mod certificate;
mod files;
mod memory;
mod openssl;
mod rustls;
mod rustls_sessions;
mod session;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::Error;

pub use ciphertoll_resumption::Sessions;
pub use ciphertoll_vocabulary::{
    Group, Identity, SecurityLevel, ServerKey, Suite, TlsLibrary, TlsVersion, Verification,
};

pub use self::acceptor::{Acceptor, Service};
pub use self::files::{FileError, FilePurpose, check_authorities, check_certificate, check_file, check_key};
pub use self::session::Context;
pub(crate) use self::session::{Decrypted, Filled, Handshake, Session};

/// Which authorities may have signed the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustAnchors {
    /// Those in one PEM file.
    File(PathBuf),
    /// Those in one PEM file and the system's.
    FileAndSystem(PathBuf),
    /// The system's.
    System,
}

/// Whether a connection takes up the session of an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    /// Every connection begins afresh.
    #[default]
    Never,
    /// The newest session that the context's own connections have brought.
    WithinContext(Way),
    /// The newest that connections of any context have brought that shares these. OpenSSL only.
    AcrossContexts(Way, Sessions),
}

/// What a session is taken up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Whatever the server gives: a ticket, or before TLS 1.3 a session id.
    Any,
    /// A session id: tickets are declined (before TLS 1.3).
    SessionId,
}

/// Whom the certificate must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A host name, sent as SNI too.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// How a client does TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who does it.
    pub library: TlsLibrary,
    /// The one version offered.
    pub version: TlsVersion,
    /// What is verified.
    pub verification: Verification,
    /// The authorities.
    pub anchors: TrustAnchors,
    /// The name; as SNI it is sent even where it is not verified.
    pub peer: PeerName,
    /// The one suite offered; the library's defaults where absent.
    pub suite: Option<Suite>,
    /// The one group offered; the library's defaults where absent.
    pub group: Option<Group>,
    /// How strong keys and signatures must be.
    pub security_level: SecurityLevel,
    /// Whether sessions are taken up again.
    pub resumption: Resumption,
    /// The client's own certificate, where the server asks for one.
    pub identity: Option<Identity>,
}

/// What client and server agreed on, as observed on one connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Negotiated {
    /// Who did TLS for the client.
    pub library: TlsLibrary,
    /// `tls1.3`.
    pub version: &'static str,
    /// The suite's IANA name.
    pub suite: &'static str,
    /// The key-exchange group, where the handshake had one.
    pub group: Option<Cow<'static, str>>,
    /// The key of the server's certificate: `p256`, `rsa2048`.
    pub key: Cow<'static, str>,
    /// Whether the session was resumed.
    pub resumed: bool,
    /// How many certificates the server sent; none where the session was resumed.
    pub chain: Option<u8>,
    /// Whether the server asked for another key share first: one round trip more.
    pub hello_retry: bool,
}

impl From<&str> for PeerName {
    fn from(name: &str) -> Self {
        name.parse().map_or_else(|_| Self::Dns(name.to_owned()), Self::Ip)
    }
}

/// How long a protocol's name is; ALPN has one byte for that (RFC 7301, 3.1).
fn alpn_length(protocol: &[u8]) -> Result<u8, Error> {
    u8::try_from(protocol.len())
        .map_err(|_| Error::TlsSettings("the protocol's name is too long for ALPN".to_owned()))
}
