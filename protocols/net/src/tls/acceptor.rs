//! The server side of TLS, by OpenSSL.

use std::path::PathBuf;

use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode, SslVerifyMode,
    SslVersion,
};
use openssl::x509::X509;

use super::openssl::OpenSslSession;
use super::openssl::{first_line, load_ca, load_identity, settings_error};
use super::{Identity, TlsSession};
use crate::Error;

/// Settings of a TLS 1.2 and 1.3 server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptorSettings {
    pub identity: Identity,
    /// A PEM file of authorities; if present, clients must present a certificate signed by one of them.
    pub clients: Option<PathBuf>,
    /// The only protocol accepted in ALPN.
    pub protocol: &'static [u8],
}

#[derive(Clone)]
pub struct Acceptor(SslContext);

impl Acceptor {
    pub fn build(service: &AcceptorSettings) -> Result<Self, Error> {
        let mut builder = SslContextBuilder::new(SslMethod::tls_server()).map_err(settings_error)?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(settings_error)?;
        // No resumption: every client presents its certificate.
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
        builder.set_num_tickets(0).map_err(settings_error)?;
        load_identity(&mut builder, &service.identity)?;
        if let Some(file) = &service.clients {
            load_ca(&mut builder, file)?;
            // Clients with several certificates choose by these names.
            let unreadable =
                |reason: String| Error::TlsSettings(format!("CA file {}: {reason}", file.display()));
            let pem = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
            for authority in X509::stack_from_pem(&pem).map_err(|error| unreadable(first_line(&error)))? {
                builder.add_client_ca(&authority).map_err(settings_error)?;
            }
            builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        }
        let protocol = service.protocol;
        // A client that offers only other protocols is refused.
        builder
            .set_alpn_select_callback(move |_, asked| named(asked, protocol).ok_or(AlpnError::ALERT_FATAL));
        Ok(Self(builder.build()))
    }

    pub(crate) fn session(&self) -> Result<Box<dyn TlsSession>, Error> {
        let ssl = Ssl::new(&self.0).map_err(settings_error)?;
        Ok(Box::new(OpenSslSession::accepting(ssl)?))
    }
}

/// Finds a protocol in an ALPN list of length-prefixed names (RFC 7301, 3.1).
fn named<'a>(list: &'a [u8], protocol: &[u8]) -> Option<&'a [u8]> {
    let mut rest = list;
    while let [length, tail @ ..] = rest {
        let (name, next) = tail.split_at_checked(usize::from(*length))?;
        if name == protocol {
            return Some(name);
        }
        rest = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_found_at_any_position() {
        assert_eq!(named(b"\x02h2\x0apostgresql", b"postgresql"), Some(&b"postgresql"[..]));
        for list in [&b""[..], b"\x02h2", b"\x0bpostgresql", b"\x0apostgresq", b"\x00"] {
            assert_eq!(named(list, b"postgresql"), None, "{list:?}");
        }
    }
}
