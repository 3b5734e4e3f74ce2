//! Where operators and their programs ask how a proxy is: HTTP/1.1, GET alone, on a thread of its own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Listener, Reactor, Readiness, Received, Sent};

use crate::dialect::Dialect;
use crate::engine::{Health, NoAnswer, Orders};
use crate::metrics::render;
use crate::settings::Listen;
use crate::slab::{Id, Slab};
use crate::status::Status;

const LISTENER: usize = 0;
/// Those who ask at a time; further ones are hung up on.
const MAX_CONNECTIONS: usize = 16;
const MAX_REQUEST_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// For a request and its answer together.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(500);
/// Far more than a status of thousands of databases.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Only its own user may ask, by unix socket.
const MODE: u32 = 0o600;

/// A place where a proxy is asked how it is.
pub struct Admin<D: Dialect> {
    listener: Listener,
    file: Option<PathBuf>,
    reactor: Reactor,
    orders: Orders<D>,
    connections: Slab<Connection>,
}

/// As long as this is there, the socket's file is.
pub struct Serving(Option<PathBuf>);

struct Connection {
    channel: Channel,
    until: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asks,
    IsAnswered,
}

struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl<D: Dialect> Admin<D> {
    /// Listens.
    pub fn listen(place: &Listen, orders: Orders<D>) -> Result<Self, Error> {
        let (mut listener, file) = match place {
            Listen::Unix(path) => (Listener::unix(path, MODE)?, Some(path.clone())),
            Listen::Tcp(address) => (Listener::tcp(*address)?, None),
        };
        let reactor = Reactor::new()?;
        reactor.register_listener(&mut listener, LISTENER)?;
        Ok(Self { listener, file, reactor, orders, connections: Slab::default() })
    }

    /// Where it listens, if by TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Answers from now on.
    pub fn serve(mut self) -> io::Result<Serving> {
        let file = self.file.clone();
        // Ends with the program; only where the machine has no epoll left, before that.
        let serve = move || while self.turn().is_ok() {};
        thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
        Ok(Serving(file))
    }

    fn turn(&mut self) -> Result<(), Error> {
        let ready: Vec<(usize, Readiness)> =
            self.reactor.wait(TICK)?.map(|ready| (ready.key, ready.readiness)).collect();
        for (key, readiness) in ready {
            if key != LISTENER
                && let Some(id) = self.connections.at(key - 1)
            {
                self.go_on(id, readiness);
            }
        }
        // In each turn: where the machine was out of descriptors, no edge tells of the connections that wait.
        self.accept();
        let now = Instant::now();
        for id in self.connections.ids() {
            if self.connections.get(id).is_some_and(|connection| now >= connection.until) {
                self.connections.remove(id);
            }
        }
        self.connections.settle();
        Ok(())
    }

    fn accept(&mut self) {
        while let Ok(Some((channel, _))) = self.listener.accept() {
            if self.connections.len() >= MAX_CONNECTIONS {
                continue;
            }
            let until = Instant::now() + PATIENCE;
            let id = self.connections.insert(Connection { channel, until, stage: Stage::Asks });
            let Some(connection) = self.connections.get_mut(id) else { return };
            if self.reactor.register(&mut connection.channel, id.index + 1).is_err() {
                self.connections.remove(id);
            }
        }
    }

    fn go_on(&mut self, id: Id, readiness: Readiness) {
        let Some(Connection { channel, stage, .. }) = self.connections.get_mut(id) else { return };
        let is_done = match stage {
            Stage::IsAnswered => !matches!(channel.send(), Ok(Sent::Blocked)),
            Stage::Asks if readiness == Readiness::Writable => false,
            Stage::Asks => match request(channel) {
                Ok(None) => false,
                Ok(Some(request)) => {
                    let answer = request.map_or_else(|refusal| refusal, |path| answer(&path, &self.orders));
                    *stage = Stage::IsAnswered;
                    answer.write(channel.output());
                    !matches!(channel.send(), Ok(Sent::Blocked))
                }
                Err(Gone) => true,
            },
        };
        if is_done {
            self.connections.remove(id);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Whoever listens next replaces what is left.
            let _ = fs::remove_file(file);
        }
    }
}

/// Nobody is there to be answered.
struct Gone;

/// What is asked for, or what is answered at once, when the request is there.
fn request(channel: &mut Channel) -> Result<Option<Result<String, Answer>>, Gone> {
    loop {
        let received = match channel.receive_input() {
            Ok(Received::Closed) | Err(_) => return Err(Gone),
            Ok(received) => received,
        };
        if let Some(request) = parse(channel.input()) {
            return Ok(Some(request));
        }
        if received != Received::MoreLikely {
            return Ok(None);
        }
    }
}

/// `None`: it is not complete.
fn parse(bytes: &[u8]) -> Option<Result<String, Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST_BYTES => None,
        Ok(httparse::Status::Partial) => {
            Some(Err(Answer::text("431 Request Header Fields Too Large", "too long\n")))
        }
        Ok(httparse::Status::Complete(_)) => Some(match (request.method, request.path) {
            (Some("GET"), Some(path)) => Ok(path.split_once('?').map_or(path, |(path, _)| path).to_owned()),
            _ => Err(Answer::text("405 Method Not Allowed", "only GET\n")),
        }),
        Err(_) => Some(Err(Answer::text("400 Bad Request", "this is no HTTP\n"))),
    }
}

fn answer<D: Dialect>(path: &str, orders: &Orders<D>) -> Answer {
    let answer = match path {
        "/metrics" => orders.status().map(|status| Answer {
            status: "200 OK",
            content_type: PROMETHEUS,
            body: render(orders.metrics(), &status),
        }),
        "/status" => orders.status().map(|status| Answer {
            status: "200 OK",
            content_type: JSON,
            body: serde_json::to_string(&status).unwrap_or_default() + "\n",
        }),
        "/healthz" => orders.health().map(|health| match health {
            Health::Well => Answer::text("200 OK", "ok\n"),
            Health::NoServer => Answer::text("503 Service Unavailable", "there is no server connection\n"),
            Health::Stopping => Answer::text("503 Service Unavailable", "the proxy is stopping\n"),
        }),
        _ => Ok(Answer::text("404 Not Found", "there are /metrics, /status and /healthz\n")),
    };
    answer.unwrap_or_else(|NoAnswer| Answer::text("503 Service Unavailable", &format!("{NoAnswer}\n")))
}

impl Answer {
    fn text(status: &'static str, body: &str) -> Self {
        Self { status, content_type: TEXT, body: body.to_owned() }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { status, content_type, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}

/// A proxy that does not say how it is.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there, or nobody answers.
    #[error("no proxy answers at {place}: {source}")]
    Unreachable {
        /// Where it was asked.
        place: Listen,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else listens there.
    #[error("what listens at {0} is no ciphertoll-proxy")]
    NoProxy(Listen),
    /// It is there, and has other things to do.
    #[error("the proxy at {place} says: {words}")]
    Refused {
        /// Where it was asked.
        place: Listen,
        /// Its words.
        words: String,
    },
}

/// Asks the proxy at this place how it is.
pub fn ask_status(place: &Listen) -> Result<Status, AskError> {
    let unreachable = |source| AskError::Unreachable { place: place.clone(), source };
    let bytes = exchange(place).map_err(unreachable)?;
    let no_proxy = || AskError::NoProxy(place.clone());
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(&bytes) else { return Err(no_proxy()) };
    match response.code {
        Some(200) => serde_json::from_slice(&bytes[head..]).map_err(|_| no_proxy()),
        Some(503) => {
            let words = String::from_utf8_lossy(&bytes[head..]).trim().to_owned();
            Err(AskError::Refused { place: place.clone(), words })
        }
        _ => Err(no_proxy()),
    }
}

fn exchange(place: &Listen) -> io::Result<Vec<u8>> {
    match place {
        Listen::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            read_answer(stream)
        }
        Listen::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            read_answer(stream)
        }
    }
}

fn read_answer(mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(bytes: &[u8]) -> Option<Result<String, &'static str>> {
        parse(bytes).map(|request| request.map_err(|answer| answer.status))
    }

    #[test]
    fn a_request_is_the_same_in_one_piece_and_byte_by_byte() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(asked(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(asked(whole), Some(Ok("/metrics".to_owned())));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert_eq!(asked(b"POST / HTTP/1.1\r\n\r\n"), Some(Err("405 Method Not Allowed")));
        assert_eq!(asked(b"\x16\x03\x01\x02\0"), Some(Err("400 Bad Request")));
        let long = [b"GET / HTTP/1.1\r\nX: ", &[b'x'; MAX_REQUEST_BYTES][..]].concat();
        assert_eq!(asked(&long), Some(Err("431 Request Header Fields Too Large")));
        let many = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(MAX_HEADERS + 1)[..]].concat();
        assert_eq!(asked(&many), Some(Err("400 Bad Request")));
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let mut out = Vec::new();
        Answer::text("405 Method Not Allowed", "only GET\n").write(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{text}");
        assert!(text.contains("Content-Length: 9\r\nAllow: GET\r\n") && text.ends_with("\r\n\r\nonly GET\n"));
    }
}
