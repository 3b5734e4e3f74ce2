//! Verifies servers of rustls handshakes by OpenSSL: which certificates are accepted depends on the system's OpenSSL and its
//! configuration, not on the library that encrypts the connection. The verifier of rustls refuses what database servers
//! often have: self-signed certificates of an authority, those of version 1, and names in the subject only.

use std::error;
use std::fmt;
use std::sync::Arc;

use ciphertoll_vocabulary::Verification;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Verifier};
use openssl::ssl::{SslContext, SslContextBuilder, SslMethod};
use openssl::stack::Stack;
use openssl::x509::verify::{X509CheckFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509StoreContext, X509VerifyResult};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, PeerMisbehaved, SignatureScheme};

use crate::Error;
use crate::tls::certificate;
use crate::tls::openssl::{load_authorities, openssl_has_post_quantum, settings_error};
use crate::tls::settings::{PeerName, Settings};
use crate::tls::unverified;

/// The curve is that of the scheme in TLS 1.3, and any in TLS 1.2 (RFC 8446, 4.2.3).
#[derive(Clone, Copy)]
enum Method {
    Ecdsa(fn() -> MessageDigest),
    /// With a salt as long as the digest.
    RsaPss(fn() -> MessageDigest),
    /// TLS 1.2 only.
    RsaPkcs1(fn() -> MessageDigest),
    /// Signs the message and no digest of it.
    Whole,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Tls12,
    Tls13,
}

/// The schemes that are offered, the preferred one first, each with the label of its key (TLS 1.3).
const SCHEMES: [(SignatureScheme, Method, &str); 11] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, Method::Ecdsa(MessageDigest::sha256), "p256"),
    (SignatureScheme::ECDSA_NISTP384_SHA384, Method::Ecdsa(MessageDigest::sha384), "p384"),
    (SignatureScheme::ECDSA_NISTP521_SHA512, Method::Ecdsa(MessageDigest::sha512), "p521"),
    (SignatureScheme::ED25519, Method::Whole, "ed25519"),
    (SignatureScheme::RSA_PSS_SHA256, Method::RsaPss(MessageDigest::sha256), RSA),
    (SignatureScheme::RSA_PSS_SHA384, Method::RsaPss(MessageDigest::sha384), RSA),
    (SignatureScheme::RSA_PSS_SHA512, Method::RsaPss(MessageDigest::sha512), RSA),
    (SignatureScheme::RSA_PKCS1_SHA256, Method::RsaPkcs1(MessageDigest::sha256), RSA),
    (SignatureScheme::RSA_PKCS1_SHA384, Method::RsaPkcs1(MessageDigest::sha384), RSA),
    (SignatureScheme::RSA_PKCS1_SHA512, Method::RsaPkcs1(MessageDigest::sha512), RSA),
    (SignatureScheme::ED448, Method::Whole, "ed448"),
];
/// From OpenSSL 3.5 on.
const POST_QUANTUM_SCHEMES: [(SignatureScheme, Method, &str); 3] = [
    (SignatureScheme::ML_DSA_44, Method::Whole, "mldsa44"),
    (SignatureScheme::ML_DSA_65, Method::Whole, "mldsa65"),
    (SignatureScheme::ML_DSA_87, Method::Whole, "mldsa87"),
];
/// Of any size.
const RSA: &str = "rsa";

pub(super) struct OpenSslVerifier {
    /// Its store has the authorities, the required name and the security level of the system's configuration. `None` if
    /// nothing is verified but the handshake's signature.
    context: Option<SslContext>,
}

/// OpenSSL's reason for a rejection.
#[derive(Debug)]
struct Rejected(String);

impl OpenSslVerifier {
    /// Reads the authorities.
    pub(super) fn build(settings: &Settings) -> Result<Self, Error> {
        let required = match settings.verification {
            Verification::Off => return Ok(Self { context: None }),
            Verification::Authority => None,
            Verification::Full => Some(&settings.peer),
        };
        let context = || SslContextBuilder::new(SslMethod::tls_client()).map_err(settings_error);
        let security_level = context()?.build().security_level();
        let mut builder = context()?;
        load_authorities(&mut builder, &settings.anchors)?;
        let parameters = parameters(required, security_level).map_err(settings_error)?;
        builder.cert_store_mut().set_param(&parameters).map_err(settings_error)?;
        Ok(Self { context: Some(builder.build()) })
    }
}

impl ServerCertVerifier for OpenSslVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(context) = &self.context else { return Ok(ServerCertVerified::assertion()) };
        let failed = |_: ErrorStack| rustls::Error::from(CertificateError::BadEncoding);
        let certificate = X509::from_der(end_entity).map_err(failed)?;
        let mut chain = Stack::new().map_err(failed)?;
        for intermediate in intermediates {
            chain.push(X509::from_der(intermediate).map_err(failed)?).map_err(failed)?;
        }
        let mut verification = X509StoreContext::new().map_err(failed)?;
        let (is_verified, result, reason) = verification
            .init(context.cert_store(), &certificate, &chain, |verification| {
                let (is_verified, result) = (verification.verify_cert()?, verification.error());
                Ok((is_verified, result, unverified::reason(result, verification.current_cert())))
            })
            .map_err(failed)?;
        // Errors that are left in the thread's queue would end the next TLS client of this thread.
        drop(ErrorStack::get());
        if is_verified && result == X509VerifyResult::OK {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Rejected(reason)))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(Version::Tls12, message, certificate, signed.scheme, signed.signature())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(Version::Tls13, message, certificate, signed.scheme, signed.signature())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes().map(|(scheme, ..)| scheme).collect()
    }
}

/// The parameters that OpenSSL sets when it is the client.
fn parameters(required: Option<&PeerName>, security_level: u32) -> Result<X509VerifyParam, ErrorStack> {
    let mut parameters = X509VerifyParam::new()?;
    parameters.set_purpose(X509PurposeId::SSL_SERVER)?;
    parameters.set_auth_level(i32::try_from(security_level).unwrap_or(i32::MAX));
    match required {
        Some(PeerName::Dns(name)) => {
            parameters.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
            parameters.set_host(name)?;
        }
        Some(PeerName::Ip(address)) => parameters.set_ip(*address)?,
        None => {}
    }
    Ok(parameters)
}

fn verify_signature(
    version: Version,
    message: &[u8],
    certificate_der: &[u8],
    scheme: SignatureScheme,
    signature: &[u8],
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let (method, label) = find(scheme)
        .filter(|(method, _)| version == Version::Tls12 || !matches!(method, Method::RsaPkcs1(_)))
        .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let key = X509::from_der(certificate_der)
        .and_then(|certificate| certificate.public_key())
        .map_err(|_| CertificateError::BadEncoding)?;
    let fits = match (method, version) {
        (Method::RsaPss(_) | Method::RsaPkcs1(_), _) => key.id() == Id::RSA,
        (Method::Ecdsa(_), Version::Tls12) => key.id() == Id::EC,
        (Method::Ecdsa(_), Version::Tls13) | (Method::Whole, _) => {
            certificate::key_label(certificate_der).as_deref() == Some(label)
        }
    };
    if fits && is_valid(method, &key, message, signature).unwrap_or(false) {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

fn schemes() -> impl Iterator<Item = (SignatureScheme, Method, &'static str)> {
    let post_quantum = POST_QUANTUM_SCHEMES.into_iter().filter(|_| openssl_has_post_quantum());
    SCHEMES.into_iter().chain(post_quantum)
}

fn find(scheme: SignatureScheme) -> Option<(Method, &'static str)> {
    schemes().find(|(known, ..)| *known == scheme).map(|(_, method, label)| (method, label))
}

fn is_valid(
    method: Method,
    key: &PKey<Public>,
    message: &[u8],
    signature: &[u8],
) -> Result<bool, ErrorStack> {
    let mut verifier = match method {
        Method::Ecdsa(digest) | Method::RsaPkcs1(digest) => Verifier::new(digest(), key)?,
        Method::RsaPss(digest) => {
            let mut verifier = Verifier::new(digest(), key)?;
            verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
            verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
            verifier.set_rsa_mgf1_md(digest())?;
            verifier
        }
        Method::Whole => Verifier::new_without_digest(key)?,
    };
    verifier.verify_oneshot(signature, message)
}

impl fmt::Display for Rejected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl error::Error for Rejected {}

impl fmt::Debug for OpenSslVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OpenSslVerifier(..)")
    }
}

#[cfg(test)]
mod tests;
