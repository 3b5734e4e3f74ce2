//! TLS by the system's OpenSSL, over memory buffers.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use crate::tls::resumption::SessionPolicy;
use ciphertoll_vocabulary::{Group, Identity, SecurityLevel, TlsLibrary, TlsVersion, Verification};
use ciphertoll_wire::tls::NamedGroup;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::ssl::{
    ErrorCode, Ssl, SslContextBuilder, SslFiletype, SslMethod, SslOptions, SslRef, SslStream, SslVerifyMode,
    SslVersion,
};
use openssl::x509::verify::X509CheckFlags;
use openssl::x509::{X509Ref, X509VerifyResult};
use socket2::Socket;

use super::certificate;
use super::handshake_size::HandshakeSize;
use super::memory::MemoryBuffers;
use super::observed::ObservedHandshake;
use super::session::{Decrypted, Filled, Handshake, Negotiated, TlsContext, TlsSession};
use super::settings::{PeerName, Resumption, ResumptionMethod, Settings, TrustAnchors, alpn_length};
use super::unverified;
use crate::Error;
use crate::buffer::Buffer;

/// `OpenSSL 3.5.9 29 Sep 2026`: the OpenSSL that this process has loaded.
pub fn openssl_version() -> &'static str {
    openssl::version::version()
}

/// Whether the OpenSSL of this process has ML-KEM and ML-DSA: from 3.5 on.
pub fn openssl_has_post_quantum() -> bool {
    /// `OPENSSL_VERSION_NUMBER` of 3.5.
    const OPENSSL_3_5: i64 = 0x3050_0000;
    openssl::version::number() >= OPENSSL_3_5
}

pub(super) struct OpenSslContext {
    inner: crate::tls::resumption::Context,
    peer: PeerName,
    verification: Verification,
    version: TlsVersion,
    library: TlsLibrary,
}

pub(super) struct OpenSslSession {
    stream: SslStream<MemoryBuffers>,
    observed: ObservedHandshake,
    verification: Verification,
    version: TlsVersion,
    library: TlsLibrary,
    role: HandshakeSide,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeSide {
    Client,
    Server,
}

impl OpenSslContext {
    pub(super) fn build(settings: &Settings) -> Result<Self, Error> {
        Ok(Self::of(Self::builder(settings)?, settings))
    }

    /// A context with a range of versions and groups, the preferred group first, and key shares as [`group_list`] marks
    /// them.
    pub(super) fn negotiating(
        settings: &Settings,
        oldest: TlsVersion,
        groups: &[Group],
    ) -> Result<Self, Error> {
        let mut builder = Self::builder(settings)?;
        builder.set_min_proto_version(Some(protocol(oldest))).map_err(settings_error)?;
        let groups = group_list(groups);
        builder
            .set_groups_list(&groups)
            .map_err(|_| Error::TlsSettings(format!("this OpenSSL rejects the groups {groups}")))?;
        Ok(Self::of(builder, settings))
    }

    fn builder(settings: &Settings) -> Result<SslContextBuilder, Error> {
        check_version(settings.parameters.library)?;
        let mut builder = SslContextBuilder::new(SslMethod::tls_client()).map_err(settings_error)?;
        let version = protocol(settings.parameters.version);
        builder.set_min_proto_version(Some(version)).map_err(settings_error)?;
        builder.set_max_proto_version(Some(version)).map_err(settings_error)?;
        offer(&mut builder, settings)?;
        match settings.verification {
            Verification::Full | Verification::Authority => {
                builder.set_verify_callback(SslVerifyMode::PEER, unverified::remember);
                load_authorities(&mut builder, &settings.anchors)?;
            }
            Verification::Off => builder.set_verify(SslVerifyMode::NONE),
        }
        if let Some(identity) = &settings.identity {
            load_identity(&mut builder, identity)?;
        }
        Ok(builder)
    }

    fn of(mut builder: SslContextBuilder, settings: &Settings) -> Self {
        let (keep, method) = match &settings.resumption {
            Resumption::Never => (SessionPolicy::Nothing, ResumptionMethod::Any),
            Resumption::WithinContext(method) => (SessionPolicy::PerContext, *method),
            Resumption::AcrossContexts(method, sessions) => {
                (SessionPolicy::Shared(sessions.clone()), *method)
            }
        };
        if method == ResumptionMethod::SessionId {
            builder.set_options(SslOptions::NO_TICKET);
        }
        Self {
            inner: crate::tls::resumption::Context::build(builder, &keep),
            peer: settings.peer.clone(),
            verification: settings.verification,
            version: settings.parameters.version,
            library: settings.parameters.library,
        }
    }
}

impl TlsContext for OpenSslContext {
    fn session(&self, alpn: Option<&[u8]>) -> Result<Box<dyn TlsSession>, Error> {
        let mut ssl = self.inner.ssl().map_err(settings_error)?;
        if let Some(protocol) = alpn {
            ssl.set_alpn_protos(&[&[alpn_length(protocol)?], protocol].concat()).map_err(settings_error)?;
        }
        if let PeerName::Dns(name) = &self.peer {
            if name.contains('\0') {
                return Err(Error::TlsSettings("the server's name has a NUL byte".to_owned()));
            }
            ssl.set_hostname(name).map_err(settings_error)?;
        }
        match (self.verification, &self.peer) {
            (Verification::Full, PeerName::Dns(name)) => {
                ssl.param_mut().set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
                ssl.param_mut().set_host(name).map_err(settings_error)?;
            }
            (Verification::Full, PeerName::Ip(address)) => {
                ssl.param_mut().set_ip(*address).map_err(settings_error)?;
            }
            (Verification::Authority | Verification::Off, _) => {}
        }
        let mut session = OpenSslSession::over(ssl, HandshakeSide::Client, self.verification, self.version)?;
        session.library = self.library;
        Ok(Box::new(session))
    }
}

impl OpenSslSession {
    /// The server side of a connection.
    pub(super) fn accepting(ssl: Ssl) -> Result<Self, Error> {
        Self::over(ssl, HandshakeSide::Server, Verification::Authority, TlsVersion::Tls13)
    }

    fn over(
        ssl: Ssl,
        role: HandshakeSide,
        verification: Verification,
        version: TlsVersion,
    ) -> Result<Self, Error> {
        let stream = SslStream::new(ssl, MemoryBuffers::default()).map_err(settings_error)?;
        Ok(Self {
            stream,
            observed: ObservedHandshake::default(),
            verification,
            version,
            library: TlsLibrary::OpenSsl,
            role,
        })
    }

    /// OpenSSL's reason in one line, or the verifier's if the certificate was rejected.
    fn explain(&self, error: &openssl::ssl::Error) -> Error {
        // Without verification, OpenSSL still has a verify result, which is not the reason then.
        let verified = self.stream.ssl().verify_result();
        if self.verification != Verification::Off && verified != X509VerifyResult::OK {
            let whose = match self.role {
                HandshakeSide::Client => "server",
                HandshakeSide::Server => "client",
            };
            let reason = unverified::take(verified).unwrap_or_else(|| verified.error_string().to_owned());
            return Error::Tls(format!("the {whose}'s certificate does not verify: {reason}"));
        }
        let reason = error
            .ssl_error()
            .and_then(|stack| stack.errors().first())
            .and_then(openssl::error::Error::reason);
        match reason {
            Some(reason) if self.role == HandshakeSide::Server => Error::Tls(reason.to_owned()),
            Some(reason) => Error::Tls(format!("{reason} (offered {})", self.version.label())),
            None => Error::Tls(error.to_string()),
        }
    }
}

impl TlsSession for OpenSslSession {
    fn fill(&mut self, socket: &Socket) -> io::Result<Filled> {
        let memory = self.stream.get_mut();
        let (filled, new) = memory.fill(socket)?;
        self.observed.received(new);
        Ok(filled)
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.stream.get_mut().incoming.append(bytes);
        self.observed.received(bytes);
    }

    fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.stream.get_mut().outgoing
    }

    fn handshake(&mut self) -> Result<Handshake, Error> {
        let progress = match self.role {
            HandshakeSide::Client => self.stream.connect(),
            HandshakeSide::Server => self.stream.accept(),
        };
        if self.role == HandshakeSide::Client {
            self.observed.sent(&self.stream.get_ref().outgoing);
        }
        match progress {
            Ok(()) => {
                self.stream.get_mut().meter.complete();
                Ok(Handshake::Done)
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Handshake::NeedInput),
            Err(error) => Err(self.explain(&error)),
        }
    }

    fn decrypt(&mut self, into: &mut Buffer) -> Result<Decrypted, Error> {
        loop {
            if self.stream.get_ref().incoming.is_empty() && self.stream.ssl().pending() == 0 {
                return Ok(Decrypted::All);
            }
            match self.stream.ssl_read(into.space()) {
                Ok(bytes) => into.filled(bytes),
                Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(Decrypted::All),
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => return Ok(Decrypted::Closed),
                Err(error) => return Err(self.explain(&error)),
            }
        }
    }

    fn encrypt(&mut self, plain: &[u8]) -> Result<(), Error> {
        let mut left = plain;
        while !left.is_empty() {
            let bytes = self.stream.ssl_write(left).map_err(|error| self.explain(&error))?;
            left = &left[bytes..];
        }
        Ok(())
    }

    fn close_notify(&mut self) {
        // A failed session is closed without a close_notify.
        let _ = self.stream.shutdown();
    }

    fn negotiated(&self) -> Option<Negotiated> {
        let ssl = self.stream.ssl();
        let suite = ssl.current_cipher()?;
        let flight = self.observed.flight();
        let certificate = ssl.peer_certificate()?;
        let key = key_label(&certificate)?;
        let version = match ssl.version2() {
            Some(SslVersion::TLS1_3) => TlsVersion::Tls13.label(),
            Some(SslVersion::TLS1_2) => TlsVersion::Tls12.label(),
            Some(SslVersion::TLS1_1) => TlsVersion::Tls11.label(),
            Some(SslVersion::TLS1) => TlsVersion::Tls10.label(),
            _ => "older than tls1.0",
        };
        let resumed = ssl.session_reused();
        let signature = if resumed { None } else { self.observed.signature(version, &key) };
        Some(Negotiated {
            library: self.library,
            version,
            suite: suite.standard_name().unwrap_or(suite.name()),
            group: flight.group.map(NamedGroup::label),
            key,
            resumed,
            chain: chain_length(ssl),
            hello_retry: flight.hello_retry,
            signature,
            unused_shares: self.observed.unused_shares(flight.group),
        })
    }

    fn handshake_size(&self) -> Option<HandshakeSize> {
        self.stream.get_ref().meter.size()
    }

    fn alpn(&self) -> Option<&[u8]> {
        self.stream.ssl().selected_alpn_protocol()
    }

    fn server_end_point(&self) -> Result<Vec<u8>, Error> {
        let certificate = self.stream.ssl().peer_certificate();
        let certificate = certificate.ok_or_else(certificate::absent)?;
        let signature = certificate.signature_algorithm().object().nid().signature_algorithms();
        let digest = match signature.map(|signature| signature.digest) {
            // RFC 5929 replaces MD5 and SHA-1 by SHA-256.
            Some(Nid::MD5 | Nid::SHA1) => Some(MessageDigest::sha256()),
            Some(digest) => MessageDigest::from_nid(digest),
            None => None,
        };
        let digest = digest.ok_or_else(certificate::signed_without_digest)?;
        let hash = certificate.digest(digest).map_err(|error| Error::Tls(first_line(&error)))?;
        Ok(hash.to_vec())
    }

    fn peer_common_name(&self) -> Option<String> {
        let certificate = self.stream.ssl().peer_certificate()?;
        let name = certificate.subject_name().entries_by_nid(Nid::COMMONNAME).next()?;
        name.data().to_string().ok()
    }
}

fn protocol(version: TlsVersion) -> SslVersion {
    match version {
        TlsVersion::Tls10 => SslVersion::TLS1,
        TlsVersion::Tls11 => SslVersion::TLS1_1,
        TlsVersion::Tls12 => SslVersion::TLS1_2,
        TlsVersion::Tls13 => SslVersion::TLS1_3,
    }
}

pub(super) fn load_authorities(builder: &mut SslContextBuilder, anchors: &TrustAnchors) -> Result<(), Error> {
    match anchors {
        TrustAnchors::File(file) => load_ca(builder, file),
        TrustAnchors::FileAndSystem(file) => {
            load_ca(builder, file)?;
            builder.set_default_verify_paths().map_err(settings_error)
        }
        TrustAnchors::System => builder.set_default_verify_paths().map_err(settings_error),
    }
}

/// The error if the library lacks a suite or group of `settings`.
pub(super) fn lacks(settings: &Settings) -> Option<Error> {
    if let Err(error) = check_version(settings.parameters.library) {
        return Some(error);
    }
    let mut builder = match SslContextBuilder::new(SslMethod::tls_client()) {
        Ok(builder) => builder,
        Err(error) => return Some(settings_error(error)),
    };
    offer(&mut builder, settings).err()
}

pub(super) fn has_group(group: Group) -> bool {
    let builder = SslContextBuilder::new(SslMethod::tls_client());
    builder.is_ok_and(|mut builder| builder.set_groups_list(Group::openssl_name(group)).is_ok())
}

/// Fails if the settings require a newer OpenSSL than this process has loaded.
fn check_version(library: TlsLibrary) -> Result<(), Error> {
    if library == TlsLibrary::OpenSsl35 && !openssl_has_post_quantum() {
        let found = openssl_version();
        return Err(Error::TlsSettings(format!("this process has {found}, and {library} is required")));
    }
    Ok(())
}

/// Sets what is offered, where the settings name it.
fn offer(builder: &mut SslContextBuilder, settings: &Settings) -> Result<(), Error> {
    /// Accepts 1024-bit RSA keys (`SSL_CTX_set_security_level(3)`).
    const LEVEL_OF_80_BITS: u32 = 1;
    const LEVEL_OF_ANYTHING: u32 = 0;
    match settings.security_level {
        SecurityLevel::Default => {}
        SecurityLevel::Weak => builder.set_security_level(LEVEL_OF_80_BITS),
        SecurityLevel::Obsolete => builder.set_security_level(LEVEL_OF_ANYTHING),
    }
    if let Some(suite) = settings.parameters.suite {
        let set = match settings.parameters.version {
            TlsVersion::Tls10 | TlsVersion::Tls11 | TlsVersion::Tls12 => {
                builder.set_cipher_list(suite.label())
            }
            TlsVersion::Tls13 => builder.set_ciphersuites(suite.label()),
        };
        set.map_err(|_| Error::TlsSettings(format!("this OpenSSL has no {suite}")))?;
    }
    if let Some(group) = settings.parameters.group {
        let set = builder.set_groups_list(Group::openssl_name(group));
        set.map_err(|_| Error::TlsSettings(format!("this OpenSSL has no group {group}")))?;
    }
    Ok(())
}

/// The list for OpenSSL. It sends a key share for the first group. After a group with ML-KEM, a second one for the next
/// group: a server without ML-KEM would otherwise ask for it with a HelloRetryRequest.
fn group_list(groups: &[Group]) -> String {
    let shares = if let [first, _, ..] = groups
        && first.has_ml_kem()
    {
        2
    } else {
        0
    };
    let marked = groups.iter().enumerate().map(|(at, group)| {
        // The mark of OpenSSL 3.5, the first with ML-KEM. Without marks, it sends a share for the first group.
        let mark = if at < shares { "*" } else { "" };
        format!("{mark}{}", Group::openssl_name(*group))
    });
    marked.collect::<Vec<_>>().join(":")
}

pub(super) fn load_ca(builder: &mut SslContextBuilder, file: &Path) -> Result<(), Error> {
    builder
        .set_ca_file(file)
        .map_err(|error| Error::TlsSettings(format!("CA file {}: {}", file.display(), first_line(&error))))
}

pub(super) fn load_identity(builder: &mut SslContextBuilder, identity: &Identity) -> Result<(), Error> {
    let Identity { certificate_file, key_file } = identity;
    let cannot_use = |what: &'static str, file: &Path| {
        let file = file.display().to_string();
        move |error: openssl::error::ErrorStack| {
            Error::TlsSettings(format!("{what} {file}: {}", first_line(&error)))
        }
    };
    builder
        .set_certificate_chain_file(certificate_file)
        .map_err(cannot_use("certificate", certificate_file))?;
    builder
        .set_private_key_file(key_file, SslFiletype::PEM)
        .and_then(|()| builder.check_private_key())
        .map_err(cannot_use("key", key_file))
}

/// How many certificates the server sent in this handshake.
fn chain_length(ssl: &SslRef) -> Option<u8> {
    if ssl.session_reused() {
        return None;
    }
    ssl.peer_cert_chain().and_then(|chain| u8::try_from(chain.len()).ok())
}

/// `p256`, `rsa2048`.
fn key_label(x509: &X509Ref) -> Option<Cow<'static, str>> {
    // OpenSSL before 3.5 cannot read every key of a certificate.
    let key = x509.public_key().ok();
    match key.as_ref().map(|key| key.id()) {
        Some(Id::RSA) => match key?.bits() {
            2048 => Some("rsa2048".into()),
            bits => Some(format!("rsa{bits}").into()),
        },
        Some(Id::ED25519) => Some("ed25519".into()),
        // OpenSSL 3 takes 15 µs to report the curve, as it converts the whole key: too slow for every connect. It has
        // no numbers for ML-DSA.
        _ => certificate::key_label(&x509.to_der().ok()?),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "is handed to map_err as it is")]
pub(super) fn settings_error(error: openssl::error::ErrorStack) -> Error {
    Error::TlsSettings(first_line(&error))
}

pub(super) fn first_line(error: &openssl::error::ErrorStack) -> String {
    // System errors have no reason.
    let reason = error.errors().iter().find_map(openssl::error::Error::reason);
    reason.map_or_else(|| error.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use openssl::x509::X509;

    use super::*;

    /// OpenSSL before 3.5 cannot read such keys.
    #[test]
    fn ml_dsa_keys_have_a_name_with_any_openssl() {
        for (der, label) in certificate::ML_DSA_EXAMPLES {
            let x509 = X509::from_der(der).unwrap();
            assert_eq!(key_label(&x509).as_deref(), Some(label));
        }
    }

    #[test]
    fn a_post_quantum_group_is_followed_by_a_second_key_share() {
        let [hybrid, p256, x25519] = [Group::X25519MlKem768, Group::P256, Group::X25519];
        assert_eq!(group_list(&[hybrid, p256, x25519]), "*X25519MLKEM768:*P-256:X25519");
        assert_eq!(group_list(&[hybrid]), "X25519MLKEM768");
        assert_eq!(group_list(&[p256, hybrid, x25519]), "P-256:X25519MLKEM768:X25519");
    }
}
