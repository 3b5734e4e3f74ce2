//! Sessions are taken up again where that was asked for, and every connection tells.

use ciphertoll_net::tls::{
    Context, Resumption, ResumptionMethod, SecurityLevel, Sessions, Settings, TlsLibrary, TlsVersion,
};
use ciphertoll_net::{Address, ContextSource};
use openssl::ssl::{SslAcceptor, SslOptions, SslSessionCacheMode, SslVersion};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::{LoopClient, dialer};
use crate::server::{Goodbye, Server};

const CONNECTS: usize = 4;

/// A server that lets clients in one after another, and whether each came with an earlier session.
fn server(acceptor: SslAcceptor) -> Server<[bool; CONNECTS]> {
    Server::tcp(move |listener| {
        [(); CONNECTS].map(|()| {
            let peer = listener.accept().log_in(Some(&acceptor));
            let reused = peer.tls().session_reused();
            assert_eq!(peer.goodbye(), Goodbye::Orderly);
            reused
        })
    })
}

/// What each client saw: whether it resumed, and how many certificates it was sent.
fn connects(address: &Address, source: &ContextSource) -> [(bool, Option<u8>); CONNECTS] {
    [(); CONNECTS].map(|()| {
        let mut client = LoopClient::connect(&dialer(address, Some(source.clone())), None).unwrap();
        let negotiated = client.channel.negotiated().unwrap();
        client.server.encode_goodbye(client.channel.output());
        client.channel.close().unwrap();
        (negotiated.resumed, negotiated.chain)
    })
}

const FIRST_IS_FULL: [bool; CONNECTS] = [false, true, true, true];

fn expect_resumed(address: &Address, source: &ContextSource, server: Server<[bool; CONNECTS]>, what: &str) {
    let seen = connects(address, source);
    assert_eq!(seen, FIRST_IS_FULL.map(|resumed| (resumed, (!resumed).then_some(1))), "{what}");
    assert_eq!(server.join(), FIRST_IS_FULL, "{what}");
}

#[test]
fn within_one_context() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        for way in [ResumptionMethod::Any, ResumptionMethod::SessionId] {
            if way == ResumptionMethod::SessionId && offer.version == TlsVersion::Tls13 {
                continue;
            }
            let mut acceptor = authority.acceptor_builder(ServerTls::default());
            acceptor.set_session_cache_mode(SslSessionCacheMode::SERVER);
            let server = server(acceptor.build());
            let settings =
                Settings { resumption: Resumption::WithinContext(way), ..authority.settings(offer) };
            let source = ContextSource::Shared(Context::build(&settings).unwrap());
            expect_resumed(&server.address.clone(), &source, server, &format!("{offer:?} {way:?}"));
        }
    }
}

#[test]
fn across_contexts() {
    let authority = Authority::new();
    for offer in [Offer::OPENSSL_1_2, Offer::OPENSSL_1_3] {
        let server = server(authority.acceptor(ServerTls::default()));
        let resumption = Resumption::AcrossContexts(ResumptionMethod::Any, Sessions::new());
        let settings = Settings { resumption, ..authority.settings(offer) };
        let source = ContextSource::per_connect(settings);
        expect_resumed(&server.address.clone(), &source, server, &format!("{offer:?}"));
    }
    let resumption = Resumption::AcrossContexts(ResumptionMethod::Any, Sessions::new());
    let settings = Settings { resumption, ..authority.settings(Offer::RUSTLS_1_3) };
    let error = Context::build(&settings).err().unwrap().to_string();
    assert!(error.contains("within one context only"), "{error}");
}

/// As `PostgreSQL` does it: no tickets, no session ids.
#[test]
fn a_server_that_gives_no_sessions_is_seen_to_give_none() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let mut acceptor = authority.acceptor_builder(ServerTls::default());
        acceptor.set_session_cache_mode(SslSessionCacheMode::OFF);
        acceptor.set_options(SslOptions::NO_TICKET);
        acceptor.set_num_tickets(0).unwrap();
        let server = server(acceptor.build());
        let resumption = Resumption::WithinContext(ResumptionMethod::Any);
        let settings = Settings { resumption, ..authority.settings(offer) };
        let source = ContextSource::Shared(Context::build(&settings).unwrap());
        assert_eq!(connects(&server.address, &source), [(false, Some(1)); CONNECTS], "{offer:?}");
        assert_eq!(server.join(), [false; CONNECTS], "{offer:?}");
    }
}

/// Versions that OpenSSL has for old times' sake, and rustls has not.
#[test]
fn forbidden_versions_need_the_lowest_strength() {
    let authority = Authority::new();
    for (version, only) in [(TlsVersion::Tls10, SslVersion::TLS1), (TlsVersion::Tls11, SslVersion::TLS1_1)] {
        let mut acceptor = authority.acceptor_builder(ServerTls { only: Some(only), ..ServerTls::default() });
        acceptor.clear_options(SslOptions::NO_TLSV1 | SslOptions::NO_TLSV1_1);
        acceptor.set_security_level(0);
        acceptor.set_cipher_list("ALL").unwrap();
        let server = server(acceptor.build());
        let mut settings = Settings {
            security_level: SecurityLevel::Obsolete,
            resumption: Resumption::WithinContext(ResumptionMethod::Any),
            ..authority.settings(Offer { version, ..Offer::OPENSSL_1_2 })
        };
        let source = ContextSource::Shared(Context::build(&settings).unwrap());
        expect_resumed(&server.address.clone(), &source, server, version.label());
        settings.parameters.library = TlsLibrary::Rustls;
        assert!(Context::build(&settings).is_err());
    }
}
