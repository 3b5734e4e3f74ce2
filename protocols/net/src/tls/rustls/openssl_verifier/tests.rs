//! rustls with this verifier accepts the servers that OpenSSL's own client accepts, and refuses the others for the same
//! reason.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::Private;
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use openssl::ssl::{Ssl, SslContext, SslStream};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName};
use openssl::x509::{X509Builder, X509NameBuilder};
use tempfile::NamedTempFile;

use super::*;
use crate::tls::session::Handshake;
use crate::tls::tests::Wires;
use crate::tls::{
    Context, Group, TlsLibrary, TlsParameters, TlsVersion, TrustAnchors, openssl_has_post_quantum,
};

const GROUPS: [Group; 3] = [Group::P256, Group::X25519, Group::P384];
const LEGACY_VERSION: i32 = 0;
const VERSION_3: i32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    Dns(&'static str),
    Ip(&'static str),
    Authority,
    /// A certificate for clients.
    ClientOnly,
}

/// A certificate and its key.
#[derive(Clone)]
struct Certified {
    key: PKey<Private>,
    certificate: X509,
}

/// What a certificate says of its owner.
#[derive(Clone, Copy)]
struct Subject<'a> {
    common_name: &'a str,
    version: i32,
    extensions: &'a [Extension],
    valid_days: (i64, i64),
}

impl<'a> Subject<'a> {
    fn new(common_name: &'a str, extensions: &'a [Extension]) -> Self {
        Self { common_name, version: VERSION_3, extensions, valid_days: (-1, 1) }
    }
}

fn elliptic(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn p256() -> PKey<Private> {
    elliptic(Nid::X9_62_PRIME256V1)
}

fn rsa(bits: u32) -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()
}

fn days_from_now(days: i64) -> Asn1Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Asn1Time::from_unix(i64::try_from(now.as_secs()).unwrap() + days * 86_400).unwrap()
}

/// Signed by `issuer`, or by its own key.
fn certify(key: PKey<Private>, subject: Subject<'_>, issuer: Option<&Certified>) -> Certified {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, subject.common_name).unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(subject.version).unwrap();
    builder.set_serial_number(&BigNum::from_u32(7).unwrap().to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(issuer.map_or(&name, |issuer| issuer.certificate.subject_name())).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&days_from_now(subject.valid_days.0)).unwrap();
    builder.set_not_after(&days_from_now(subject.valid_days.1)).unwrap();
    for extension in subject.extensions {
        extend(&mut builder, *extension);
    }
    let signer = issuer.map_or(&key, |issuer| &issuer.key);
    let digest = match signer.id() {
        Id::ED25519 | Id::ED448 => MessageDigest::null(),
        _ => MessageDigest::sha256(),
    };
    builder.sign(signer, digest).unwrap();
    Certified { certificate: builder.build(), key }
}

fn extend(builder: &mut X509Builder, extension: Extension) {
    let context = builder.x509v3_context(None, None);
    let built = match extension {
        Extension::Dns(name) => SubjectAlternativeName::new().dns(name).build(&context),
        Extension::Ip(address) => SubjectAlternativeName::new().ip(address).build(&context),
        Extension::Authority => BasicConstraints::new().critical().ca().build(),
        Extension::ClientOnly => ExtendedKeyUsage::new().client_auth().build(),
    };
    builder.append_extension(built.unwrap()).unwrap();
}

/// A server with a chain of certificates, and what its client trusts.
struct Server {
    own: Certified,
    intermediates: Vec<X509>,
    anchors: NamedTempFile,
}

impl Server {
    fn new(own: Certified, intermediates: &[&Certified], anchor: &Certified) -> Self {
        let mut anchors = NamedTempFile::new().unwrap();
        anchors.write_all(&anchor.certificate.to_pem().unwrap()).unwrap();
        let intermediates = intermediates.iter().map(|one| one.certificate.clone()).collect();
        Self { own, intermediates, anchors }
    }

    fn self_signed(key: PKey<Private>, subject: Subject<'_>) -> Self {
        let own = certify(key, subject, None);
        Self::new(own.clone(), &[], &own)
    }

    fn accepting(&self, version: TlsVersion) -> SslStream<Wires> {
        let version = match version {
            TlsVersion::Tls12 => openssl::ssl::SslVersion::TLS1_2,
            _ => openssl::ssl::SslVersion::TLS1_3,
        };
        let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
        // The client decides.
        context.set_security_level(0);
        context.set_certificate(&self.own.certificate).unwrap();
        context.set_private_key(&self.own.key).unwrap();
        for intermediate in &self.intermediates {
            context.add_extra_chain_cert(intermediate.clone()).unwrap();
        }
        context.set_max_proto_version(Some(version)).unwrap();
        SslStream::new(Ssl::new(&context.build()).unwrap(), Wires::default()).unwrap()
    }

    fn settings(&self, library: TlsLibrary, (verification, peer): &(Verification, PeerName)) -> Settings {
        let parameters = TlsParameters { library, ..TlsParameters::new(TlsVersion::Tls13) };
        let anchors = TrustAnchors::File(self.anchors.path().to_owned());
        Settings { verification: *verification, ..Settings::new(parameters, anchors, peer.clone()) }
    }

    /// The client's reason to refuse the server.
    fn refusal(
        &self,
        library: TlsLibrary,
        version: TlsVersion,
        by: &(Verification, PeerName),
    ) -> Option<String> {
        let settings = self.settings(library, by);
        let context = Context::negotiating(&settings, TlsVersion::Tls12, &GROUPS).unwrap();
        let mut client = context.session(None).unwrap();
        let mut server = self.accepting(version);
        loop {
            match client.handshake() {
                Ok(Handshake::Done) => {
                    assert_eq!(client.negotiated().unwrap().version, version.label());
                    return None;
                }
                Ok(Handshake::NeedInput) => {}
                // The same alert by another name.
                Err(error) => return Some(error.to_string().replace("sslv3 ", "")),
            }
            let flight = std::mem::take(client.outgoing());
            server.get_mut().incoming.extend_from_slice(&flight);
            // It waits for more, or has received an alert.
            let _ = server.accept();
            client.feed(&std::mem::take(&mut server.get_mut().outgoing));
        }
    }
}

/// Servers as they are in the field, and broken ones.
fn servers() -> Vec<(&'static str, Server)> {
    use Extension::{Authority, ClientOnly, Dns, Ip};
    let root = certify(p256(), Subject::new("root", &[Authority]), None);
    let stranger = certify(p256(), Subject::new("root", &[Authority]), None);
    let middle = certify(p256(), Subject::new("middle", &[Authority]), Some(&root));
    let no_authority = certify(p256(), Subject::new("middle", &[]), Some(&root));
    let named = Subject::new("db", &[Dns("db.example")]);
    let of_root = |subject| certify(p256(), subject, Some(&root));
    let leaf = |issuer: &Certified| certify(p256(), named, Some(issuer));
    let old = Subject { version: LEGACY_VERSION, ..Subject::new("db.example", &[]) };
    vec![
        ("usual", Server::new(of_root(named), &[], &root)),
        ("intermediate", Server::new(leaf(&middle), &[&middle], &root)),
        ("intermediate missing", Server::new(leaf(&middle), &[], &root)),
        ("issued by no authority", Server::new(leaf(&no_authority), &[&no_authority], &root)),
        ("another authority", Server::new(leaf(&stranger), &[], &root)),
        ("other name", Server::new(of_root(Subject::new("db", &[Dns("x.example")])), &[], &root)),
        ("wildcard", Server::new(of_root(Subject::new("db", &[Dns("*.example")])), &[], &root)),
        ("partial wildcard", Server::new(of_root(Subject::new("db", &[Dns("d*.example")])), &[], &root)),
        ("address", Server::new(of_root(Subject::new("db", &[Ip("127.0.0.1")])), &[], &root)),
        ("name in the subject only", Server::new(of_root(Subject::new("db.example", &[])), &[], &root)),
        ("version 1", Server::new(of_root(old), &[], &root)),
        ("expired", Server::new(of_root(Subject { valid_days: (-9, -2), ..named }), &[], &root)),
        ("not yet valid", Server::new(of_root(Subject { valid_days: (2, 9), ..named }), &[], &root)),
        (
            "for clients",
            Server::new(of_root(Subject::new("db", &[Dns("db.example"), ClientOnly])), &[], &root),
        ),
        ("self-signed", Server::self_signed(p256(), named)),
        (
            "self-signed authority",
            Server::self_signed(p256(), Subject::new("db", &[Authority, Dns("db.example")])),
        ),
        ("P-384", Server::self_signed(elliptic(Nid::SECP384R1), named)),
        ("P-521", Server::self_signed(elliptic(Nid::SECP521R1), named)),
        ("Ed25519", Server::self_signed(PKey::generate_ed25519().unwrap(), named)),
        ("Ed448", Server::self_signed(PKey::generate_ed448().unwrap(), named)),
        ("RSA", Server::self_signed(rsa(2048), named)),
        ("weak RSA", Server::self_signed(rsa(1024), named)),
        ("weak RSA authority", {
            let weak = certify(rsa(1024), Subject::new("root", &[Authority]), None);
            Server::new(leaf(&weak), &[], &weak)
        }),
    ]
}

#[test]
fn rustls_accepts_the_servers_that_openssl_accepts() {
    let name = || PeerName::from("db.example");
    let demands = [
        (Verification::Full, name()),
        (Verification::Full, PeerName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        (Verification::Authority, name()),
        (Verification::Off, name()),
    ];
    let mut accepted = 0;
    for (what, server) in servers() {
        // rustls has no Ed448 in TLS 1.2.
        let versions = [TlsVersion::Tls13, TlsVersion::Tls12];
        for version in versions.into_iter().take(if what == "Ed448" { 1 } else { 2 }) {
            for demand in &demands {
                let [openssl, rustls] = [TlsLibrary::OpenSsl, TlsLibrary::Rustls]
                    .map(|library| server.refusal(library, version, demand));
                assert_eq!(rustls, openssl, "{what}, {version:?}, {demand:?}");
                accepted += usize::from(rustls.is_none());
            }
        }
    }
    assert!((50..150).contains(&accepted), "{accepted}");
}

/// An empty name would switch OpenSSL's check of names off.
#[test]
fn no_context_is_built_for_a_name_that_is_none() {
    let server = Server::self_signed(p256(), Subject::new("db", &[Extension::Dns("db.example")]));
    for (name, is_name) in [("db.example", true), ("", false), ("db\0.example", false)] {
        let demand = (Verification::Full, PeerName::Dns(name.to_owned()));
        let settings = server.settings(TlsLibrary::Rustls, &demand);
        assert_eq!(Context::negotiating(&settings, TlsVersion::Tls12, &GROUPS).is_ok(), is_name, "{name:?}");
    }
}

/// OpenSSL takes an error in the thread's queue for that of its next call.
#[test]
fn no_error_remains_in_the_queue_of_openssl() {
    let demand = (Verification::Full, PeerName::from("db.example"));
    for (what, server) in servers() {
        let der = |certificate: &X509| CertificateDer::from(certificate.to_der().unwrap());
        let chain: Vec<_> = server.intermediates.iter().map(der).collect();
        let verifier = OpenSslVerifier::build(&server.settings(TlsLibrary::Rustls, &demand)).unwrap();
        drop(ErrorStack::get());
        let name = ServerName::try_from("db.example").unwrap();
        let _ =
            verifier.verify_server_cert(&der(&server.own.certificate), &chain, &name, &[], UnixTime::now());
        let left = ErrorStack::get();
        assert!(left.errors().is_empty(), "{what}: {left}");
    }
    let certificate = servers().remove(0).1.own.certificate.to_der().unwrap();
    for (scheme, ..) in SCHEMES {
        for signature in [&[][..], b"no signature"] {
            assert!(verify_signature(Version::Tls13, b"message", &certificate, scheme, signature).is_err());
            assert!(ErrorStack::get().errors().is_empty(), "{scheme:?}");
        }
    }
}

#[test]
fn a_signature_must_be_by_the_certificates_key_with_the_named_scheme() {
    let subject = Subject::new("db", &[]);
    let keys = [
        (p256(), "p256"),
        (elliptic(Nid::SECP384R1), "p384"),
        (elliptic(Nid::SECP521R1), "p521"),
        (PKey::generate_ed25519().unwrap(), "ed25519"),
        (PKey::generate_ed448().unwrap(), "ed448"),
        (rsa(2048), RSA),
    ];
    for (key, label) in keys {
        let der = certify(key.clone(), subject, None).certificate.to_der().unwrap();
        for (scheme, method, required) in SCHEMES {
            for version in [Version::Tls12, Version::Tls13] {
                let signature = sign(method, &key, b"message");
                let accepts = |message: &[u8], signature: &[u8]| {
                    verify_signature(version, message, &der, scheme, signature).is_ok()
                };
                // TLS 1.2 names no curve, TLS 1.3 has no PKCS #1.
                let fits = match (method, version) {
                    (Method::Ecdsa(_), Version::Tls12) => key.id() == Id::EC,
                    (Method::RsaPkcs1(_), Version::Tls13) => false,
                    _ => label == required,
                };
                let what = format!("{label}, {scheme:?}, {}", version == Version::Tls13);
                assert_eq!(signature.as_ref().is_some_and(|made| accepts(b"message", made)), fits, "{what}");
                let Some(mut signature) = signature else { continue };
                assert!(!accepts(b"messages", &signature) && !accepts(b"message", b""), "{what}");
                *signature.last_mut().unwrap() ^= 1;
                assert!(!accepts(b"message", &signature), "{what}");
            }
        }
    }
}

#[test]
fn only_schemes_that_can_be_verified_are_offered() {
    let offered = OpenSslVerifier { context: None }.supported_verify_schemes();
    assert!(offered.iter().all(|scheme| find(*scheme).is_some()));
    assert_eq!(offered.contains(&SignatureScheme::ML_DSA_65), openssl_has_post_quantum());
    assert!(find(SignatureScheme::RSA_PKCS1_SHA1).is_none());
}

/// `None` if the key is of another kind.
fn sign(method: Method, key: &PKey<Private>, message: &[u8]) -> Option<Vec<u8>> {
    let is_whole = matches!(key.id(), Id::ED25519 | Id::ED448);
    let mut signer = match method {
        Method::Whole if is_whole => Signer::new_without_digest(key).ok()?,
        Method::Ecdsa(digest) if key.id() == Id::EC => Signer::new(digest(), key).ok()?,
        Method::RsaPkcs1(digest) if key.id() == Id::RSA => Signer::new(digest(), key).ok()?,
        Method::RsaPss(digest) if key.id() == Id::RSA => {
            let mut signer = Signer::new(digest(), key).ok()?;
            signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
            signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
            signer
        }
        _ => return None,
    };
    signer.sign_oneshot_to_vec(message).ok()
}
