//! TLS that begins before the server has said anything.

use std::io::Read;

use ciphertoll_net::tls::Context;
use ciphertoll_net::{ContextSource, Dialer, Error};
use ciphertoll_wire::mysql::{Capabilities, MySqlTlsMode};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::{LoopClient, dialer, login};
use crate::server::{Goodbye, OFFERED, Server, Socket};

const TLS_HANDSHAKE: u8 = 22;
/// An `SSLRequest` packet, header and all.
const REQUEST_BYTES: usize = 36;
const RECORD_HEADER_BYTES: usize = 5;

fn eager(server: &Server<impl Send + 'static>, authority: &Authority, offer: Offer) -> Dialer {
    let context = Context::build(&authority.settings(offer)).unwrap();
    let source = Some(ContextSource::Shared(context));
    Dialer { login: login(MySqlTlsMode::EagerTls), ..dialer(&server.address, source) }
}

/// The request and the first message of TLS are there while the server is still silent.
#[test]
fn the_first_message_of_tls_does_not_wait_for_the_greeting() {
    let authority = Authority::new();
    for offer in Offer::ALL {
        let acceptor = authority.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept();
            let mut sent = [0; REQUEST_BYTES + 1];
            let Socket::Tcp(socket) = &peer.wire().socket else { panic!("it is TCP") };
            let bytes = socket.peek(&mut sent).unwrap();
            peer.greet();
            peer.await_tls_request();
            peer.start_tls(&acceptor).unwrap();
            peer.await_login();
            peer.ok();
            (bytes, sent[REQUEST_BYTES], peer.goodbye())
        });
        let mut client = LoopClient::connect(&eager(&server, &authority, offer), None).unwrap();
        assert!(client.channel.negotiated().is_some());
        client.server.encode_goodbye(client.channel.output());
        client.channel.close().unwrap();
        let expected = (REQUEST_BYTES + 1, TLS_HANDSHAKE, Goodbye::Orderly);
        assert_eq!(server.join(), expected, "{offer:?}");
    }
}

/// Greeting and TLS may come in one piece, or a byte at a time.
#[test]
fn what_follows_the_greeting_is_tls() {
    let authority = Authority::new();
    for offer in Offer::ONE_EACH {
        let acceptor = authority.acceptor(ServerTls::default());
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept_dribbling();
            peer.greet();
            peer.await_tls_request();
            peer.start_tls(&acceptor).unwrap();
            peer.await_login();
            peer.ok();
            peer.goodbye()
        });
        let mut client = LoopClient::connect(&eager(&server, &authority, offer), None).unwrap();
        client.server.encode_goodbye(client.channel.output());
        client.channel.close().unwrap();
        assert_eq!(server.join(), Goodbye::Orderly, "{offer:?}");
    }
}

#[test]
fn plaintext_behind_the_greeting_is_no_tls() {
    let authority = Authority::new();
    for offer in Offer::ONE_EACH {
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept();
            peer.greet();
            peer.await_tls_request();
            // It pretends that the login was accepted already.
            peer.ok();
            let mut rest = Vec::new();
            // The client gives up; how is its own affair.
            let _ = peer.wire().read_to_end(&mut rest);
            rest
        });
        let error = LoopClient::connect(&eager(&server, &authority, offer), None).err().unwrap();
        assert!(matches!(error, Error::Tls(_)), "{error}");
        let name = b"toll";
        assert!(!server.join().windows(name.len()).any(|window| window == name), "{offer:?}");
    }
}

#[test]
fn a_server_without_tls_gets_no_login() {
    let authority = Authority::new();
    let server = Server::tcp(move |listener| {
        let mut peer = listener.accept();
        peer.greet_offering(OFFERED.without(Capabilities::SSL));
        peer.read_to_end()
    });
    let error = LoopClient::connect(&eager(&server, &authority, Offer::OPENSSL_1_3), None).err().unwrap();
    assert!(error.to_string().contains("TLS"), "{error}");
    let sent = server.join();
    let record = &sent[REQUEST_BYTES..];
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    assert_eq!((record[0], record.len()), (TLS_HANDSHAKE, RECORD_HEADER_BYTES + length), "and no login");
}
