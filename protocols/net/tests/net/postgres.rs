//! PostgreSQL, where the client speaks first, on both drivers.

use std::sync::Arc;

use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{Context, Settings};
use ciphertoll_net::{Address, ContextSource, Dialer, Error, Phase, Transport};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::server::TlsAnswer;
use ciphertoll_wire::postgres::{self, ChannelBinding, PostgresTlsMode};
use ciphertoll_wire::scram::Mechanism;
use ciphertoll_wire::session::{self, Login, ServerInfo};
use openssl::ssl::{AlpnError, SslVerifyMode, select_next_proto};

use crate::certificates::{Authority, Key, Offer, ServerTls};
use crate::drivers::{DATABASE, LoopClient, PASSWORD, USER};
use crate::postgres_server::{PostgresPeer, Proof, REFUSED_ROW, Tls};
use crate::server::Server;

const ALPN_LIST: &[u8] = b"\x0apostgresql";

fn login(encryption: PostgresTlsMode, channel_binding: ChannelBinding) -> Login {
    Login::Postgres(Arc::new(postgres::PostgresLogin {
        startup: Vec::new(),
        user: USER.to_owned(),
        password: Secret::new(PASSWORD.to_vec()),
        database: Some(DATABASE.to_owned()),
        encryption,
        channel_binding,
    }))
}

fn dialer(address: &Address, login: Login, settings: Option<&Settings>) -> Dialer {
    let tls = settings.map(|settings| ContextSource::per_connect(settings.clone()));
    Dialer { address: address.clone(), login, tls, transport: Transport::NonBlocking }
}

fn alpn_server(authority: &Authority) -> Tls {
    let mut builder = authority.acceptor_builder(ServerTls::default());
    builder.set_alpn_select_callback(|_, offered| {
        select_next_proto(ALPN_LIST, offered).ok_or(AlpnError::ALERT_FATAL)
    });
    Tls::AtOnce(builder.build())
}

/// Both drivers log in and query, the server being this one; the phases that took time on the loop.
#[track_caller]
fn works(tls: Tls, proof: Proof, login: &Login, settings: Option<&Settings>, label: &str) -> Vec<Phase> {
    let server = Server::tcp(move |listener| {
        for _ in 0..2 {
            PostgresPeer::new(listener.accept()).log_in(&tls, proof).serve();
        }
    });
    let context = settings.map(|settings| Context::build(settings).unwrap());
    let mut client = Client::connect(&server.address, login.clone(), context.as_ref()).unwrap();
    assert_eq!(client.query("SELECT 7").unwrap(), [[Some(b"7".to_vec())]]);
    assert_eq!(client.server().version(), "17.5");
    assert_eq!(client.server().auth_label(), label);
    client.close().unwrap();

    let mut client = LoopClient::connect(&dialer(&server.address, login.clone(), settings), None).unwrap();
    client.send_query("SELECT 7").unwrap();
    assert_eq!(client.read_rows().unwrap(), [[Some(b"7".to_vec())]]);
    client.server.encode_goodbye(client.channel.output());
    client.channel.close().unwrap();
    server.join();
    let phases = Phase::ALL.into_iter().filter(|phase| !client.phases.of(*phase).is_zero());
    phases.collect()
}

#[test]
fn plain() {
    let login = login(PostgresTlsMode::Plain, ChannelBinding::Disabled);
    let phases = [Phase::TcpConnect, Phase::Auth, Phase::Ready];
    assert_eq!(works(Tls::Never, Proof::Trust, &login, None, "trust"), phases);
    let scram = Proof::Scram(Mechanism::Sha256);
    assert_eq!(works(Tls::Never, scram, &login, None, "scram-4096"), phases);
}

/// A unix connect has ended at once: nothing but the first edge makes the client speak.
#[test]
fn over_a_unix_socket() {
    let server = Server::unix(|listener| {
        PostgresPeer::new(listener.accept()).log_in(&Tls::Never, Proof::Trust).serve();
    });
    let login = login(PostgresTlsMode::Plain, ChannelBinding::Disabled);
    let mut client = LoopClient::connect(&dialer(&server.address, login, None), None).unwrap();
    assert!(matches!(client.server, ServerInfo::Postgres(_)));
    client.server.encode_goodbye(client.channel.output());
    client.channel.close().unwrap();
    server.join();
}

#[test]
fn tls_on_request() {
    let authority = Authority::new();
    let login = login(PostgresTlsMode::Tls, ChannelBinding::Disabled);
    for offer in Offer::ALL {
        let tls = Tls::Requested(authority.acceptor(ServerTls::default()));
        let settings = authority.settings(offer);
        let phases = works(tls, Proof::Scram(Mechanism::Sha256), &login, Some(&settings), "scram-4096");
        let expected = [
            Phase::TcpConnect,
            Phase::TlsContext,
            Phase::TlsRequest,
            Phase::TlsHandshake,
            Phase::Auth,
            Phase::Ready,
        ];
        assert_eq!(phases, expected);
    }
}

#[test]
fn logins_bound_to_the_servers_certificate() {
    let authority = Authority::new();
    let login = login(PostgresTlsMode::Tls, ChannelBinding::Required);
    for offer in Offer::ALL {
        let tls = Tls::Requested(authority.acceptor(ServerTls::default()));
        let settings = authority.settings(offer);
        works(tls, Proof::Scram(Mechanism::Sha256Plus), &login, Some(&settings), "scram-4096+plus");
    }
}

#[test]
fn logins_are_bound_where_both_can() {
    let authority = Authority::new();
    let login = login(PostgresTlsMode::Tls, ChannelBinding::Preferred);
    for offer in Offer::ALL {
        for (mechanism, label) in
            [(Mechanism::Sha256Plus, "scram-4096+plus"), (Mechanism::Sha256, "scram-4096")]
        {
            let tls = Tls::Requested(authority.acceptor(ServerTls::default()));
            works(tls, Proof::Scram(mechanism), &login, Some(&authority.settings(offer)), label);
        }
    }
}

/// As of Ed25519, whose signature has no digest: no reason to fail where a binding is not required.
#[test]
fn a_certificate_without_a_hash_to_bind_to() {
    let tls = ServerTls { key: Key::Ed25519, ..ServerTls::default() };
    let authority = Authority::with_key(Key::Ed25519);
    let preferred = login(PostgresTlsMode::Tls, ChannelBinding::Preferred);
    let settings = authority.settings(Offer::OPENSSL_1_3);
    let requested = Tls::Requested(authority.acceptor(tls));
    works(requested, Proof::Scram(Mechanism::Sha256), &preferred, Some(&settings), "scram-4096");
}

#[test]
fn direct_tls_names_the_protocol() {
    let authority = Authority::new();
    let login = login(PostgresTlsMode::DirectTls, ChannelBinding::Disabled);
    let expected = [Phase::TcpConnect, Phase::TlsContext, Phase::TlsHandshake, Phase::Auth, Phase::Ready];
    for offer in Offer::ALL {
        let settings = authority.settings(offer);
        let phases = works(alpn_server(&authority), Proof::Trust, &login, Some(&settings), "trust");
        assert_eq!(phases, expected);
    }
}

/// What answers without ALPN may not be PostgreSQL at all.
#[test]
fn direct_tls_without_alpn_is_refused() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let acceptor = authority.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept();
            peer.start_tls(&acceptor).unwrap();
            let mut plaintext = Vec::new();
            // The client leaves without an alert, which is an error to OpenSSL.
            while peer.read_more(&mut plaintext).is_ok_and(|bytes| bytes > 0) {}
            plaintext
        });
        let login = login(PostgresTlsMode::DirectTls, ChannelBinding::Disabled);
        let settings = authority.settings(offer);
        let outcome = LoopClient::connect(&dialer(&server.address, login, Some(&settings)), None);
        assert!(matches!(outcome, Err(Error::Tls(reason)) if reason.contains("ALPN")), "{offer:?}");
        assert_eq!(server.join(), b"", "the login was sent");
    }
}

#[test]
fn tls_refused_is_an_error() {
    let server = Server::tcp(|listener| {
        let mut peer = PostgresPeer::new(listener.accept());
        peer.answer_tls_request(TlsAnswer::No);
        peer.peer.read_to_end()
    });
    let authority = Authority::new();
    let login = login(PostgresTlsMode::Tls, ChannelBinding::Disabled);
    let settings = authority.settings(Offer::OPENSSL_1_3);
    let outcome = LoopClient::connect(&dialer(&server.address, login, Some(&settings)), None);
    let Err(Error::Protocol(error)) = outcome else { panic!("goes on without TLS") };
    assert_eq!(error, session::Error::Postgres(postgres::Error::TlsNotOffered));
    assert_eq!(server.join(), b"", "the login was sent");
}

#[test]
fn a_client_shows_its_certificate() {
    let authority = Authority::new();
    let login = login(PostgresTlsMode::Tls, ChannelBinding::Disabled);
    for offer in Offer::ALL {
        let mut builder = authority.acceptor_builder(ServerTls::default());
        builder.set_ca_file(authority.file()).unwrap();
        builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        let settings = Settings { identity: Some(authority.identity()), ..authority.settings(offer) };
        works(Tls::Requested(builder.build()), Proof::Trust, &login, Some(&settings), "trust");
    }
}

#[test]
fn a_copy_and_what_follows_it() {
    let server = Server::tcp(|listener| {
        PostgresPeer::new(listener.accept()).log_in(&Tls::Never, Proof::Trust).serve();
    });
    let login = login(PostgresTlsMode::Plain, ChannelBinding::Disabled);
    let mut client = Client::connect(&server.address, login, None).unwrap();
    let data = ["1\n2", "\n", "3\n"].map(|piece| piece.as_bytes().to_vec());
    assert_eq!(client.copy_in("COPY t FROM STDIN", data).unwrap(), 3);

    let refused = client.copy_in("COPY t FROM STDIN", [REFUSED_ROW.to_vec()]).unwrap_err();
    let Error::Protocol(session::Error::Postgres(postgres::Error::Server { sqlstate, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(sqlstate, "22P02");
    let refused = client.copy_in("SELECT 7", []).unwrap_err();
    assert!(matches!(refused, Error::Protocol(session::Error::Postgres(postgres::Error::NotACopy))));
    assert_eq!(client.query("SELECT 7").unwrap(), [[Some(b"7".to_vec())]]);
    client.close().unwrap();
    server.join();
}
