//! One face for both libraries.

use std::io::{self, Read};

use super::{Group, Negotiated, Settings, TlsLibrary, TlsVersion, openssl, rustls};
use crate::Error;
use crate::buffer::Buffer;

/// A client's TLS context: trusted authorities, the one version offered and the client's certificate.
#[derive(Clone)]
pub struct Context(Inner);

#[derive(Clone)]
enum Inner {
    OpenSsl(openssl::Context),
    Rustls(rustls::Context),
}

/// TLS on one connection.
pub(crate) struct Session(InnerSession);

enum InnerSession {
    OpenSsl(openssl::Session),
    Rustls(rustls::Session),
}

/// Whether a handshake has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Done,
    NeedInput,
}

/// What one read brought, and how much it could have brought.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

/// Whether more can come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decrypted {
    All,
    Closed,
}

impl Context {
    /// Builds a context: reads the authorities and the client's certificate, sets the version.
    pub fn build(settings: &Settings) -> Result<Self, Error> {
        Ok(Self(match settings.library {
            TlsLibrary::OpenSsl => Inner::OpenSsl(openssl::Context::build(settings)?),
            TlsLibrary::Rustls => Inner::Rustls(rustls::Context::build(settings)?),
        }))
    }

    /// Builds a context that offers every version from `oldest` to that of the settings, and these groups, the first of
    /// which is sent a key for: what users want, and nobody who measures. OpenSSL only.
    pub fn negotiating(settings: &Settings, oldest: TlsVersion, groups: &[Group]) -> Result<Self, Error> {
        Ok(Self(Inner::OpenSsl(openssl::Context::negotiating(settings, oldest, groups)?)))
    }

    /// Why no context could offer this, if so: the library has no such suite or group.
    pub fn lacks(settings: &Settings) -> Option<Error> {
        match settings.library {
            TlsLibrary::OpenSsl => openssl::lacks(settings),
            TlsLibrary::Rustls => rustls::lacks(settings),
        }
    }

    /// TLS for one connection; `alpn` is the one protocol to offer.
    pub(crate) fn session(&self, alpn: Option<&[u8]>) -> Result<Session, Error> {
        Ok(Session(match &self.0 {
            Inner::OpenSsl(context) => InnerSession::OpenSsl(context.session(alpn)?),
            Inner::Rustls(context) => InnerSession::Rustls(context.session(alpn)?),
        }))
    }
}

impl Session {
    pub(super) fn by_openssl(session: openssl::Session) -> Self {
        Self(InnerSession::OpenSsl(session))
    }

    /// The common name of the certificate that the peer has shown; of a server only.
    pub(crate) fn peer_common_name(&self) -> Option<String> {
        match &self.0 {
            InnerSession::OpenSsl(session) => session.peer_common_name(),
            InnerSession::Rustls(_) => None,
        }
    }

    /// Reads once from `socket`; 0 at its end.
    pub(crate) fn fill(&mut self, socket: &mut impl Read) -> io::Result<Filled> {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.fill(socket),
            InnerSession::Rustls(session) => session.fill(socket),
        }
    }

    /// Takes what somebody else has read from the socket.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.feed(bytes),
            InnerSession::Rustls(session) => session.feed(bytes),
        }
    }

    /// What is to be sent.
    pub(crate) fn outgoing(&mut self) -> &mut Vec<u8> {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.outgoing(),
            InnerSession::Rustls(session) => session.outgoing(),
        }
    }

    pub(crate) fn handshake(&mut self) -> Result<Handshake, Error> {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.handshake(),
            InnerSession::Rustls(session) => session.handshake(),
        }
    }

    /// Decrypts all there is.
    pub(crate) fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error> {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.decrypt(into),
            InnerSession::Rustls(session) => session.decrypt(into),
        }
    }

    pub(crate) fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error> {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.encrypt(plain),
            InnerSession::Rustls(session) => session.encrypt(plain),
        }
    }

    /// Says goodbye; the answer is not waited for.
    pub(crate) fn close_notify(&mut self) {
        match &mut self.0 {
            InnerSession::OpenSsl(session) => session.close_notify(),
            InnerSession::Rustls(session) => session.close_notify(),
        }
    }

    /// What was agreed on; `None` before the handshake has ended.
    pub(crate) fn negotiated(&self) -> Option<Negotiated> {
        match &self.0 {
            InnerSession::OpenSsl(session) => session.negotiated(),
            InnerSession::Rustls(session) => session.negotiated(),
        }
    }

    /// Fails unless the server has chosen this protocol: one that knows no ALPN may speak another (RFC 7301).
    pub(crate) fn expect_alpn(&self, protocol: &[u8]) -> Result<(), Error> {
        let chosen = match &self.0 {
            InnerSession::OpenSsl(session) => session.alpn(),
            InnerSession::Rustls(session) => session.alpn(),
        };
        if chosen == Some(protocol) {
            return Ok(());
        }
        Err(Error::Tls("the server has not chosen the protocol that was offered in ALPN".to_owned()))
    }

    /// The hash of the server's certificate that logins are bound to (`tls-server-end-point`, RFC 5929, 4.1).
    pub(crate) fn server_end_point(&self) -> Result<Vec<u8>, Error> {
        match &self.0 {
            InnerSession::OpenSsl(session) => session.server_end_point(),
            InnerSession::Rustls(session) => session.server_end_point(),
        }
    }
}
