//! What was agreed on is what is reported, connection by connection.

use ciphertoll_net::ContextSource;
use ciphertoll_net::tls::{
    Context, Group, KeyShare, Negotiated, PeerName, SecurityLevel, Settings, Suite, TlsLibrary, TlsVersion,
    TrustAnchors, openssl_has_post_quantum,
};
use openssl::ssl::{NameType, SslVersion};

use crate::certificates::{Authority, Key, Offer, ServerTls};
use crate::drivers::{Driver, LoopClient, dialer};
use crate::server::{Goodbye, Server};

/// Those that every process has.
const LIBRARIES: [TlsLibrary; 2] = [TlsLibrary::OpenSsl, TlsLibrary::Rustls];

fn negotiate(driver: Driver, authority: &Authority, tls: ServerTls, offer: Offer) -> Negotiated {
    let acceptor = authority.acceptor(tls);
    let server = Server::tcp(move |listener| listener.accept().log_in(Some(&acceptor)).goodbye());
    let connection = driver.connect_tls(&server.address, &authority.settings(offer)).unwrap();
    let negotiated = connection.negotiated().unwrap();
    connection.close().unwrap();
    server.join();
    negotiated
}

fn drivers_and_libraries() -> impl Iterator<Item = (Driver, TlsLibrary)> {
    Driver::ALL.into_iter().flat_map(|driver| LIBRARIES.map(|library| (driver, library)))
}

#[test]
fn version_suite_group_and_key() {
    let authority = Authority::new();
    let suites = [
        (TlsVersion::Tls13, Key::P256, "tls1.3", "TLS_AES_256_GCM_SHA384", "p256"),
        (TlsVersion::Tls13, Key::Rsa2048, "tls1.3", "TLS_AES_256_GCM_SHA384", "rsa2048"),
        (TlsVersion::Tls12, Key::P256, "tls1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "p256"),
        (TlsVersion::Tls12, Key::Rsa2048, "tls1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "rsa2048"),
        (TlsVersion::Tls13, Key::P384, "tls1.3", "TLS_AES_256_GCM_SHA384", "p384"),
        (TlsVersion::Tls13, Key::Ed25519, "tls1.3", "TLS_AES_256_GCM_SHA384", "ed25519"),
    ];
    for (offered, key, version, suite, key_label) in suites {
        let signature = |library| match (offered, key) {
            // In TLS 1.2 the names say only the hash: the client's favourite.
            (TlsVersion::Tls12, Key::P256) if library == TlsLibrary::Rustls => Some("ecdsa_secp384r1_sha384"),
            (TlsVersion::Tls12, Key::Rsa2048) if library == TlsLibrary::Rustls => Some("rsa_pss_rsae_sha512"),
            (_, Key::P256) => Some("ecdsa_secp256r1_sha256"),
            (_, Key::P384) => Some("ecdsa_secp384r1_sha384"),
            (_, Key::Ed25519) => Some("ed25519"),
            (TlsVersion::Tls12, Key::Rsa2048) => Some("rsa_pss_rsae_sha256"),
            // TLS 1.3 encrypts which hash it is.
            (_, Key::Rsa2048) => None,
        };
        for (driver, library) in drivers_and_libraries() {
            // rustls prefers it; this server does not have it.
            let hybrid = (library, offered) == (TlsLibrary::Rustls, TlsVersion::Tls13);
            let unused = KeyShare { group: Group::X25519MlKem768.into(), bytes: 1216 };
            let tls = ServerTls { key, groups: "X25519", ..ServerTls::default() };
            let expected = Negotiated {
                library,
                version,
                suite,
                group: Some("x25519".into()),
                key: key_label.into(),
                resumed: false,
                chain: Some(1),
                hello_retry: false,
                signature: signature(library).map(Into::into),
                unused_shares: if hybrid { vec![unused] } else { Vec::new() },
            };
            let offer = Offer { library, version: offered };
            assert_eq!(negotiate(driver, &authority, tls, offer), expected, "{driver:?}");
        }
    }
}

#[test]
fn only_what_is_named_is_offered() {
    let authority = Authority::new();
    let tls = ServerTls { key: Key::Rsa2048, groups: "X25519:P-384", ..ServerTls::default() };
    let modern = Suite::from_label("TLS_CHACHA20_POLY1305_SHA256").unwrap();
    let older = Suite::from_label("ECDHE-RSA-AES128-GCM-SHA256").unwrap();
    for (version, suite) in [(TlsVersion::Tls13, modern), (TlsVersion::Tls12, older)] {
        for (driver, library) in drivers_and_libraries() {
            let acceptor = authority.acceptor(tls);
            let server = Server::tcp(move |listener| listener.accept().log_in(Some(&acceptor)).goodbye());
            let mut settings = authority.settings(Offer { library, version });
            settings.parameters.suite = Some(suite);
            settings.parameters.group = Some(Group::P384);
            let connection = driver.connect_tls(&server.address, &settings).unwrap();
            let negotiated = connection.negotiated().unwrap();
            assert_eq!(
                (negotiated.suite, negotiated.group.as_deref()),
                (suite.iana(), Some("p384")),
                "{library:?}"
            );
            connection.close().unwrap();
            server.join();
        }
    }
}

#[test]
fn what_a_library_lacks_it_says_beforehand() {
    let authority = Authority::new();
    let lacks = |library, change: fn(&mut Settings)| {
        let mut settings = authority.settings(Offer { library, version: TlsVersion::Tls12 });
        change(&mut settings);
        Context::lacks(&settings).map(|error| error.to_string())
    };
    let cbc: fn(&mut Settings) = |settings| settings.parameters.suite = Suite::from_label("AES256-SHA");
    assert_eq!(lacks(TlsLibrary::OpenSsl, cbc), None);
    assert!(lacks(TlsLibrary::Rustls, cbc).unwrap().contains("TLS_RSA_WITH_AES_256_CBC_SHA"));
    let hybrid: fn(&mut Settings) = |settings| settings.parameters.group = Some(Group::X25519MlKem768);
    assert_eq!(lacks(TlsLibrary::OpenSsl, hybrid).is_some(), !openssl_has_post_quantum());
    assert_eq!(lacks(TlsLibrary::Rustls, hybrid), None);
    let p521: fn(&mut Settings) = |settings| settings.parameters.group = Some(Group::P521);
    assert!(lacks(TlsLibrary::Rustls, p521).unwrap().ends_with("rustls with aws-lc-rs has no group p521"));
    let as_it_is: fn(&mut Settings) = |_| {};
    match lacks(TlsLibrary::OpenSsl35, as_it_is) {
        None => assert!(openssl_has_post_quantum()),
        Some(reason) => {
            assert!(!openssl_has_post_quantum());
            assert!(
                reason.contains(openssl::version::version()) && reason.contains("openssl-3.5"),
                "{reason}"
            );
        }
    }
    let weak: fn(&mut Settings) = |settings| settings.security_level = SecurityLevel::Weak;
    assert_eq!(lacks(TlsLibrary::OpenSsl, weak), None);
    assert!(lacks(TlsLibrary::Rustls, weak).unwrap().contains("2048"));
}

#[test]
fn a_server_with_p256_only_costs_tls_1_3_a_retry() {
    let authority = Authority::new();
    let tls = ServerTls { groups: "P-256", ..ServerTls::default() };
    for (driver, library) in drivers_and_libraries() {
        for (version, hello_retry) in [(TlsVersion::Tls13, true), (TlsVersion::Tls12, false)] {
            let negotiated = negotiate(driver, &authority, tls, Offer { library, version });
            assert_eq!(negotiated.group.as_deref(), Some("p256"), "{library:?} {version:?}");
            assert_eq!(negotiated.hello_retry, hello_retry, "{library:?} {version:?}");
        }
    }
}

#[test]
fn a_server_with_one_version_is_taken_where_it_is_the_one_offered() {
    let authority = Authority::new();
    for (driver, library) in drivers_and_libraries() {
        for (version, only) in
            [(TlsVersion::Tls12, SslVersion::TLS1_2), (TlsVersion::Tls13, SslVersion::TLS1_3)]
        {
            let tls = ServerTls { only: Some(only), ..ServerTls::default() };
            let negotiated = negotiate(driver, &authority, tls, Offer { library, version });
            assert_eq!(negotiated.version, version.label());
        }
    }
}

#[test]
fn a_shared_context_does_not_resume_unasked() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let acceptor = authority.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| {
            [(); 3].map(|()| {
                let peer = listener.accept().log_in(Some(&acceptor));
                let reused = peer.tls().session_reused();
                peer.goodbye();
                reused
            })
        });
        let context = Context::build(&authority.settings(offer)).unwrap();
        let dialer = dialer(&server.address, Some(ContextSource::Shared(context)));
        for _ in 0..3 {
            let mut client = LoopClient::connect(&dialer, None).unwrap();
            assert!(!client.channel.negotiated().unwrap().resumed);
            client.server.encode_goodbye(client.channel.output());
            client.channel.close().unwrap();
        }
        assert_eq!(server.join(), [false; 3], "{offer:?}");
    }
}

/// The name that the server is asked for: none where it is known by its address.
#[test]
fn a_host_name_is_sent_and_an_address_is_not() {
    let authority = Authority::new();
    for (peer, expected) in [("localhost", Some("localhost")), ("127.0.0.1", None)] {
        for (driver, library) in drivers_and_libraries() {
            let acceptor = authority.acceptor(ServerTls::default());
            let server = Server::tcp(move |listener| {
                let peer = listener.accept().log_in(Some(&acceptor));
                let name = peer.tls().servername(NameType::HOST_NAME).map(ToOwned::to_owned);
                peer.goodbye();
                name
            });
            let offer = Offer { library, version: TlsVersion::Tls13 };
            let settings = Settings { peer: PeerName::from(peer), ..authority.settings(offer) };
            driver.connect_tls(&server.address, &settings).unwrap().close().unwrap();
            assert_eq!(server.join().as_deref(), expected);
        }
    }
}

#[test]
fn the_systems_authorities_come_on_top() {
    let authority = Authority::new();
    for offer in Offer::ONE_EACH {
        let acceptor = authority.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| listener.accept().log_in(Some(&acceptor)).goodbye());
        let anchors = TrustAnchors::FileAndSystem(authority.file());
        let settings = Settings { anchors, ..authority.settings(offer) };
        Driver::Loop.connect_tls(&server.address, &settings).unwrap().close().unwrap();
        assert_eq!(server.join(), Goodbye::Orderly, "{offer:?}");
    }
}
