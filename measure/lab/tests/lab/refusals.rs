//! Clients refuse the wrong server, with both TLS libraries and on every path, unless verification is off.

use std::fs;
use std::path::PathBuf;

use ciphertoll_lab::{Authority, Server, ServerStart, Tables};
use ciphertoll_model::{Auth, SecurityLevel, ServerKey, ServerLevel};
use ciphertoll_net::tls::{PeerName, Settings, TrustAnchors};

use crate::fixture::Fixture;
use crate::test_client::TestClient;

/// Paths with all starts of TLS, with resumption, and with certificate chains.
const PATHS: [&str; 12] = [
    "tls1.0-rsa2048",
    "tls1.1-p256",
    "tls1.2-p256",
    "tls1.2-rsa2048+eager",
    "tls1.3-p256",
    "tls1.3-p256+resume",
    "tls1.3-p256+mtls",
    "tls1.3-p256+eager",
    "tls1.3-p256+direct",
    "tls1.3-rsa2048+chain=3",
    "tls1.3-p256+group=p256",
    "tls1.2-p256+mtls+chain=2",
];

fn test_clients(server: &mut Server) -> Vec<TestClient> {
    let auth = Auth::default_of(server.engine());
    let libraries = ["", "+client=rustls"];
    let paths = PATHS.iter().flat_map(|path| libraries.map(|library| format!("{path}{library}")));
    let test_clients: Vec<TestClient> = paths
        .map(|path| TestClient::new(&path, auth))
        .filter(|test_client| test_client.path.as_tls().is_some_and(|tls| tls.impossible().is_none()))
        .filter(|test_client| test_client.prepare(server).is_ok())
        .collect();
    assert!(test_clients.len() >= 2 * (PATHS.len() - 5), "few paths are left: {}", test_clients.len());
    test_clients
}

/// The reason of the refusal, which must come from verification.
fn refusal(server: &Server, test_client: &TestClient, change: impl FnOnce(&mut Settings)) -> String {
    let error = test_client.connect(server, change).err();
    let error = error.unwrap_or_else(|| panic!("{}: the login succeeded", test_client.path)).to_string();
    assert!(error.contains("does not verify"), "{}: {error}", test_client.path);
    error
}

#[test]
fn wrong_authority_wrong_name_and_expired_certificates_are_refused() {
    for level in ["mariadb", "mysql-8.0", "postgres", "postgres-18", "ferretdb"] {
        let Some(fixture) = Fixture::of(&level.parse::<ServerLevel>().unwrap()) else { continue };
        let mut server = start(&fixture);
        let test_clients = test_clients(&mut server);
        let other = fixture.lab.scratch().path().join("other-ca.pem");
        fs::write(&other, Authority::generate().unwrap().certificate_pem().unwrap()).unwrap();
        for test_client in &test_clients {
            test_client.prepare(&mut server).unwrap();
            test_client
                .connect(&server, |_| ())
                .unwrap_or_else(|error| panic!("{}: {error}", test_client.path));
            let wrong_ca = |settings: &mut Settings| settings.anchors = TrustAnchors::File(other.clone());
            refusal(&server, test_client, wrong_ca);
            let wrong_host = |settings: &mut Settings| settings.peer = PeerName::from("db.example");
            assert!(refusal(&server, test_client, wrong_host).contains("hostname mismatch"));
        }
        let authority = expire(&mut server);
        for test_client in &test_clients {
            // The certificate is expired from here on.
            server.install_certificate(test_client.path.as_tls().unwrap()).unwrap();
            let trusting = |settings: &mut Settings| settings.anchors = TrustAnchors::File(authority.clone());
            assert!(refusal(&server, test_client, trusting).contains("expired"), "{}", test_client.path);
        }
    }
}

fn start(fixture: &Fixture) -> Server {
    let template = fixture.lab.template(&fixture.build, &Tables::default(), &mut |_| {}, &|| false).unwrap();
    let start = ServerStart {
        build: &fixture.build,
        template: &template,
        name: "t1",
        key: ServerKey::P384,
        log: fixture.lab.scratch().path().join("server.log"),
        preferred_port: None,
        processors: None,
        strength: SecurityLevel::Obsolete,
    };
    fixture.lab.start(&start).unwrap()
}

/// Replaces the server's certificates with expired ones; returns their authority.
fn expire(server: &mut Server) -> PathBuf {
    let authority = Authority::generate().unwrap();
    let root = server.ca_file().parent().unwrap().to_owned();
    for entry in fs::read_dir(root.join("tls")).unwrap() {
        let directory = entry.unwrap();
        if !directory.file_type().unwrap().is_dir() {
            continue;
        }
        let name = directory.file_name().into_string().unwrap();
        let key = name.split('-').next().unwrap();
        let key = ServerKey::ALL.into_iter().find(|known| known.label() == key).unwrap();
        let certificate = authority.issue_expired(key).unwrap();
        fs::write(directory.path().join("certificate.pem"), certificate.certificate_pem).unwrap();
        fs::write(directory.path().join("key.pem"), certificate.key_pem).unwrap();
    }
    let file = root.join("expired-ca.pem");
    fs::write(&file, authority.certificate_pem().unwrap()).unwrap();
    // Makes the server reload its certificate.
    server.install_certificate(ServerKey::Rsa3072).unwrap();
    file
}
