//! A PostgreSQL server with behaviour that a real one cannot be made to show: it requires any number of SCRAM
//! iterations, and never closes the connection of a cancel request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use ciphertoll_wire::postgres::TransactionStatus;
use ciphertoll_wire::postgres::server::{
    Authentication, write_authentication, write_command_complete, write_ready_for_query,
};

use crate::process::LONG;

const CANCEL_REQUEST: u32 = 80_877_102;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The SCRAM challenge was sent.
    Challenged,
    /// The client's proof has arrived, or its connection has ended.
    Answered,
    /// A cancel request has arrived; its connection stays open.
    Cancel,
}

/// How connections authenticate, in the order in which they arrive.
#[derive(Clone, Copy)]
pub(crate) enum Login {
    /// Without authentication.
    Trust,
    /// The first without authentication, the others by deriving keys with this many iterations.
    ScramAfterFirst { iterations: u32 },
    /// All by deriving keys with this many iterations.
    Scram { iterations: u32 },
}

/// Closes its connections when dropped.
pub(crate) struct FakeServer {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    events: Receiver<Event>,
}

impl FakeServer {
    pub(crate) fn start(login: Login) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (sender, events) = mpsc::channel();
        let shared = Arc::clone(&sockets);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let Ok(kept) = stream.try_clone() else { return };
                shared.lock().expect("no panic").push(kept);
                let iterations = match login {
                    Login::Scram { iterations } => Some(iterations),
                    Login::ScramAfterFirst { iterations } if number > 0 => Some(iterations),
                    Login::ScramAfterFirst { .. } | Login::Trust => None,
                };
                let sender = sender.clone();
                thread::spawn(move || serve(stream, iterations, &sender));
            }
        });
        Self { port, sockets, events }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://toll@127.0.0.1:{}/shop?sslmode=disable", self.port)
    }

    pub(crate) fn await_event(&self, expected: Event) {
        while self.events.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {expected:?}")) != expected {}
    }

    /// Whether this has happened since the last wait.
    pub(crate) fn has_seen(&self, expected: Event) -> bool {
        self.events.try_iter().any(|event| event == expected)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        for socket in self.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn serve(mut stream: TcpStream, iterations: Option<u32>, events: &Sender<Event>) -> Option<()> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - length.len()];
    stream.read_exact(&mut startup).ok()?;
    if startup.starts_with(&CANCEL_REQUEST.to_be_bytes()) {
        events.send(Event::Cancel).ok()?;
        // The clone that was kept holds the connection open.
        return Some(());
    }
    if let Some(iterations) = iterations {
        challenge(&mut stream, iterations)?;
        events.send(Event::Challenged).ok()?;
        let _ = message(&mut stream);
        events.send(Event::Answered).ok()?;
        return stream.shutdown(Shutdown::Both).ok();
    }
    let mut out = Vec::new();
    write_authentication(&mut out, &Authentication::Ok).ok()?;
    write_ready_for_query(&mut out, TransactionStatus::Idle);
    stream.write_all(&out).ok()?;
    loop {
        let (kind, payload) = message(&mut stream).filter(|(kind, _)| *kind != b'X')?;
        let mut out = Vec::new();
        match (kind, payload.as_slice()) {
            // EmptyQueryResponse.
            // Without an answer.
            (b'Q', b"vanish\0") => return stream.shutdown(Shutdown::Both).ok(),
            (b'Q', b"\0") => out.extend_from_slice(b"I\0\0\0\x04"),
            (b'Q', _) => write_command_complete(&mut out, b"SET").ok()?,
            (b'S', _) => {}
            _ => continue,
        }
        write_ready_for_query(&mut out, TransactionStatus::Idle);
        stream.write_all(&out).ok()?;
    }
}

/// Requests SCRAM-SHA-256 and answers the client's first message.
fn challenge(stream: &mut TcpStream, iterations: u32) -> Option<()> {
    let mut out = Vec::new();
    write_authentication(&mut out, &Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256"] }).ok()?;
    stream.write_all(&out).ok()?;
    let (_, initial) = message(stream)?;
    let initial = String::from_utf8_lossy(&initial).into_owned();
    let (_, nonce) = initial.split_once("r=")?;
    let first = format!("r={nonce}fake,s=c2FsdHNhbHQ=,i={iterations}");
    out.clear();
    write_authentication(&mut out, &Authentication::SaslContinue(first.as_bytes())).ok()?;
    stream.write_all(&out).ok()
}

fn message(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut header = [0; 5];
    stream.read_exact(&mut header).ok()?;
    let [kind, length @ ..] = header;
    let mut payload = vec![0; u32::from_be_bytes(length) as usize - length.len()];
    stream.read_exact(&mut payload).ok()?;
    Some((kind, payload))
}
