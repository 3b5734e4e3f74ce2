//! MongoDB, where TLS is first, the client speaks first within it, and nobody says goodbye.

use std::sync::Arc;

use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{Context, Settings};
use ciphertoll_net::{Address, ContextSource, Dialer, Error, Phase, Transport};
use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::bson::{RawDocumentBuf, rawdoc};
use ciphertoll_wire::mongodb::message::{MAX_LOGIN_MESSAGE_BYTES, take};
use ciphertoll_wire::mongodb::{self, Mechanism, MongoDbTlsMode};
use ciphertoll_wire::session::{self, Login};
use openssl::ssl::{SslAcceptor, SslVerifyMode};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::{DATABASE, LoopClient, PASSWORD, USER};
use crate::server::{Goodbye, Peer, Server};

/// Finds 7 in two batches.
const FIND: &str = r#"{"find": "numbers"}"#;

fn login(tls: MongoDbTlsMode, mechanism: Mechanism) -> Login {
    Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
        tls,
        mechanism,
        database: DATABASE.to_owned(),
        ..mongodb::MongoDbLogin::new(USER, Secret::new(PASSWORD.to_vec()))
    }))
}

fn dialer(address: &Address, login: Login, settings: Option<&Settings>) -> Dialer {
    let tls = settings.map(|settings| ContextSource::per_connect(settings.clone()));
    Dialer { address: address.clone(), login, tls, transport: Transport::NonBlocking }
}

/// The server's side of one connection: answers commands by their names until the client leaves.
fn serve(mut peer: Peer, acceptor: Option<&SslAcceptor>) -> Goodbye {
    if let Some(acceptor) = acceptor {
        peer.start_tls(acceptor).unwrap();
    }
    let (mut input, mut last) = (Vec::new(), String::new());
    while last != "getMore" {
        if peer.read_more(&mut input).unwrap() == 0 {
            return Goodbye::Abrupt;
        }
        let mut rest = input.as_slice();
        while let Some(message) = take(&mut rest, MAX_LOGIN_MESSAGE_BYTES).unwrap() {
            message.body.iter().next().unwrap().unwrap().0.as_str().clone_into(&mut last);
            let answer = answer(&last);
            let length = 21 + i32::try_from(answer.as_bytes().len()).unwrap();
            let header = [length, 0, message.request_id, 2013, 0].map(i32::to_le_bytes).concat();
            peer.send(&[&header[..], &[0], answer.as_bytes()].concat());
        }
        input = rest.to_vec();
    }
    peer.end()
}

fn answer(name: &str) -> RawDocumentBuf {
    let ns = "bench.numbers";
    match name {
        "hello" => rawdoc! { "maxWireVersion": 21, "ok": 1.0 },
        "authenticate" => rawdoc! { "ok": 1.0 },
        "find" => rawdoc! { "cursor": { "firstBatch": [{ "x": 7 }], "id": 5, "ns": ns }, "ok": 1.0 },
        "getMore" => rawdoc! { "cursor": { "nextBatch": [{ "x": 7 }], "id": 0, "ns": ns }, "ok": 1.0 },
        other => panic!("{other:?}"),
    }
}

/// Both drivers log in and query; the phases that took time on the loop.
#[track_caller]
fn works(
    acceptor: Option<SslAcceptor>,
    login: &Login,
    settings: Option<&Settings>,
    label: &str,
) -> Vec<Phase> {
    let server = Server::tcp(move |listener| [(); 2].map(|()| serve(listener.accept(), acceptor.as_ref())));
    let context = settings.map(|settings| Context::build(settings).unwrap());
    let mut client = Client::connect(&server.address, login.clone(), context.as_ref()).unwrap();
    let row = vec![Some(br#"{"x":7}"#.to_vec())];
    assert_eq!(client.query(FIND).unwrap(), [row.clone(), row]);
    assert_eq!((client.server().version(), client.server().auth_label().as_str()), ("wire-21", label));
    client.close().unwrap();

    let mut client = LoopClient::connect(&dialer(&server.address, login.clone(), settings), None).unwrap();
    client.send_query(FIND).unwrap();
    let continues = client.read_rows().unwrap_err();
    assert!(
        matches!(&continues, Error::Protocol(session::Error::MongoDb(mongodb::Error::ResultContinues))),
        "{continues}"
    );
    client.send_query(r#"{"getMore": {"$numberLong": "5"}, "collection": "numbers"}"#).unwrap();
    assert_eq!(client.read_rows().unwrap(), [[Some(br#"{"x":7}"#.to_vec())]]);
    client.server.encode_goodbye(client.channel.output());
    client.channel.close().unwrap();
    assert_eq!(server.join(), [Goodbye::Orderly; 2]);
    Phase::ALL.into_iter().filter(|phase| !client.phases.of(*phase).is_zero()).collect()
}

#[test]
fn plain() {
    let phases = works(None, &login(MongoDbTlsMode::Plain, Mechanism::None), None, "trust");
    assert_eq!(phases, [Phase::TcpConnect, Phase::ServerGreeting, Phase::Auth]);
}

#[test]
fn tls_is_first_and_its_context_is_built_once() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let acceptor = authority.acceptor(ServerTls::default());
        let login = login(MongoDbTlsMode::Tls, Mechanism::None);
        let phases = works(Some(acceptor), &login, Some(&authority.settings(offer)), "trust");
        let expected =
            [Phase::TcpConnect, Phase::ServerGreeting, Phase::TlsContext, Phase::TlsHandshake, Phase::Auth];
        assert_eq!(phases, expected);
    }
}

#[test]
fn a_certificate_is_the_login() {
    let authority = Authority::new();
    for offer in Offer::ONE_EACH {
        let mut builder = authority.acceptor_builder(ServerTls::default());
        builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        builder.set_ca_file(authority.file()).unwrap();
        let settings = Settings { identity: Some(authority.identity()), ..authority.settings(offer) };
        let login = login(MongoDbTlsMode::Tls, Mechanism::X509);
        works(Some(builder.build()), &login, Some(&settings), "cert");
    }
}

#[test]
fn a_server_that_hangs_up_is_noticed() {
    let server = Server::tcp(|listener| drop(listener.accept()));
    let login = login(MongoDbTlsMode::Plain, Mechanism::Negotiated);
    let error = LoopClient::connect(&dialer(&server.address, login, None), None).err().unwrap();
    assert!(matches!(error, Error::Closed | Error::Socket { .. }), "{error}");
    assert!(!error.is_too_many_connections());
    server.join();
}
