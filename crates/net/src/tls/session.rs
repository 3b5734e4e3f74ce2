//! Contexts and sessions of either library.

use std::io::{self, Read};

use super::openssl::{self, OpenSslContext, OpenSslSession};
use super::rustls::{self, RustlsContext, RustlsSession};
use super::{Group, Negotiated, Settings, TlsLibrary, TlsVersion};
use crate::Error;
use crate::buffer::Buffer;

/// A client's TLS context: trusted authorities, offered version, client certificate.
#[derive(Clone)]
pub struct Context(ContextInner);

#[derive(Clone)]
enum ContextInner {
    OpenSsl(OpenSslContext),
    Rustls(RustlsContext),
}

/// The TLS session of one connection.
pub(crate) struct TlsSession(SessionInner);

enum SessionInner {
    OpenSsl(OpenSslSession),
    Rustls(RustlsSession),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    NeedInput,
}

/// The result of a read: bytes received and buffer space.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

/// Whether more data can arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decrypted {
    All,
    Closed,
}

impl Context {
    /// Builds a context: reads the authorities and the client's certificate.
    pub fn build(settings: &Settings) -> Result<Self, Error> {
        Ok(Self(match settings.library {
            TlsLibrary::OpenSsl => ContextInner::OpenSsl(OpenSslContext::build(settings)?),
            TlsLibrary::Rustls => ContextInner::Rustls(RustlsContext::build(settings)?),
        }))
    }

    /// Builds a context that negotiates: every version from `oldest` to that of the settings, and these groups, with
    /// a key share for the first. For production use, not for measurements. OpenSSL only.
    pub fn negotiating(settings: &Settings, oldest: TlsVersion, groups: &[Group]) -> Result<Self, Error> {
        Ok(Self(ContextInner::OpenSsl(OpenSslContext::negotiating(settings, oldest, groups)?)))
    }

    /// The error if the library lacks a suite or group of the settings.
    pub fn lacks(settings: &Settings) -> Option<Error> {
        match settings.library {
            TlsLibrary::OpenSsl => openssl::lacks(settings),
            TlsLibrary::Rustls => rustls::lacks(settings),
        }
    }

    /// A session for one connection that offers `alpn` as its only protocol.
    pub(crate) fn session(&self, alpn: Option<&[u8]>) -> Result<TlsSession, Error> {
        Ok(TlsSession(match &self.0 {
            ContextInner::OpenSsl(context) => SessionInner::OpenSsl(context.session(alpn)?),
            ContextInner::Rustls(context) => SessionInner::Rustls(context.session(alpn)?),
        }))
    }
}

impl TlsSession {
    pub(super) fn by_openssl(session: OpenSslSession) -> Self {
        Self(SessionInner::OpenSsl(session))
    }

    /// The common name of the peer's certificate; on the server side only.
    pub(crate) fn peer_common_name(&self) -> Option<String> {
        match &self.0 {
            SessionInner::OpenSsl(session) => session.peer_common_name(),
            SessionInner::Rustls(_) => None,
        }
    }

    pub(crate) fn fill(&mut self, socket: &mut impl Read) -> io::Result<Filled> {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.fill(socket),
            SessionInner::Rustls(session) => session.fill(socket),
        }
    }

    /// Takes bytes that were read from the socket elsewhere.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.feed(bytes),
            SessionInner::Rustls(session) => session.feed(bytes),
        }
    }

    /// Bytes to send.
    pub(crate) fn outgoing(&mut self) -> &mut Vec<u8> {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.outgoing(),
            SessionInner::Rustls(session) => session.outgoing(),
        }
    }

    pub(crate) fn handshake(&mut self) -> Result<Handshake, Error> {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.handshake(),
            SessionInner::Rustls(session) => session.handshake(),
        }
    }

    /// Decrypts everything received.
    pub(crate) fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error> {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.decrypt(into),
            SessionInner::Rustls(session) => session.decrypt(into),
        }
    }

    pub(crate) fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error> {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.encrypt(plain),
            SessionInner::Rustls(session) => session.encrypt(plain),
        }
    }

    /// Sends a `close_notify` without waiting for the peer's.
    pub(crate) fn close_notify(&mut self) {
        match &mut self.0 {
            SessionInner::OpenSsl(session) => session.close_notify(),
            SessionInner::Rustls(session) => session.close_notify(),
        }
    }

    /// The negotiated parameters; `None` before the handshake is complete.
    pub(crate) fn negotiated(&self) -> Option<Negotiated> {
        match &self.0 {
            SessionInner::OpenSsl(session) => session.negotiated(),
            SessionInner::Rustls(session) => session.negotiated(),
        }
    }

    /// Fails unless the server chose this protocol: a server without ALPN may speak another one (RFC 7301).
    pub(crate) fn expect_alpn(&self, protocol: &[u8]) -> Result<(), Error> {
        let chosen = match &self.0 {
            SessionInner::OpenSsl(session) => session.alpn(),
            SessionInner::Rustls(session) => session.alpn(),
        };
        if chosen == Some(protocol) {
            return Ok(());
        }
        Err(Error::Tls("the server did not choose the protocol offered in ALPN".to_owned()))
    }

    /// The certificate hash for channel binding (`tls-server-end-point`, RFC 5929, 4.1).
    pub(crate) fn server_end_point(&self) -> Result<Vec<u8>, Error> {
        match &self.0 {
            SessionInner::OpenSsl(session) => session.server_end_point(),
            SessionInner::Rustls(session) => session.server_end_point(),
        }
    }
}
