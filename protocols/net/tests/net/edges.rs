//! The readiness loop hears of each change once: nothing may be left over when it goes to wait.

use std::io::{self, Read, Write};
use std::sync::mpsc;

use ciphertoll_net::tls::Context;
use ciphertoll_net::{ContextSource, Error, Sent};
use ciphertoll_wire::mysql::{Row, command};

use crate::certificates::{Authority, Offer, ServerTls};
use crate::drivers::{LoopClient, TIME_LIMIT, dialer};
use crate::server::{Server, Socket};

/// What the server sends before it ends its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Whole,
    Half,
}

fn rows(bytes: usize) -> Vec<Row> {
    vec![vec![Some(vec![b'x'; bytes])]]
}

/// The client looks only after the answer and the end have both arrived: one edge for the two.
fn answer_and_end(offer: Option<Offer>, bytes: usize, answer: Answer) -> Result<Vec<Row>, Error> {
    let authority = Authority::new();
    let acceptor = offer.map(|_| authority.acceptor(ServerTls::default()));
    let (sent, all_sent) = mpsc::channel();
    let server = Server::tcp(move |listener| {
        let mut peer = listener.accept().log_in(acceptor.as_ref());
        peer.next_query();
        let whole = peer.encode_rows(&rows(bytes));
        peer.send(if answer == Answer::Whole { &whole } else { &whole[..whole.len() - 1] });
        peer.finish();
        sent.send(()).unwrap();
        peer.read_to_end();
    });
    let tls = offer.map(|offer| ContextSource::Shared(Context::build(&authority.settings(offer)).unwrap()));
    let mut client = LoopClient::connect(&dialer(&server.address, tls), None).unwrap();
    client.send_query("SELECT").unwrap();
    all_sent.recv_timeout(TIME_LIMIT).unwrap();
    let rows = client.read_rows();
    drop(client);
    server.join();
    rows
}

#[test]
fn an_answer_and_the_end_in_one_edge() {
    for offer in Offer::ALL_AND_PLAIN {
        // Less than a buffer, just about one, and several.
        for bytes in [1, 18 * 1024, 60_000] {
            let answer = answer_and_end(offer, bytes, Answer::Whole);
            assert_eq!(answer.unwrap(), rows(bytes), "{offer:?}");
            let answer = answer_and_end(offer, bytes, Answer::Half);
            assert!(matches!(answer, Err(Error::Closed)), "{offer:?}: {answer:?}");
        }
    }
}

/// The end of the login and the end of the connection in one edge: the login has succeeded.
#[test]
fn an_ok_and_the_end_in_one_edge() {
    for offer in Offer::ALL_AND_PLAIN {
        let authority = Authority::new();
        let acceptor = offer.map(|_| authority.acceptor(ServerTls::default()));
        let server = Server::tcp(move |listener| {
            let mut peer = listener.accept().log_in(acceptor.as_ref());
            peer.finish();
            peer.read_to_end();
        });
        let tls =
            offer.map(|offer| ContextSource::Shared(Context::build(&authority.settings(offer)).unwrap()));
        let client = LoopClient::connect(&dialer(&server.address, tls), None).unwrap();
        drop(client);
        server.join();
    }
}

/// Room to send and something to receive come in one edge: both must be used.
#[test]
fn room_to_send_and_an_answer_in_one_edge() {
    const STATEMENT_BYTES: usize = 12 << 20;
    let (blocked, client_is_blocked) = mpsc::channel();
    let (drained, server_has_drained) = mpsc::channel();
    // What was sent on a unix socket has arrived, so that the server knows when it has read everything.
    let server = Server::unix(move |listener| {
        let mut peer = listener.accept().log_in(None);
        client_is_blocked.recv_timeout(TIME_LIMIT).unwrap();
        let answer = peer.encode_rows(&rows(10));
        let received = read_what_is_there(&peer.wire().socket);
        peer.wire().write_all(&answer[..1]).unwrap();
        drained.send(()).unwrap();
        let mut rest = vec![0; 5 + STATEMENT_BYTES - received];
        peer.wire().read_exact(&mut rest).unwrap();
        peer.wire().write_all(&answer[1..]).unwrap();
    });
    let mut client = LoopClient::connect(&dialer(&server.address, None), None).unwrap();
    let statement = "x".repeat(STATEMENT_BYTES);
    command::encode_query(client.channel.output(), &statement).unwrap();
    assert_eq!(client.channel.send().unwrap(), Sent::Blocked);
    blocked.send(()).unwrap();
    server_has_drained.recv_timeout(TIME_LIMIT).unwrap();
    assert_eq!(client.read_rows().unwrap(), rows(10));
    server.join();
}

fn read_what_is_there(socket: &Socket) -> usize {
    let Socket::Unix(socket) = socket else { panic!("not a unix socket") };
    socket.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match (&*socket).read(&mut buffer) {
            Ok(bytes) => total += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    socket.set_nonblocking(false).unwrap();
    total
}
