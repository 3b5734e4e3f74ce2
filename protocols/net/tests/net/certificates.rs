//! Fresh keys and certificates, made for one test and gone with it.

use std::fs;
use std::path::PathBuf;

use ciphertoll_net::tls::{
    Identity, PeerName, Settings, TlsLibrary, TlsParameters, TlsVersion, TrustAnchors,
};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{SslAcceptor, SslAcceptorBuilder, SslMethod, SslVersion};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use tempfile::TempDir;

const DAY_S: i64 = 86_400;
const X509_V3: i32 = 2;

/// The key of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    P256,
    P384,
    Rsa2048,
    Ed25519,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Now,
    Expired,
    NotYet,
}

/// What a client does TLS with, and which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) library: TlsLibrary,
    pub(crate) version: TlsVersion,
}

impl Offer {
    pub(crate) const OPENSSL_1_2: Self = Self { library: TlsLibrary::OpenSsl, version: TlsVersion::Tls12 };
    pub(crate) const OPENSSL_1_3: Self = Self { library: TlsLibrary::OpenSsl, version: TlsVersion::Tls13 };
    pub(crate) const RUSTLS_1_2: Self = Self { library: TlsLibrary::Rustls, version: TlsVersion::Tls12 };
    pub(crate) const RUSTLS_1_3: Self = Self { library: TlsLibrary::Rustls, version: TlsVersion::Tls13 };
    pub(crate) const ALL: [Self; 4] =
        [Self::OPENSSL_1_2, Self::OPENSSL_1_3, Self::RUSTLS_1_2, Self::RUSTLS_1_3];
    /// One for each library.
    pub(crate) const ONE_EACH: [Self; 2] = [Self::OPENSSL_1_3, Self::RUSTLS_1_3];
    /// And no TLS.
    pub(crate) const ALL_AND_PLAIN: [Option<Self>; 5] = [
        None,
        Some(Self::OPENSSL_1_2),
        Some(Self::OPENSSL_1_3),
        Some(Self::RUSTLS_1_2),
        Some(Self::RUSTLS_1_3),
    ];
}

/// How a server does TLS. Its certificate names `localhost` and 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerTls {
    pub(crate) key: Key,
    pub(crate) validity: Validity,
    /// The one version, where the server has only one.
    pub(crate) only: Option<SslVersion>,
    pub(crate) groups: &'static str,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self { key: Key::P256, validity: Validity::Now, only: None, groups: "X25519:P-256" }
    }
}

/// Who signs; its certificate is also in a file, for clients.
pub(crate) struct Authority {
    certificate: X509,
    key: PKey<Private>,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with_key(Key::P256)
    }

    pub(crate) fn with_key(key: Key) -> Self {
        let key = key.generate();
        let name = named("test authority");
        let mut builder = begin(&name, &name, &key, Validity::Now);
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        builder.sign(&key, digest_of(&key)).unwrap();
        let authority = Self { certificate: builder.build(), key, directory: TempDir::new().unwrap() };
        fs::write(authority.file(), authority.certificate.to_pem().unwrap()).unwrap();
        authority
    }

    /// The certificate that clients trust, PEM.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A client that trusts this authority and expects `localhost`.
    pub(crate) fn settings(&self, offer: Offer) -> Settings {
        let parameters = TlsParameters { library: offer.library, ..TlsParameters::new(offer.version) };
        Settings::new(parameters, TrustAnchors::File(self.file()), PeerName::from("localhost"))
    }

    /// A server with a fresh certificate of this authority.
    pub(crate) fn acceptor(&self, tls: ServerTls) -> SslAcceptor {
        self.acceptor_builder(tls).build()
    }

    /// The same, before it is finished.
    pub(crate) fn acceptor_builder(&self, tls: ServerTls) -> SslAcceptorBuilder {
        let key = tls.key.generate();
        let certificate = self.issue(&key, tls.validity);
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        builder.set_private_key(&key).unwrap();
        builder.set_certificate(&certificate).unwrap();
        builder.set_groups_list(tls.groups).unwrap();
        if let Some(version) = tls.only {
            builder.set_min_proto_version(Some(version)).unwrap();
            builder.set_max_proto_version(Some(version)).unwrap();
        }
        builder
    }

    /// A client's certificate of this authority.
    pub(crate) fn identity(&self) -> Identity {
        let key = Key::P256.generate();
        let certificate = self.issue(&key, Validity::Now);
        let file = |name| self.directory.path().join(name);
        let identity = Identity { certificate_file: file("client.pem"), key_file: file("client.key") };
        fs::write(&identity.certificate_file, certificate.to_pem().unwrap()).unwrap();
        fs::write(&identity.key_file, key.private_key_to_pem_pkcs8().unwrap()).unwrap();
        identity
    }

    fn issue(&self, key: &PKey<Private>, validity: Validity) -> X509 {
        let mut builder = begin(&named("localhost"), &named("test authority"), key, validity);
        let names = SubjectAlternativeName::new()
            .dns("localhost")
            .ip("127.0.0.1")
            .build(&builder.x509v3_context(Some(&self.certificate), None))
            .unwrap();
        builder.append_extension(names).unwrap();
        builder.sign(&self.key, digest_of(&self.key)).unwrap();
        builder.build()
    }
}

impl Key {
    fn generate(self) -> PKey<Private> {
        let on_curve = |curve| {
            let group = EcGroup::from_curve_name(curve).unwrap();
            PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
        };
        match self {
            Self::P256 => on_curve(Nid::X9_62_PRIME256V1),
            Self::P384 => on_curve(Nid::SECP384R1),
            Self::Rsa2048 => PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
            Self::Ed25519 => PKey::generate_ed25519().unwrap(),
        }
    }
}

/// Ed25519 has a digest built in.
fn digest_of(key: &PKey<Private>) -> MessageDigest {
    if key.id() == Id::ED25519 { MessageDigest::null() } else { MessageDigest::sha256() }
}

fn begin(subject: &X509Name, issuer: &X509Name, key: &PKey<Private>, validity: Validity) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(127, MsbOption::MAYBE_ZERO, false).unwrap();
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let now = i64::try_from(since_1970).unwrap();
    let (from, until) = match validity {
        Validity::Now => (now - DAY_S, now + DAY_S),
        Validity::Expired => (now - 2 * DAY_S, now - DAY_S),
        Validity::NotYet => (now + DAY_S, now + 2 * DAY_S),
    };
    let mut builder = X509::builder().unwrap();
    builder.set_version(X509_V3).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::from_unix(from).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::from_unix(until).unwrap()).unwrap();
    builder
}

fn named(common_name: &str) -> X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, common_name).unwrap();
    name.build()
}
