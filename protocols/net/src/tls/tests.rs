//! Handshakes in memory: what is observed equals what the server's end counts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use ::openssl::asn1::Asn1Time;
use ::openssl::ec::{EcGroup, EcKey};
use ::openssl::hash::MessageDigest;
use ::openssl::nid::Nid;
use ::openssl::pkey::{PKey, Private};
use ::openssl::rsa::Rsa;
use ::openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion};
use ::openssl::x509::extension::SubjectAlternativeName;
use ::openssl::x509::{X509, X509NameBuilder};
use ::rustls::crypto::SupportedKxGroup;
use ::rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use ::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ::rustls::{ServerConfig, ServerConnection};
use ciphertoll_wire::tls::{KeyShare, NamedGroup};
use tempfile::NamedTempFile;

use super::session::Handshake;
use super::*;

const X25519_MLKEM768: KeyShare = KeyShare { group: NamedGroup(0x11ec), bytes: 1184 + 32 };
const X25519: KeyShare = KeyShare { group: NamedGroup(0x001d), bytes: 32 };

/// A server's end, which counts what it reads and writes.
trait ServerEnd {
    /// Takes the client's bytes and answers.
    fn answer(&mut self, client: &[u8]) -> Vec<u8>;
}

#[derive(Default)]
pub(super) struct Wires {
    pub(super) incoming: Vec<u8>,
    pub(super) outgoing: Vec<u8>,
}

impl Read for Wires {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = into.len().min(self.incoming.len());
        into[..count].copy_from_slice(&self.incoming[..count]);
        self.incoming.drain(..count);
        Ok(count)
    }
}

impl Write for Wires {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ServerEnd for SslStream<Wires> {
    fn answer(&mut self, client: &[u8]) -> Vec<u8> {
        self.get_mut().incoming.extend_from_slice(client);
        // It waits for more.
        let _ = self.accept();
        std::mem::take(&mut self.get_mut().outgoing)
    }
}

impl ServerEnd for ServerConnection {
    fn answer(&mut self, mut client: &[u8]) -> Vec<u8> {
        while !client.is_empty() {
            self.read_tls(&mut client).unwrap();
            self.process_new_packets().unwrap();
        }
        let mut outgoing = Vec::new();
        while self.wants_write() {
            self.write_tls(&mut outgoing).unwrap();
        }
        outgoing
    }
}

struct Certified {
    key: PKey<Private>,
    certificate: X509,
    file: NamedTempFile,
}

impl Certified {
    fn p256() -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        Self::new(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap())
    }

    fn rsa() -> Self {
        Self::new(PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap())
    }

    fn new(key: PKey<Private>) -> Self {
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_nid(Nid::COMMONNAME, "localhost").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(2).unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        let names = SubjectAlternativeName::new()
            .dns("localhost")
            .build(&builder.x509v3_context(None, None))
            .unwrap();
        builder.append_extension(names).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let certificate = builder.build();
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(&certificate.to_pem().unwrap()).unwrap();
        Self { key, certificate, file }
    }

    fn settings(&self, library: TlsLibrary, version: TlsVersion) -> Settings {
        let parameters = TlsParameters { library, ..TlsParameters::new(version) };
        let anchors = TrustAnchors::File(self.file.path().to_owned());
        Settings::new(parameters, anchors, PeerName::from("localhost"))
    }

    fn openssl(&self, groups: &str) -> Box<dyn ServerEnd> {
        Box::new(SslStream::new(Ssl::new(&self.acceptor(groups)).unwrap(), Wires::default()).unwrap())
    }

    fn acceptor(&self, groups: &str) -> SslContext {
        let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
        context.set_private_key(&self.key).unwrap();
        context.set_certificate(&self.certificate).unwrap();
        context.set_groups_list(groups).unwrap();
        context.set_min_proto_version(Some(SslVersion::TLS1_2)).unwrap();
        context.build()
    }

    fn rustls(&self, groups: &[&'static dyn SupportedKxGroup]) -> Box<dyn ServerEnd> {
        let provider = ::rustls::crypto::CryptoProvider { kx_groups: groups.to_vec(), ..default_provider() };
        let chain = vec![CertificateDer::from(self.certificate.to_der().unwrap())];
        let key = PrivateKeyDer::try_from(self.key.private_key_to_pkcs8().unwrap()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Box::new(ServerConnection::new(Arc::new(config)).unwrap())
    }
}

/// Everything that crosses in a handshake: by the client and by the server, with the server's flights.
struct Crossed {
    negotiated: Negotiated,
    size: HandshakeSize,
    client_bytes: u64,
    server_flights: Vec<u64>,
}

/// A handshake in which the client gets the server's bytes in portions, as from segments.
fn shake_hands(settings: &Settings, server: Box<dyn ServerEnd>, portion: usize) -> Crossed {
    shake_hands_by(&Context::build(settings).unwrap(), server, portion)
}

fn shake_hands_by(context: &Context, mut server: Box<dyn ServerEnd>, portion: usize) -> Crossed {
    let mut client = context.session(None).unwrap();
    let mut client_bytes = 0;
    let mut server_flights = Vec::new();
    let mut progress = client.handshake().unwrap();
    assert_eq!(client.handshake_size(), None);
    loop {
        let flight = std::mem::take(client.outgoing());
        client_bytes += flight.len() as u64;
        if progress == Handshake::Done {
            break;
        }
        let mut answer = server.answer(&flight);
        server_flights.push(answer.len() as u64);
        while progress == Handshake::NeedInput && !answer.is_empty() {
            let now: Vec<u8> = answer.drain(..answer.len().min(portion)).collect();
            client.feed(&now);
            progress = client.handshake().unwrap();
        }
    }
    let (negotiated, size) = (client.negotiated().unwrap(), client.handshake_size().unwrap());
    Crossed { negotiated, size, client_bytes, server_flights }
}

fn assert_sizes(crossed: &Crossed, what: &str) {
    let size = HandshakeSize {
        read_bytes: crossed.server_flights.iter().sum(),
        written_bytes: crossed.client_bytes,
        first_flight_bytes: crossed.server_flights.iter().copied().max().unwrap(),
    };
    assert_eq!(crossed.size, size, "{what}: {:?}", crossed.server_flights);
}

#[test]
fn sizes_and_signatures_are_the_same_with_each_library_and_version() {
    let keys = [
        // In TLS 1.2 the scheme's name says only the hash: the server selects the client's favourite.
        (
            Certified::p256(),
            ["ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384"],
            Some("ecdsa_secp256r1_sha256"),
        ),
        (Certified::rsa(), ["rsa_pss_rsae_sha256", "rsa_pss_rsae_sha512"], None),
    ];
    for (certified, tls12, tls13) in keys {
        for (library, tls12) in [TlsLibrary::OpenSsl, TlsLibrary::Rustls].into_iter().zip(tls12) {
            for (version, signature) in [(TlsVersion::Tls12, Some(tls12)), (TlsVersion::Tls13, tls13)] {
                for portion in [usize::MAX, 97] {
                    let server = certified.openssl("X25519");
                    let crossed = shake_hands(&certified.settings(library, version), server, portion);
                    let what = format!("{library:?} {version:?} {portion}");
                    assert_sizes(&crossed, &what);
                    assert_eq!(crossed.negotiated.signature.as_deref(), signature, "{what}");
                    let flights = if version == TlsVersion::Tls13 { 1 } else { 2 };
                    assert_eq!(crossed.server_flights.len(), flights, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_hello_retry_is_not_the_first_flight_and_wastes_the_share() {
    let certified = Certified::p256();
    for library in [TlsLibrary::OpenSsl, TlsLibrary::Rustls] {
        let settings = certified.settings(library, TlsVersion::Tls13);
        let crossed = shake_hands(&settings, certified.openssl("P-256"), usize::MAX);
        assert_sizes(&crossed, "retry");
        assert!(crossed.negotiated.hello_retry);
        assert_eq!(crossed.server_flights.len(), 2);
        assert!(crossed.server_flights[0] < 150, "{:?}", crossed.server_flights);
        assert!(crossed.negotiated.unused_shares.contains(&X25519), "{library:?}");
    }
}

#[test]
fn rustls_negotiates_ml_kem() {
    let certified = Certified::p256();
    let settings = certified.settings(TlsLibrary::Rustls, TlsVersion::Tls13);
    let hybrid = || certified.rustls(&[kx_group::X25519MLKEM768, kx_group::X25519]);
    // By default it sends a share of the curve, too, for servers without ML-KEM.
    let crossed = shake_hands(&settings, hybrid(), usize::MAX);
    assert_eq!(crossed.negotiated.group.as_deref(), Some("x25519mlkem768"));
    assert_eq!(crossed.negotiated.unused_shares, [X25519]);
    assert_sizes(&crossed, "hybrid");
    // Only the named group is offered, even if rustls does not offer it by default.
    for (group, server) in [
        (Group::X25519MlKem768, kx_group::X25519MLKEM768),
        (Group::SecP256r1MlKem768, kx_group::SECP256R1MLKEM768),
        (Group::MlKem768, kx_group::MLKEM768),
        (Group::MlKem1024, kx_group::MLKEM1024),
        (Group::P256, kx_group::SECP256R1),
    ] {
        let mut settings = settings.clone();
        settings.parameters.group = Some(group);
        let crossed = shake_hands(&settings, certified.rustls(&[server]), usize::MAX);
        assert_eq!(crossed.negotiated.group.as_deref(), Some(group.label()));
        assert_eq!(crossed.negotiated.unused_shares, []);
        assert!(!crossed.negotiated.hello_retry);
    }
    assert!(!has_group(TlsLibrary::Rustls, Group::SecP384r1MlKem1024), "then the settings may name it");
}

#[test]
fn a_server_is_asked_again_for_its_group_only_once() {
    let certified = Certified::p256();
    let settings = certified.settings(TlsLibrary::Rustls, TlsVersion::Tls13);
    let groups = [Group::X25519MlKem768, Group::P256];
    let context = Context::negotiating(&settings, TlsVersion::Tls12, &groups).unwrap();
    let retried = [(); 3].map(|()| {
        let crossed = shake_hands_by(&context, certified.openssl("P-256"), usize::MAX);
        assert!(!crossed.negotiated.resumed);
        crossed.negotiated.hello_retry
    });
    assert_eq!(retried, [true, false, false]);
}

#[test]
fn a_server_without_ml_kem_wastes_the_clients_share() {
    let certified = Certified::p256();
    let settings = certified.settings(TlsLibrary::Rustls, TlsVersion::Tls13);
    let crossed = shake_hands(&settings, certified.openssl("X25519"), usize::MAX);
    assert_eq!(crossed.negotiated.group.as_deref(), Some("x25519"));
    assert_eq!(crossed.negotiated.unused_shares, [X25519_MLKEM768]);
    assert!(!crossed.negotiated.hello_retry);
    let mut only_used = settings;
    only_used.parameters.group = Some(Group::X25519);
    let crossed = shake_hands(&only_used, certified.openssl("X25519"), usize::MAX);
    assert_eq!(crossed.negotiated.unused_shares, []);
}

#[test]
fn a_resumed_session_has_no_signature() {
    let certified = Certified::p256();
    let context = |version| {
        let mut server = SslContext::builder(SslMethod::tls_server()).unwrap();
        server.set_private_key(&certified.key).unwrap();
        server.set_certificate(&certified.certificate).unwrap();
        server.set_session_id_context(b"tests").unwrap();
        let settings = Settings {
            resumption: Resumption::WithinContext(ResumptionMethod::Any),
            ..certified.settings(TlsLibrary::OpenSsl, version)
        };
        (server.build(), Context::build(&settings).unwrap())
    };
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let (server_context, client_context) = context(version);
        let signatures = [(); 2].map(|()| {
            let mut server = SslStream::new(Ssl::new(&server_context).unwrap(), Wires::default()).unwrap();
            let mut client = client_context.session(None).unwrap();
            while client.handshake().unwrap() == Handshake::NeedInput {
                let flight = std::mem::take(client.outgoing());
                client.feed(&server.answer(&flight));
            }
            // The tickets of TLS 1.3 come after the handshake, and are not counted.
            let before = client.handshake_size();
            let flight = std::mem::take(client.outgoing());
            client.feed(&server.answer(&flight));
            client.decrypt(&mut crate::buffer::Buffer::default()).unwrap();
            assert_eq!(client.handshake_size(), before);
            let negotiated = client.negotiated().unwrap();
            // OpenSSL does not resume a session that ended without it.
            client.close_notify();
            (negotiated.resumed, negotiated.signature.is_some())
        });
        assert_eq!(signatures, [(false, true), (true, false)], "{version:?}");
    }
}

/// Ways in which files of certificates and keys are written. OpenSSL, and so libpq, reads them all.
#[test]
fn client_certificates_are_read_as_openssl_reads_them() {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let certified = Certified::p256();
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = EcKey::generate(&group).unwrap();
    let sec1 = key.private_key_to_pem().unwrap();
    let key = PKey::from_ec_key(key).unwrap();
    let pkcs8 = key.private_key_to_pem_pkcs8().unwrap();
    let crlf = |pem: &[u8]| String::from_utf8(pem.to_vec()).unwrap().replace('\n', "\r\n").into_bytes();
    let with_parameters =
        [b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n", &sec1[..]];
    for version in [1, 3] {
        let certificate = client_certificate(&key, version);
        for (what, certificate, key) in [
            ("as usual", certificate.clone(), pkcs8.clone()),
            ("CRLF", crlf(&certificate), crlf(&pkcs8)),
            ("BOM", [BYTE_ORDER_MARK, &certificate].concat(), [BYTE_ORDER_MARK, &pkcs8].concat()),
            ("text", [b"Bag Attributes\n", &certificate[..]].concat(), with_parameters.concat()),
            ("one file", [&sec1[..], &certificate].concat(), [&sec1[..], &certificate].concat()),
        ] {
            let files = [certificate, key].map(|bytes| {
                let mut file = NamedTempFile::new().unwrap();
                file.write_all(&bytes).unwrap();
                file
            });
            let [certificate_file, key_file] = files.each_ref().map(|file| file.path().to_owned());
            check_file(FilePurpose::Certificate, &certificate_file, &certificate_file).unwrap();
            check_file(FilePurpose::Key, &key_file, &certificate_file).unwrap();
            for library in [TlsLibrary::OpenSsl, TlsLibrary::Rustls] {
                let identity =
                    Identity { certificate_file: certificate_file.clone(), key_file: key_file.clone() };
                let settings =
                    Settings { identity: Some(identity), ..certified.settings(library, TlsVersion::Tls13) };
                let name = name_at_server(&certified, &settings);
                assert_eq!(name.as_deref(), Some("client"), "{library}, version {version}, {what}");
            }
        }
    }
}

/// Self-signed, in PEM.
fn client_certificate(key: &PKey<Private>, version: i32) -> Vec<u8> {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_nid(Nid::COMMONNAME, "client").unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(version - 1).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.sign(key, MessageDigest::sha256()).unwrap();
    builder.build().to_pem().unwrap()
}

/// The name in the client's certificate, after a handshake.
fn name_at_server(certified: &Certified, settings: &Settings) -> Option<String> {
    let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
    context.set_private_key(&certified.key).unwrap();
    context.set_certificate(&certified.certificate).unwrap();
    context.set_verify_callback(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT, |_, _| true);
    let mut server = SslStream::new(Ssl::new(&context.build()).unwrap(), Wires::default()).unwrap();
    let mut client = Context::build(settings).unwrap().session(None).unwrap();
    while client.handshake().unwrap() == Handshake::NeedInput {
        let flight = std::mem::take(client.outgoing());
        client.feed(&server.answer(&flight));
    }
    server.answer(&std::mem::take(client.outgoing()));
    let certificate = server.ssl().peer_certificate()?;
    let name = certificate.subject_name().entries_by_nid(Nid::COMMONNAME).next()?;
    Some(name.data().to_string().unwrap())
}

/// `openssl s_client`'s count of the same handshake. RSA signatures have one length.
#[test]
fn sizes_are_those_of_s_client() {
    let certified = Certified::rsa();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = certified.acceptor("P-256");
    let server = thread::spawn(move || {
        for socket in listener.incoming().take(4) {
            let mut stream = SslStream::new(Ssl::new(&acceptor).unwrap(), socket.unwrap()).unwrap();
            // Clients end with and without a close_notify.
            let _ = stream.accept().and_then(|()| stream.ssl_read(&mut [0; 1]).map(drop));
        }
    });
    for (version, option) in [(TlsVersion::Tls12, "-tls1_2"), (TlsVersion::Tls13, "-tls1_3")] {
        let Some(expected) = s_client(&address, option, certified.file.path()) else {
            // No other client connects, so the server's thread ends with the test's process.
            return ciphertoll_testing::missing("no program openssl found");
        };
        let settings = certified.settings(TlsLibrary::OpenSsl, version);
        let mut client = Context::build(&settings).unwrap().session(None).unwrap();
        let mut socket = TcpStream::connect(&address).unwrap();
        while client.handshake().unwrap() == Handshake::NeedInput {
            socket.write_all(&std::mem::take(client.outgoing())).unwrap();
            let mut bytes = [0; 4096];
            let count = socket.read(&mut bytes).unwrap();
            client.feed(&bytes[..count]);
        }
        let size = client.handshake_size().unwrap();
        let found = format!("read {} bytes and written {} bytes", size.read_bytes, size.written_bytes);
        assert_eq!(found, expected, "{version:?}");
    }
    server.join().unwrap();
}

/// `read 1183 bytes and written 323 bytes`; `None` if the program is not installed.
fn s_client(address: &str, version: &str, authority: &Path) -> Option<String> {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, version, "-servername", "localhost", "-CAfile"])
        .arg(authority)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("SSL handshake has "));
    Some(line.unwrap_or_else(|| panic!("{said}")).to_owned())
}
