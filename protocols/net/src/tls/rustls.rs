//! A client's TLS context, by rustls.

mod openssl_verifier;
mod resumption;
mod session;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ciphertoll_vocabulary::{Group, Identity, SecurityLevel, TlsVersion, Verification};
use openssl::error::ErrorStack;
use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, default_provider};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, DnsName, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion};

use self::openssl_verifier::OpenSslVerifier;
use self::session::{RustlsSession, suite_label};

use super::files::{self, FileError, FilePurpose, check_file};
use super::openssl::first_line;
use super::session::{TlsContext, TlsSession};
use super::settings::{PeerName, Resumption, Settings, TrustAnchors, alpn_length};
use crate::Error;

pub(super) struct RustlsContext {
    config: Arc<ClientConfig>,
    peer: PeerName,
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
        let builder = ClientConfig::builder_with_provider(Arc::new(provider(settings)?))
            .with_protocol_versions(&[supported(settings.parameters.version)?])
            .map_err(settings_error)?
            .with_root_certificates(authorities(&settings.anchors)?);
        let resumption = match &settings.resumption {
            // OpenSSL's clients do not resume by default, either.
            Resumption::Never => rustls::client::Resumption::disabled(),
            Resumption::WithinContext(method) => resumption::within_context(*method),
            Resumption::AcrossContexts(..) => {
                let reason = "rustls resumes sessions within one context only";
                return Err(Error::TlsSettings(reason.to_owned()));
            }
        };
        Self::of(builder, settings, resumption)
    }

    /// A context with a range of versions and groups, the preferred group first. After a hybrid group, rustls also sends
    /// a key share of its curve. OpenSSL verifies the server.
    pub(super) fn negotiating(
        settings: &Settings,
        oldest: TlsVersion,
        groups: &[Group],
    ) -> Result<Self, Error> {
        // An invalid name is refused now and not with each connection.
        server_name(&settings.peer)?;
        let mut versions = vec![supported(settings.parameters.version)?];
        if oldest != settings.parameters.version {
            versions.push(supported(oldest)?);
        }
        let groups: Option<Vec<_>> = groups.iter().map(|group| known_group(*group)).collect();
        let groups = groups.ok_or_else(|| absent("one of the groups"))?;
        let provider = CryptoProvider { kx_groups: groups, ..provider(settings)? };
        // At its first use, aws-lc collects entropy for 30 ms: now, and not in a thread that serves clients.
        provider.secure_random.fill(&mut [0]).map_err(|_| absent("random numbers"))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(settings_error)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OpenSslVerifier::build(settings)?));
        Self::of(builder, settings, resumption::last_group())
    }

    fn of(
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
        settings: &Settings,
        resumption: rustls::client::Resumption,
    ) -> Result<Self, Error> {
        let mut config = match &settings.identity {
            Some(identity) => with_identity(builder, identity)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = resumption;
        Ok(Self {
            config: Arc::new(config),
            peer: settings.peer.clone(),
            version: settings.parameters.version,
        })
    }
}

impl TlsContext for RustlsContext {
    fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error> {
        if let Some(protocol) = alpn {
            alpn_length(protocol)?;
        }
        let name = server_name(&self.peer)?;
        let session = RustlsSession::new(Arc::clone(&self.config), name, alpn, self.version);
        Ok(Box::new(session.map_err(settings_error)?))
    }
}

pub(super) fn has_group(group: Group) -> bool {
    known_group(group).is_some()
}

/// rustls has more groups than it offers by default.
fn known_group(group: Group) -> Option<&'static dyn SupportedKxGroup> {
    ALL_KX_GROUPS.iter().copied().find(|known| u16::from(known.name()) == group.number())
}

fn supported(version: TlsVersion) -> Result<&'static SupportedProtocolVersion, Error> {
    match version {
        TlsVersion::Tls10 | TlsVersion::Tls11 => Err(absent(version.label())),
        TlsVersion::Tls12 => Ok(&TLS12),
        TlsVersion::Tls13 => Ok(&TLS13),
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
    if let Some(suite) = settings.parameters.suite {
        provider.cipher_suites.retain(|known| suite_label(known.suite()) == suite.iana());
        if provider.cipher_suites.is_empty() {
            return Err(absent(suite.iana()));
        }
    }
    if let Some(group) = settings.parameters.group {
        let known = known_group(group).ok_or_else(|| absent(&format!("group {}", group.label())))?;
        provider.kx_groups = vec![known];
    }
    Ok(provider)
}

fn absent(what: &str) -> Error {
    Error::TlsSettings(format!("rustls with aws-lc-rs has no {what}"))
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

/// Files are read by OpenSSL, with either library: what one accepts, the other accepts.
fn add_file(store: &mut RootCertStore, file: &Path) -> Result<(), Error> {
    for certificate in files::certificates(FilePurpose::Authorities, file).map_err(file_error)? {
        let cannot_use =
            |error: &dyn fmt::Display| Error::TlsSettings(format!("CA file {}: {error}", file.display()));
        let der = certificate.to_der().map_err(|error| cannot_use(&first_line(&error)))?;
        store.add(CertificateDer::from(der)).map_err(|error| cannot_use(&error))?;
    }
    Ok(())
}

/// As with OpenSSL, missing or malformed system certificates are ignored.
fn add_system(store: &mut RootCertStore) {
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
}

/// The client's certificate and key. Whether they belong together is checked by OpenSSL: rustls parses the certificate for
/// that, and refuses version 1. The server decides whether it accepts one.
fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &Identity,
) -> Result<ClientConfig, Error> {
    let Identity { certificate_file, key_file } = identity;
    check_file(FilePurpose::Key, key_file, certificate_file).map_err(file_error)?;
    let unusable = |what: &'static str, file: &Path| {
        let file = file.display().to_string();
        move |error: ErrorStack| Error::TlsSettings(format!("{what} {file}: {}", first_line(&error)))
    };
    let chain = files::certificates(FilePurpose::Certificate, certificate_file).map_err(file_error)?;
    let chain: Result<Vec<_>, _> =
        chain.iter().map(|certificate| certificate.to_der().map(CertificateDer::from)).collect();
    let chain = chain.map_err(unusable("client certificate", certificate_file))?;
    let key = files::private_key(key_file).map_err(file_error)?;
    let key = key.private_key_to_pkcs8().map_err(unusable("client key", key_file))?;
    let key = builder
        .crypto_provider()
        .key_provider
        .load_private_key(PrivatePkcs8KeyDer::from(key).into())
        .map_err(|error| Error::TlsSettings(format!("client key {}: {error}", key_file.display())))?;
    let certified = CertifiedKey::new(chain, key);
    Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn file_error(error: FileError) -> Error {
    Error::TlsSettings(error.to_string())
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

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn settings_error(error: rustls::Error) -> Error {
    Error::TlsSettings(error.to_string())
}
