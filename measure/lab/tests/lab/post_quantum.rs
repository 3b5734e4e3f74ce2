//! Servers with post-quantum TLS: our clients negotiate what `openssl s_client` negotiates, and count the same bytes.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use ciphertoll_lab::{Error, Server};
use ciphertoll_model::{Auth, Endpoint, Engine, Group, SecurityLevel, ServerLevel};
use ciphertoll_net::tls;
use ciphertoll_testing::{missing, only_in_full};

use crate::fixture::Fixture;
use crate::test_client::TestClient;

/// DER encodings of ECDSA signatures differ by a few bytes.
const ECDSA_BYTES: u64 = 8;

/// What `openssl s_client` reports of a handshake.
#[derive(Debug)]
struct Oracle {
    group: String,
    signature: String,
    read_bytes: u64,
    is_verified: bool,
}

/// Connects with `openssl s_client` 3.5, which offers `group` only and trusts the server's authority only.
fn oracle(server: &Server, group: &str) -> Option<Oracle> {
    let Some(program) = ciphertoll_lab::openssl_with_post_quantum() else {
        missing("OpenSSL 3.5 is not fetched");
        return None;
    };
    let Endpoint::Tcp(address) = server.tls_endpoint() else { panic!("a TCP endpoint") };
    let protocol = if server.engine() == Engine::Postgres { "postgres" } else { "mysql" };
    let mut command = Command::new(program);
    command.args(["s_client", "-tls1_3", "-groups", group, "-starttls", protocol]);
    command.args(["-connect", &address.to_string(), "-verify_ip", "127.0.0.1", "-noservername"]);
    command.arg("-CAfile").arg(server.ca_file()).stdin(Stdio::null());
    let output = command.output().expect("openssl starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |label: &str| {
        let rest = said.split_once(label).map(|(_, rest)| rest)?;
        Some(rest.split([' ', '\n', ',']).next()?.to_owned())
    };
    // Of a curve, the program reports the server's key instead.
    let group = after("Negotiated TLS1.3 group: ").or_else(|| after("Peer Temp Key: "));
    let read_bytes: u64 = after("SSL handshake has read ").expect("a size").parse().expect("a number");
    Some(Oracle {
        group: group.unwrap_or_else(|| panic!("a group: {said}")),
        signature: after("Peer signature type: ").unwrap_or_else(|| panic!("a signature: {said}")),
        read_bytes: read_bytes - plaintext_bytes(server, address),
        is_verified: said.contains("Verify return code: 0 (ok)"),
    })
}

/// What the server sends before TLS, which `s_client` counts: its greeting, or one letter.
fn plaintext_bytes(server: &Server, address: SocketAddr) -> u64 {
    const PACKET_HEADER_BYTES: usize = 4;
    if server.engine() == Engine::Postgres {
        return 1;
    }
    let mut header = [0; PACKET_HEADER_BYTES];
    TcpStream::connect(address).and_then(|mut client| client.read_exact(&mut header)).expect("a greeting");
    u64::from(u32::from_le_bytes([header[0], header[1], header[2], 0])) + PACKET_HEADER_BYTES as u64
}

fn expect(level: &str, kinds: &[(&str, &str)]) {
    let level: ServerLevel = level.parse().expect("a level");
    let fixture = Fixture::of(&level).expect("it was found");
    let mut server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
    for &(path, signature) in kinds {
        let test_client = TestClient::new(&format!("{path}+client=rustls"), Auth::default_of(level.engine));
        test_client.prepare(&mut server).unwrap_or_else(|error| panic!("{path}: {error}"));
        let tls = test_client.path.as_tls().unwrap();
        let mut client =
            test_client.connect(&server, |_| ()).unwrap_or_else(|error| panic!("{path}: {error}"));
        client.query("SELECT 1").expect("an answer");
        let negotiated = client.negotiated().expect("TLS");
        let key = tls.key.unwrap().label();
        let group = tls.parameters.group.unwrap();
        assert_eq!(
            (negotiated.key.as_ref(), negotiated.group.as_deref()),
            (key, Some(group.label())),
            "{path}"
        );
        assert_eq!(negotiated.signature.as_deref(), Some(signature), "{path}");
        assert!(!negotiated.hello_retry, "{path}");
        let offered = if group == Group::P256 { "P-256".to_owned() } else { group.label().to_uppercase() };
        let Some(oracle) = oracle(&server, &offered) else { return };
        assert!(oracle.is_verified, "{path}: {oracle:?}");
        let spoken = if group == Group::P256 { "ecdh" } else { group.label() };
        assert_eq!(oracle.group.to_lowercase(), spoken, "{path}");
        let said = if signature == "mldsa65" { "mldsa65" } else { "ecdsa_secp256r1_sha256" };
        assert_eq!(oracle.signature, said, "{path}");
        let ours = client.handshake_size().expect("TLS").read_bytes;
        assert!(ours.abs_diff(oracle.read_bytes) <= ECDSA_BYTES, "{path}: {ours} and {oracle:?}");
    }
}

const P256: &str = "ecdsa_secp256r1_sha256";
const MARIADB: [(&str, &str); 5] = [
    ("tls1.3-p256+group=x25519", P256),
    ("tls1.3-p256+group=x25519mlkem768", P256),
    ("tls1.3-mldsa65+group=x25519mlkem768", "mldsa65"),
    ("tls1.3-mldsa65+group=x25519mlkem768+chain=2", "mldsa65"),
    ("tls1.3-mldsa65+group=x25519", "mldsa65"),
];
const POSTGRES: [(&str, &str); 3] = [
    ("tls1.3-p256+group=x25519mlkem768", P256),
    ("tls1.3-mldsa65+group=x25519mlkem768+chain=2", "mldsa65"),
    ("tls1.3-p256+group=x25519", P256),
];

/// Whether a server is fetched; reports it otherwise.
fn is_fetched(level: &str, report: fn(&str)) -> bool {
    let is_found = ciphertoll_lab::find(&level.parse::<ServerLevel>().expect("a level")).is_ok();
    if !is_found {
        report(&format!("{level} is not fetched"));
    }
    is_found
}

#[test]
fn of_mariadb_11_8() {
    if is_fetched("mariadb-11.8", missing) {
        expect("mariadb-11.8", &MARIADB);
    }
}

/// It has one group, P-256, and certificates with ML-DSA.
#[test]
fn of_postgres_17() {
    if is_fetched("debian-13:postgres-17", missing) {
        expect(
            "debian-13:postgres-17",
            &[("tls1.3-p256+group=p256", P256), ("tls1.3-mldsa65+group=p256", "mldsa65")],
        );
    }
}

#[test]
fn of_postgres_18() {
    if is_fetched("debian-sid:postgres-18", only_in_full) {
        expect("debian-sid:postgres-18", &POSTGRES);
    }
}

#[test]
fn an_ml_dsa_certificate_of_another_authority_is_refused() {
    if !is_fetched("mariadb-11.8", missing) {
        return;
    }
    let level: ServerLevel = "mariadb-11.8".parse().unwrap();
    let fixture = Fixture::of(&level).unwrap();
    let mut server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
    let of = |path: &str| TestClient::new(path, Auth::Native);
    let classical = of("tls1.3-p256+client=rustls");
    classical.prepare(&mut server).unwrap();
    let other_authority = server.ca_file();
    let ml_dsa = of("tls1.3-mldsa44+client=rustls");
    ml_dsa.prepare(&mut server).unwrap();
    assert!(ml_dsa.connect(&server, |_| ()).is_ok());
    let refused =
        ml_dsa.connect(&server, |settings| settings.anchors = tls::TrustAnchors::File(other_authority));
    let error = refused.err().expect("a refusal").to_string();
    assert!(error.contains("does not verify"), "{error}");
}

#[test]
fn mysql_9_7_has_no_post_quantum_tls() {
    if !is_fetched("mysql-9.7", only_in_full) {
        return;
    }
    let level: ServerLevel = "mysql-9.7".parse().unwrap();
    let fixture = Fixture::of(&level).unwrap();
    let server = fixture.start_with(SecurityLevel::Default, &[]).unwrap();
    for path in ["tls1.3-p256+group=x25519mlkem768+client=rustls", "tls1.3-mldsa65+client=rustls"] {
        let test_client = TestClient::new(path, Auth::CachingSha2);
        let refused = server.prepare_tls(test_client.path.as_tls().unwrap());
        assert!(matches!(refused, Err(Error::TlsUnavailable(_))), "{path}: {refused:?}");
    }
    // The server itself refuses the group, too.
    let hybrid = TestClient::new("tls1.3-p256+group=x25519mlkem768+client=rustls", Auth::CachingSha2);
    assert!(hybrid.connect(&server, |_| ()).is_err());
}
