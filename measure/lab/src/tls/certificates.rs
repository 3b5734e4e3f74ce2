//! Fresh keys and certificates for one run: certificate authorities whose keys never leave memory, server certificates for
//! each kind of key, and client certificates.

use ciphertoll_model::{ChainLength, ServerKey};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};

use crate::tls::credentials::ServerCertificate;

/// Longer than any run, but short enough that nobody comes to rely on the certificates.
pub(super) const VALID_DAYS: i64 = 7;
const DAY_S: i64 = 86_400;
/// Tolerates a clock that is set back a little, as in a resumed virtual machine.
const VALID_BEFORE_S: i64 = 3_600;
/// The validity of a certificate: its begin and end, in seconds from now.
const THIS_RUN: [i64; 2] = [-VALID_BEFORE_S, VALID_DAYS * DAY_S];
const UNTIL_YESTERDAY: [i64; 2] = [-2 * DAY_S, -DAY_S];
pub(super) const NAME: &str = "ciphertoll lab authority";
const NAME_FOR_CLIENTS: &str = "ciphertoll lab authority for clients";
const X509_V3: i32 = 2;
const SERIAL_BITS: i32 = 127;

/// Separate authorities for server and client certificates. If a server trusted its own authority for clients, OpenSSL
/// would complete the server's chain with it and send it in every handshake.
pub(crate) struct Authorities {
    pub(crate) servers: Authority,
    pub(crate) clients: Authority,
}

pub struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

#[derive(Clone, Copy)]
struct Leaf<'a> {
    common_name: &'a str,
    key: ServerKey,
    purpose: &'a ExtendedKeyUsage,
    names: Option<&'a SubjectAlternativeName>,
    validity: [i64; 2],
}

pub struct Certificate {
    /// The certificate, followed by intermediate certificates.
    pub certificate_pem: Vec<u8>,
    /// Write this with mode 0600.
    pub key_pem: Vec<u8>,
}

impl Authorities {
    pub(crate) fn generate() -> Result<Self, ErrorStack> {
        Ok(Self { servers: Authority::generate()?, clients: Authority::generate_named(NAME_FOR_CLIENTS)? })
    }

    /// The issuer of client certificates, as MySQL and MariaDB write it.
    pub(crate) fn issuer_of_clients() -> String {
        format!("/CN={NAME_FOR_CLIENTS}")
    }
}

impl Authority {
    /// Generates an authority with a P-256 key.
    pub fn generate() -> Result<Self, ErrorStack> {
        Self::generate_named(NAME)
    }

    fn generate_named(name: &str) -> Result<Self, ErrorStack> {
        Self::make(name, ServerKey::P256, ChainLength::MAX - 1, None)
    }

    /// Issues an intermediate authority that may have `further` intermediates below it.
    fn issue_intermediate(&self, key: ServerKey, further: u8) -> Result<Self, ErrorStack> {
        Self::make(&format!("{NAME} {further}"), key, further, Some(self))
    }

    /// A self-signed authority, or one below `issuer`.
    fn make(name: &str, key: ServerKey, further: u8, issuer: Option<&Self>) -> Result<Self, ErrorStack> {
        let key = generate_key(key)?;
        let name = x509_name(name)?;
        let issuer_name = issuer.map_or(&*name, |issuer| issuer.certificate.subject_name());
        let mut builder = begin(&name, issuer_name, &key, THIS_RUN)?;
        let limit = BasicConstraints::new().critical().ca().pathlen(u32::from(further)).build()?;
        builder.append_extension(limit)?;
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build()?)?;
        let context = builder.x509v3_context(issuer.map(|issuer| &*issuer.certificate), None);
        let issuer_id =
            issuer.map(|_| AuthorityKeyIdentifier::new().keyid(true).build(&context)).transpose()?;
        let key_id = SubjectKeyIdentifier::new().build(&context)?;
        for extension in issuer_id.into_iter().chain([key_id]) {
            builder.append_extension(extension)?;
        }
        builder.sign(issuer.map_or(&key, |issuer| &issuer.key), MessageDigest::sha256())?;
        Ok(Self { certificate: builder.build(), key })
    }

    pub fn certificate_pem(&self) -> Result<Vec<u8>, ErrorStack> {
        self.certificate.to_pem()
    }

    /// Issues a server certificate for this machine's loopback addresses and name, and for the addresses of links. A long
    /// RSA key takes a second or more. Intermediates have keys of the same kind, as is usual; an Ed25519 certificate is signed
    /// by a P-256 key instead, because libpq cannot use channel binding with a certificate signed by Ed25519.
    pub fn issue(&self, certificate: impl Into<ServerCertificate>) -> Result<Certificate, ErrorStack> {
        self.issue_for(certificate.into(), THIS_RUN)
    }

    /// Issues a certificate that expired yesterday, for tests: clients must refuse it.
    pub fn issue_expired(&self, key: ServerKey) -> Result<Certificate, ErrorStack> {
        self.issue_for(key.into(), UNTIL_YESTERDAY)
    }

    fn issue_for(
        &self,
        certificate: ServerCertificate,
        validity: [i64; 2],
    ) -> Result<Certificate, ErrorStack> {
        let mut names = SubjectAlternativeName::new();
        names.dns("localhost").ip("127.0.0.1").ip("::1");
        for address in ciphertoll_link::SERVER {
            names.ip(&address.to_string());
        }
        let signing = match certificate.key {
            ServerKey::Ed25519 => ServerKey::P256,
            key => key,
        };
        let mut between: Vec<Self> = Vec::new();
        for further in (0..certificate.intermediates()).rev() {
            between.push(between.last().unwrap_or(self).issue_intermediate(signing, further)?);
        }
        let issuer = between.last().unwrap_or(self);
        let mut leaf = issuer.issue_leaf(&Leaf {
            common_name: "localhost",
            key: certificate.key,
            purpose: ExtendedKeyUsage::new().server_auth(),
            names: Some(&names),
            validity,
        })?;
        for authority in between.iter().rev() {
            leaf.certificate_pem.extend(authority.certificate_pem()?);
        }
        Ok(leaf)
    }

    /// Issues a client certificate with a P-256 key and the common name `user`.
    pub fn issue_to_client(&self, user: &str) -> Result<Certificate, ErrorStack> {
        self.issue_leaf(&Leaf {
            common_name: user,
            key: ServerKey::P256,
            purpose: ExtendedKeyUsage::new().client_auth(),
            names: None,
            validity: THIS_RUN,
        })
    }

    fn issue_leaf(&self, leaf: &Leaf<'_>) -> Result<Certificate, ErrorStack> {
        let Leaf { common_name, key, purpose, names, validity } = *leaf;
        let leaf_key = generate_key(key)?;
        let subject = x509_name(common_name)?;
        let mut builder = begin(&subject, self.certificate.subject_name(), &leaf_key, validity)?;
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        builder.append_extension(leaf_usage(key).build()?)?;
        builder.append_extension(purpose.build()?)?;
        let context = builder.x509v3_context(Some(&self.certificate), None);
        let names = names.map(|names| names.build(&context)).transpose()?;
        let issuer = AuthorityKeyIdentifier::new().keyid(true).build(&context)?;
        let key_id = SubjectKeyIdentifier::new().build(&context)?;
        for extension in names.into_iter().chain([issuer, key_id]) {
            builder.append_extension(extension)?;
        }
        builder.sign(&self.key, MessageDigest::sha256())?;
        Ok(Certificate {
            certificate_pem: builder.build().to_pem()?,
            key_pem: leaf_key.private_key_to_pem_pkcs8()?,
        })
    }
}

fn generate_key(key: ServerKey) -> Result<PKey<Private>, ErrorStack> {
    let on_curve = |curve| PKey::from_ec_key(EcKey::generate(&*EcGroup::from_curve_name(curve)?)?);
    match key {
        ServerKey::P256 => on_curve(Nid::X9_62_PRIME256V1),
        ServerKey::P384 => on_curve(Nid::SECP384R1),
        ServerKey::Ed25519 => PKey::generate_ed25519(),
        ServerKey::Rsa1024 => PKey::from_rsa(Rsa::generate(1024)?),
        ServerKey::Rsa2048 => PKey::from_rsa(Rsa::generate(2048)?),
        ServerKey::Rsa3072 => PKey::from_rsa(Rsa::generate(3072)?),
        ServerKey::Rsa4096 => PKey::from_rsa(Rsa::generate(4096)?),
        // By `ml_dsa`.
        ServerKey::MlDsa44 | ServerKey::MlDsa65 => Err(ErrorStack::get()),
    }
}

fn leaf_usage(key: ServerKey) -> KeyUsage {
    let mut usage = KeyUsage::new();
    usage.critical().digital_signature();
    if key.rsa_bits().is_some() {
        // TLS 1.2 supports RSA key transport.
        usage.key_encipherment();
    }
    usage
}

fn begin(
    subject: &X509Name,
    issuer: &openssl::x509::X509NameRef,
    key: &PKey<Private>,
    validity: [i64; 2],
) -> Result<X509Builder, ErrorStack> {
    let mut serial = BigNum::new()?;
    serial.rand(SERIAL_BITS, MsbOption::MAYBE_ZERO, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(X509_V3)?;
    builder.set_serial_number(&*serial.to_asn1_integer()?)?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_pubkey(key)?;
    builder.set_not_before(&*Asn1Time::from_unix(now_unix_s() + validity[0])?)?;
    builder.set_not_after(&*Asn1Time::from_unix(now_unix_s() + validity[1])?)?;
    Ok(builder)
}

fn x509_name(common_name: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    Ok(name.build())
}

fn now_unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
