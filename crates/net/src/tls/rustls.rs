//! TLS by rustls, over memory buffers.

use std::io::{self, Read, Write};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use ciphertoll_wire::tls::NamedGroup;
use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, default_provider};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection, ConfigBuilder,
    HandshakeKind, ProtocolVersion, RootCertStore,
};
use socket2::Socket;

use super::memory::MemoryBuffers;
use super::observed::ObservedHandshake;
use super::session::{Decrypted, Filled, Handshake, TlsContext, TlsSession};
use super::{
    HandshakeSize, Identity, Negotiated, PeerName, Resumption, SecurityLevel, Settings, TlsLibrary,
    TlsVersion, TrustAnchors, Verification, alpn_length, certificate, rustls_sessions,
};
use crate::Error;
use crate::buffer::Buffer;

pub(super) struct RustlsContext {
    config: Arc<ClientConfig>,
    peer: PeerName,
    version: TlsVersion,
}

pub(super) struct RustlsSession {
    connection: ClientConnection,
    memory: MemoryBuffers,
    observed: ObservedHandshake,
    /// The peer's `close_notify` arrived, perhaps together with data, and was not yet reported to the caller.
    has_closed: bool,
    version: TlsVersion,
}

impl RustlsContext {
    pub(super) fn build(settings: &Settings) -> Result<Self, Error> {
        match settings.verification {
            Verification::Full => {}
            Verification::Authority | Verification::Off => {
                let reason = "rustls verifies the whole chain and the name; less verification needs OpenSSL";
                return Err(Error::TlsSettings(reason.to_owned()));
            }
        }
        let version = match settings.version {
            TlsVersion::Tls10 | TlsVersion::Tls11 => return Err(absent(settings.version.label())),
            TlsVersion::Tls12 => &TLS12,
            TlsVersion::Tls13 => &TLS13,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider(settings)?))
            .with_protocol_versions(&[version])
            .map_err(settings_error)?
            .with_root_certificates(authorities(&settings.anchors)?);
        let mut config = match &settings.identity {
            Some(identity) => with_identity(builder, identity)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = match &settings.resumption {
            // OpenSSL's clients do not resume by default, either.
            Resumption::Never => rustls::client::Resumption::disabled(),
            Resumption::WithinContext(method) => rustls_sessions::resumption(*method),
            Resumption::AcrossContexts(..) => {
                let reason = "rustls resumes sessions within one context only";
                return Err(Error::TlsSettings(reason.to_owned()));
            }
        };
        Ok(Self { config: Arc::new(config), peer: settings.peer.clone(), version: settings.version })
    }
}

impl TlsContext for RustlsContext {
    fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error> {
        let config = Arc::clone(&self.config);
        let name = server_name(&self.peer)?;
        let connection = match alpn {
            Some(protocol) => {
                alpn_length(protocol)?;
                ClientConnection::new_with_alpn(config, name, vec![protocol.to_vec()])
            }
            None => ClientConnection::new(config, name),
        };
        Ok(Box::new(RustlsSession {
            connection: connection.map_err(settings_error)?,
            memory: MemoryBuffers::default(),
            observed: ObservedHandshake::default(),
            has_closed: false,
            version: self.version,
        }))
    }
}

/// The error if the library lacks a suite or group of `settings`.
pub(super) fn lacks(settings: &Settings) -> Option<Error> {
    provider(settings).err()
}

/// The cryptography of aws-lc-rs, reduced to what the settings offer.
fn provider(settings: &Settings) -> Result<CryptoProvider, Error> {
    let mut provider = default_provider();
    match settings.security_level {
        SecurityLevel::Default => {}
        SecurityLevel::Weak => return Err(absent("RSA keys of less than 2048 bits")),
        SecurityLevel::Obsolete => return Err(absent("signatures with SHA-1")),
    }
    if let Some(suite) = settings.suite {
        provider.cipher_suites.retain(|known| suite_label(known.suite()) == suite.iana());
        if provider.cipher_suites.is_empty() {
            return Err(absent(suite.iana()));
        }
    }
    if let Some(group) = settings.group {
        // A named group need not be one of those that rustls offers by default.
        let is_named = |known: &&dyn SupportedKxGroup| u16::from(known.name()) == group.number();
        provider.kx_groups = ALL_KX_GROUPS.iter().copied().filter(is_named).collect();
        if provider.kx_groups.is_empty() {
            return Err(absent(&format!("group {}", group.label())));
        }
    }
    Ok(provider)
}

fn absent(what: &str) -> Error {
    Error::TlsSettings(format!("rustls with aws-lc-rs has no {what}"))
}

impl TlsSession for RustlsSession {
    fn fill(&mut self, socket: &Socket) -> io::Result<Filled> {
        let (filled, new) = self.memory.fill(socket)?;
        self.observed.received(new);
        Ok(filled)
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.memory.incoming.append(bytes);
        self.observed.received(bytes);
    }

    fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.memory.outgoing
    }

    fn handshake(&mut self) -> Result<Handshake, Error> {
        loop {
            self.put_out()?;
            self.observed.sent(&self.memory.outgoing);
            if !self.connection.is_handshaking() {
                self.memory.meter.complete();
                return Ok(Handshake::Done);
            }
            if self.memory.incoming.is_empty() {
                return Ok(Handshake::NeedInput);
            }
            if let Err(error) = self.take_in() {
                // Sends the alert. The original error matters more than a failure here.
                let _ = self.put_out();
                return Err(error);
            }
        }
    }

    fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error> {
        loop {
            // The end of the handshake may have brought application data.
            self.take_plaintext(into)?;
            if mem::take(&mut self.has_closed) {
                return Ok(Decrypted::Closed);
            }
            if self.memory.incoming.is_empty() {
                // Replies such as a KeyUpdate are sent with the next output.
                return self.put_out().map(|()| Decrypted::All);
            }
            self.take_in()?;
        }
    }

    fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error> {
        let mut left = plain;
        while !left.is_empty() {
            // rustls accepts as much as its buffer holds, which is emptied each time.
            let bytes = self.connection.writer().write(left).map_err(record_error)?;
            if bytes == 0 {
                return Err(Error::Tls("nothing more can be encrypted".to_owned()));
            }
            left = &left[bytes..];
            self.put_out()?;
        }
        Ok(())
    }

    fn close_notify(&mut self) {
        self.connection.send_close_notify();
        // A failed session is closed without a `close_notify`.
        let _ = self.put_out();
    }

    fn negotiated(&self) -> Option<Negotiated> {
        let kind = self.connection.handshake_kind()?;
        let certificates = self.connection.peer_certificates()?;
        let [certificate, ..] = certificates else { return None };
        let group = self.connection.negotiated_key_exchange_group();
        let group = group.map(|group| NamedGroup(u16::from(group.name())));
        let version = match self.connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13.label(),
            Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12.label(),
            _ => "older than tls1.2",
        };
        let key = certificate::key_label(certificate)?;
        let (chain, signature) = match kind {
            HandshakeKind::Resumed => (None, None),
            _ => (u8::try_from(certificates.len()).ok(), self.observed.signature(version, &key)),
        };
        Some(Negotiated {
            library: TlsLibrary::Rustls,
            version,
            suite: suite_label(self.connection.negotiated_cipher_suite()?.suite()),
            group: group.map(NamedGroup::label),
            key,
            resumed: kind == HandshakeKind::Resumed,
            chain,
            hello_retry: kind == HandshakeKind::FullWithHelloRetryRequest,
            signature,
            unused_shares: self.observed.unused_shares(group),
        })
    }

    fn handshake_size(&self) -> Option<HandshakeSize> {
        self.memory.meter.size()
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    fn server_end_point(&self) -> Result<Vec<u8>, Error> {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.ok_or_else(certificate::absent)?;
        let digest =
            certificate::end_point_digest(certificate).ok_or_else(certificate::signed_without_digest)?;
        Ok(digest.of(certificate))
    }
}

impl RustlsSession {
    /// Passes received bytes to rustls.
    fn take_in(&mut self) -> Result<(), Error> {
        self.connection.read_tls(&mut self.memory).map_err(record_error)?;
        let state = self.connection.process_new_packets().map_err(|error| self.explain(&error))?;
        if state.peer_has_closed() {
            // Nothing after a `close_notify` is from the peer.
            self.memory.incoming.consume(self.memory.incoming.unread().len());
            self.has_closed = true;
        }
        Ok(())
    }

    fn take_plaintext(&mut self, into: &mut Buffer) -> Result<(), Error> {
        let mut reader = self.connection.reader();
        loop {
            match reader.read(into.space()) {
                Ok(0) => return Ok(()),
                Ok(bytes) => into.filled(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(record_error(error)),
            }
        }
    }

    fn put_out(&mut self) -> Result<(), Error> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.memory).map_err(record_error)?;
        }
        Ok(())
    }

    /// The reason in one line, or the verifier's if the certificate was rejected.
    fn explain(&self, error: &rustls::Error) -> Error {
        let offered = self.version.label();
        Error::Tls(match error {
            rustls::Error::InvalidCertificate(error) => {
                format!("the server's certificate does not verify: {}", verifier_reason(error))
            }
            rustls::Error::AlertReceived(alert) => {
                format!("alert {} (offered {offered})", alert_words(*alert))
            }
            other => format!("{other} (offered {offered})"),
        })
    }
}

fn authorities(anchors: &TrustAnchors) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match anchors {
        TrustAnchors::File(file) => add_file(&mut store, file)?,
        TrustAnchors::FileAndSystem(file) => {
            add_file(&mut store, file)?;
            add_system(&mut store);
        }
        TrustAnchors::System => add_system(&mut store),
    }
    Ok(store)
}

fn add_file(store: &mut RootCertStore, file: &Path) -> Result<(), Error> {
    let cannot_use = |reason: String| Error::TlsSettings(format!("CA file {}: {reason}", file.display()));
    for certificate in read_certificates(file).map_err(cannot_use)? {
        store.add(certificate).map_err(|error| cannot_use(error.to_string()))?;
    }
    Ok(())
}

/// As with OpenSSL, missing or malformed system certificates are ignored.
fn add_system(store: &mut RootCertStore) {
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &Identity,
) -> Result<ClientConfig, Error> {
    let Identity { certificate_file, key_file } = identity;
    let cannot_use = |what: &str, file: &Path, reason: String| {
        Error::TlsSettings(format!("{what} {}: {reason}", file.display()))
    };
    let chain = read_certificates(certificate_file)
        .map_err(|reason| cannot_use("client certificate", certificate_file, reason))?;
    let cannot_use_key = |reason: String| cannot_use("client key", key_file, reason);
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| cannot_use_key(pem_reason(&error)))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| cannot_use_key(error.to_string()))
}

/// All certificates in a PEM file, at least one.
fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(pem_reason(&error)),
    }
}

fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn server_name(peer: &PeerName) -> Result<ServerName<'static>, Error> {
    match peer {
        PeerName::Dns(name) => match DnsName::try_from(name.clone()) {
            Ok(name) => Ok(name.into()),
            Err(_) => Err(Error::TlsSettings(format!("the server's name {name:?} is not a valid host name"))),
        },
        PeerName::Ip(address) => Ok(ServerName::from(*address)),
    }
}

/// The suite's IANA name; rustls names those of TLS 1.3 differently.
fn suite_label(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("a suite without a name"),
    }
}

/// OpenSSL's wording for cases that both libraries know, so that reports do not depend on the library.
fn verifier_reason(error: &CertificateError) -> String {
    let reason = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid"
        }
        CertificateError::NotValidForNameContext { expected: ServerName::IpAddress(_), .. } => {
            "IP address mismatch"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "hostname mismatch"
        }
        CertificateError::UnknownIssuer => "unable to get local issuer certificate",
        CertificateError::BadSignature => "certificate signature failure",
        other => return other.to_string(),
    };
    reason.to_owned()
}

/// `protocol version` for `ProtocolVersion`.
fn alert_words(alert: AlertDescription) -> String {
    let name = format!("{alert:?}");
    let mut words = String::with_capacity(name.len() + 4);
    let mut after_lowercase = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_lowercase {
            words.push(' ');
        }
        after_lowercase = letter.is_lowercase();
        words.extend(letter.to_lowercase());
    }
    words
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn settings_error(error: rustls::Error) -> Error {
    Error::TlsSettings(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn record_error(error: io::Error) -> Error {
    Error::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_in_words() {
        assert_eq!(alert_words(AlertDescription::ProtocolVersion), "protocol version");
        assert_eq!(alert_words(AlertDescription::UnknownCA), "unknown ca");
        assert_eq!(alert_words(AlertDescription::HandshakeFailure), "handshake failure");
    }

    #[test]
    fn suites_have_their_iana_names() {
        for suite in default_provider().cipher_suites {
            let label = suite_label(suite.suite());
            assert!(label.starts_with("TLS_"), "{label}");
        }
    }
}
