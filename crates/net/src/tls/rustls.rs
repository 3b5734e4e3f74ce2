//! A client's TLS context, by rustls.

mod openssl_verifier;
mod resumption;
mod session;

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, default_provider};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion};

use self::openssl_verifier::OpenSslVerifier;
use self::session::{RustlsSession, suite_label};
use super::session::{TlsContext, TlsSession};
use super::{
    Group, Identity, PeerName, Resumption, SecurityLevel, Settings, TlsVersion, TrustAnchors, Verification,
    alpn_length,
};
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
            .with_protocol_versions(&[supported(settings.version)?])
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
        let mut versions = vec![supported(settings.version)?];
        if oldest != settings.version {
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
        Ok(Self { config: Arc::new(config), peer: settings.peer.clone(), version: settings.version })
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
    if let Some(suite) = settings.suite {
        provider.cipher_suites.retain(|known| suite_label(known.suite()) == suite.iana());
        if provider.cipher_suites.is_empty() {
            return Err(absent(suite.iana()));
        }
    }
    if let Some(group) = settings.group {
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

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
fn settings_error(error: rustls::Error) -> Error {
    Error::TlsSettings(error.to_string())
}
