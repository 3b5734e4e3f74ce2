//! A client's TLS context, by either library.

use super::openssl::{self, OpenSslContext};
use super::rustls::{self, RustlsContext};
use super::session::TlsSession;
use super::{Group, Settings, TlsLibrary, TlsVersion};
use crate::Error;

/// A client's TLS context: trusted authorities, offered version, client certificate.
#[derive(Clone)]
pub struct Context(ContextInner);

#[derive(Clone)]
enum ContextInner {
    OpenSsl(OpenSslContext),
    Rustls(RustlsContext),
}

impl Context {
    /// Builds a context: reads the authorities and the client's certificate.
    pub fn build(settings: &Settings) -> Result<Self, Error> {
        Ok(Self(match settings.library {
            TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => {
                ContextInner::OpenSsl(OpenSslContext::build(settings)?)
            }
            TlsLibrary::Rustls => ContextInner::Rustls(RustlsContext::build(settings)?),
        }))
    }

    /// Builds a context that negotiates: every version from `oldest` to that of the settings, and these groups, with
    /// a key share for the first, and also for the second after a post-quantum one. For production use, not for
    /// measurements. OpenSSL only.
    pub fn negotiating(settings: &Settings, oldest: TlsVersion, groups: &[Group]) -> Result<Self, Error> {
        Ok(Self(ContextInner::OpenSsl(OpenSslContext::negotiating(settings, oldest, groups)?)))
    }

    /// The error if the library lacks a suite or group of the settings.
    pub fn lacks(settings: &Settings) -> Option<Error> {
        match settings.library {
            TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => openssl::lacks(settings),
            TlsLibrary::Rustls => rustls::lacks(settings),
        }
    }

    /// A session for one connection that offers `alpn` as its only protocol.
    pub(crate) fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error> {
        Ok(match &self.0 {
            ContextInner::OpenSsl(context) => Box::new(context.session(alpn)?),
            ContextInner::Rustls(context) => Box::new(context.session(alpn)?),
        })
    }
}
