//! A client's TLS context, by either library.

use std::sync::Arc;

use super::openssl::{self, OpenSslContext};
use super::rustls::{self, RustlsContext};
use super::session::{TlsContext, TlsSession};
use super::{Group, Settings, TlsLibrary, TlsVersion};
use crate::Error;

/// A client's TLS context: trusted authorities, offered version, client certificate.
#[derive(Clone)]
pub struct Context(Arc<dyn TlsContext>);

impl Context {
    /// Builds a context: reads the authorities and the client's certificate.
    pub fn build(settings: &Settings) -> Result<Self, Error> {
        Ok(match settings.parameters.library {
            TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => Self(Arc::new(OpenSslContext::build(settings)?)),
            TlsLibrary::Rustls => Self(Arc::new(RustlsContext::build(settings)?)),
        })
    }

    /// Builds a context that negotiates: every version from `oldest` to that of the settings, and these groups, with
    /// a key share for the first, and for a second one after a post-quantum group. For production use, not for
    /// measurements: OpenSSL decides which certificates are accepted, whatever the library.
    pub fn negotiating(settings: &Settings, oldest: TlsVersion, groups: &[Group]) -> Result<Self, Error> {
        Ok(match settings.parameters.library {
            TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => {
                Self(Arc::new(OpenSslContext::negotiating(settings, oldest, groups)?))
            }
            TlsLibrary::Rustls => Self(Arc::new(RustlsContext::negotiating(settings, oldest, groups)?)),
        })
    }

    /// The error if the library lacks a suite or group of the settings.
    pub fn lacks(settings: &Settings) -> Option<Error> {
        match settings.parameters.library {
            TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => openssl::lacks(settings),
            TlsLibrary::Rustls => rustls::lacks(settings),
        }
    }

    pub(crate) fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error> {
        self.0.session(alpn)
    }
}
