//! Status and metrics over HTTP/1.1 on a separate thread, and commands of the console, each on its own
//! thread.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Listener, Reactor, Readiness, Received, Sent, Trigger, WatchedEvents};

use crate::config::ServerName;
use crate::console_rules::Role;
use crate::engine::{Health, NoAnswer};
use crate::http::{
    CONSOLE_OF_SERVER, CONSOLE_PATH, HostRule, HttpRequest, HttpResponse, JSON, MAX_HEADERS, PROMETHEUS,
    ResponseFormat, parse_request,
};
use crate::metrics::render;
use crate::running::{RunningServer, health};
use crate::settings::ListenAddress;
use crate::slab::{Id, Slab};
use crate::status::{ProxyStatus, Status};

const LISTENER: usize = 0;
/// Connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 16;
/// For a request and its response together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(500);
/// Far more than the status of thousands of databases takes.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;

/// Only processes of the proxy's own user may connect.
const MODE: u32 = 0o600;

pub struct AdminServer {
    listener: Listener,
    configured: ListenAddress,
    reactor: Reactor,
    servers: Vec<RunningServer>,
    connections: Slab<HttpConnection>,
}

/// The file of the admin socket, which is removed when this is dropped, unless another process has the socket.
pub struct SocketFile {
    path: Option<PathBuf>,
    ownership: SocketOwnership,
}

/// The admin socket, which listens until the process ends.
pub struct AdminSocket {
    pub(crate) address: ListenAddress,
    pub(crate) socket: OwnedFd,
    pub(crate) ownership: SocketOwnership,
}

/// Whether the admin socket is still this process's.
#[derive(Clone, Default)]
pub(crate) struct SocketOwnership {
    is_given_up: Arc<AtomicBool>,
}

struct HttpConnection {
    channel: Channel,
    until: Instant,
    state: RequestState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Reading,
    Responding,
}

impl AdminServer {
    /// Opens the socket, unless it was inherited.
    pub fn listen(
        address: &ListenAddress,
        servers: Vec<RunningServer>,
        inherited: Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let listener = match (address, inherited) {
            (ListenAddress::Unix(path), Some(socket)) => Listener::inherited_unix(socket, path)?,
            (ListenAddress::Unix(path), None) => Listener::unix(path, MODE)?,
            (ListenAddress::Tcp(address), Some(socket)) => Listener::inherited_tcp(socket, *address)?,
            (ListenAddress::Tcp(address), None) => Listener::tcp(*address)?,
        };
        let reactor = Reactor::new()?;
        reactor.register_listener(&listener, LISTENER, Trigger::Edge)?;
        Ok(Self { listener, configured: address.clone(), reactor, servers, connections: Slab::default() })
    }

    /// The address that it listens on.
    pub fn address(&self) -> ListenAddress {
        self.listener.address().map_or_else(|| self.configured.clone(), ListenAddress::Tcp)
    }

    /// Serves until the process ends. The second value is for an upgrade.
    pub fn serve(mut self) -> io::Result<(SocketFile, AdminSocket)> {
        self.listener.leave_file();
        let ownership = SocketOwnership::default();
        let (address, socket) = (self.configured.clone(), self.listener.descriptor().try_clone_to_owned()?);
        let path = match &address {
            ListenAddress::Unix(path) => Some(path.clone()),
            ListenAddress::Tcp(_) => None,
        };
        let file = SocketFile { path, ownership: ownership.clone() };
        let handle = AdminSocket { address, socket, ownership: ownership.clone() };
        // Runs until the process exits, until another process has the socket, or until epoll fails.
        let serve = move || while !ownership.is_given_up() && self.turn().is_ok() {};
        thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
        Ok((file, handle))
    }

    fn turn(&mut self) -> Result<(), Error> {
        let ready: Vec<(usize, Readiness)> =
            self.reactor.wait(TICK)?.map(|ready| (ready.key, ready.readiness)).collect();
        for (key, readiness) in ready {
            if key != LISTENER
                && let Some(id) = self.connections.at(key - 1)
            {
                self.continue_connection(id, readiness);
            }
        }
        // On every turn: after the process was out of file descriptors, no edge reports the connections that
        // wait.
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
            let until = Instant::now() + REQUEST_TIMEOUT;
            let id = self.connections.insert(HttpConnection { channel, until, state: RequestState::Reading });
            let Some(connection) = self.connections.get_mut(id) else { return };
            let key = id.index + 1;
            if self.reactor.register(&mut connection.channel, key, WatchedEvents::Both).is_err() {
                self.connections.remove(id);
            }
        }
    }

    fn continue_connection(&mut self, id: Id, readiness: Readiness) {
        let Some(HttpConnection { channel, state, .. }) = self.connections.get_mut(id) else { return };
        let hosts = match self.configured {
            ListenAddress::Unix(_) => HostRule::Any,
            ListenAddress::Tcp(_) => HostRule::ThisMachine,
        };
        let is_done = match state {
            RequestState::Responding => !matches!(channel.send(), Ok(Sent::Blocked)),
            RequestState::Reading if readiness == Readiness::Writable => false,
            RequestState::Reading => match read_request(channel, hosts) {
                Ok(None) => false,
                Ok(Some(request)) => {
                    let response = match request {
                        Ok(HttpRequest::Get(path)) => respond(&path, &self.servers),
                        Ok(HttpRequest::Command { server, text, format }) => {
                            match server_of_command(&self.servers, server.as_deref()) {
                                Ok(server) => return self.start_command(id, server, text, format),
                                Err(refusal) => refusal,
                            }
                        }
                        Err(refusal) => refusal,
                    };
                    *state = RequestState::Responding;
                    response.write(channel.output());
                    !matches!(channel.send(), Ok(Sent::Blocked))
                }
                Err(Disconnected) => true,
            },
        };
        if is_done {
            self.connections.remove(id);
        }
    }
}

impl AdminServer {
    /// A command may wait, so it gets its own thread, which also takes the connection. On TCP, any process of
    /// the machine can connect; its commands are limited to `SHOW`.
    fn start_command(&mut self, id: Id, server: usize, text: String, format: ResponseFormat) {
        let Some(HttpConnection { mut channel, .. }) = self.connections.remove(id) else { return };
        let role = match self.configured {
            ListenAddress::Unix(_) => Role::Admin,
            ListenAddress::Tcp(_) => Role::Stats,
        };
        if self.reactor.deregister(&mut channel).is_ok() {
            self.servers[server].console.serve_request(channel, text, format, role);
        }
    }
}

impl SocketOwnership {
    /// Another process has the socket, and answers.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(file) = self.path.as_ref().filter(|_| !self.ownership.is_given_up()) {
            // A socket file that is left over is replaced by the next listener.
            let _ = fs::remove_file(file);
        }
    }
}

struct Disconnected;

/// A complete request, or the response that refuses it; `None` while the request is incomplete.
fn read_request(
    channel: &mut Channel,
    hosts: HostRule,
) -> Result<Option<Result<HttpRequest, HttpResponse>>, Disconnected> {
    loop {
        let received = match channel.receive_input() {
            Ok(Received::Closed) | Err(_) => return Err(Disconnected),
            Ok(received) => received,
        };
        if let Some(request) = parse_request(channel.input(), hosts) {
            return Ok(Some(request));
        }
        if received != Received::MoreLikely {
            return Ok(None);
        }
    }
}

/// The index of the server that a command names, or of the only server.
fn server_of_command(servers: &[RunningServer], name: Option<&str>) -> Result<usize, HttpResponse> {
    let names = || servers.iter().filter_map(|server| server.name.as_ref()).map(ServerName::as_str);
    let found = match name {
        Some(name) => names().position(|known| known == name),
        None => (servers.len() == 1).then_some(0),
    };
    found.ok_or_else(|| {
        let names: Vec<String> = names().map(|name| format!("{CONSOLE_OF_SERVER}{name}")).collect();
        let names = names.join(" ");
        HttpResponse::text(
            "404 Not Found",
            &format!("there are several servers, or none with this name: {names}\n"),
        )
    })
}

/// The servers that answer: while the proxy stops, some servers' workers have already ended.
fn statuses(servers: &[RunningServer]) -> Result<Vec<(&RunningServer, Status)>, NoAnswer> {
    let all = servers.iter().filter_map(|server| Some((server, server.status().ok()?)));
    let all: Vec<_> = all.collect();
    if all.is_empty() { Err(NoAnswer) } else { Ok(all) }
}

fn respond(path: &str, servers: &[RunningServer]) -> HttpResponse {
    let response = match path {
        "/metrics" => statuses(servers).map(|statuses| {
            let all: Vec<_> =
                statuses.iter().map(|(server, status)| (server.control.metrics(), status)).collect();
            HttpResponse { status: "200 OK", content_type: PROMETHEUS, body: render(&all) }
        }),
        "/status" => statuses(servers).map(|statuses| {
            let statuses: Vec<_> = statuses.into_iter().map(|(_, status)| status).collect();
            let body = serde_json::to_string(&ProxyStatus::from(statuses)).unwrap_or_default() + "\n";
            HttpResponse { status: "200 OK", content_type: JSON, body }
        }),
        "/healthz" => health(servers).map(|(health, names)| {
            let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            match health {
                Health::Well => HttpResponse::text("200 OK", "ok\n"),
                Health::Paused => HttpResponse::text("200 OK", &format!("paused{named}\n")),
                Health::NoServer => HttpResponse::text(
                    "503 Service Unavailable",
                    &format!("no server connection is open{named}\n"),
                ),
                Health::Stopping => HttpResponse::text("503 Service Unavailable", "the proxy is stopping\n"),
            }
        }),
        _ => Ok(HttpResponse::text("404 Not Found", "available paths: /metrics, /status, /healthz\n")),
    };
    response
        .unwrap_or_else(|NoAnswer| HttpResponse::text("503 Service Unavailable", &format!("{NoAnswer}\n")))
}

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("cannot reach a ciphertoll-proxy at {address}: {source}")]
    Unreachable { address: ListenAddress, source: io::Error },
    #[error("{0} is not a ciphertoll-proxy admin endpoint")]
    NotAProxy(ListenAddress),
    /// The proxy answers with status 503.
    #[error("the proxy at {address} cannot report its status: {reason}")]
    Refused { address: ListenAddress, reason: String },
    /// The console refuses a command.
    #[error("{0}")]
    Failed(String),
}

pub fn read_status(address: &ListenAddress) -> Result<ProxyStatus, StatusError> {
    let unreachable = |source| StatusError::Unreachable { address: address.clone(), source };
    let request = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let bytes = exchange(address, request, Some(REQUEST_TIMEOUT)).map_err(unreachable)?;
    let not_a_proxy = || StatusError::NotAProxy(address.clone());
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(&bytes) else { return Err(not_a_proxy()) };
    match response.code {
        Some(200) => serde_json::from_slice(&bytes[head..]).map_err(|_| not_a_proxy()),
        Some(503) => {
            let reason = String::from_utf8_lossy(&bytes[head..]).trim().to_owned();
            Err(StatusError::Refused { address: address.clone(), reason })
        }
        _ => Err(not_a_proxy()),
    }
}

/// Carries out a command of the console at this admin address, however long it takes. Returns its output.
/// `server` names the server if the process has several.
pub fn run_command(
    address: &ListenAddress,
    server: Option<&str>,
    text: &str,
    as_json: bool,
) -> Result<String, StatusError> {
    let accept = if as_json { JSON } else { "text/plain" };
    let path = server.map_or(CONSOLE_PATH.to_owned(), |name| format!("{CONSOLE_OF_SERVER}{name}"));
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    let unreachable = |source| StatusError::Unreachable { address: address.clone(), source };
    let bytes = exchange(address, request.as_bytes(), None).map_err(unreachable)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = response.parse(&bytes) else {
        return Err(StatusError::NotAProxy(address.clone()));
    };
    let body = String::from_utf8_lossy(&bytes[head..]).into_owned();
    match response.code {
        Some(200 | 202) => Ok(body),
        _ => Err(StatusError::Failed(body.trim().to_owned())),
    }
}

/// Sends a request and returns the response. `timeout` is for each part of it.
fn exchange(address: &ListenAddress, request: &[u8], timeout: Option<Duration>) -> io::Result<Vec<u8>> {
    match address {
        ListenAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(timeout)?;
            stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
            read_response(stream, request)
        }
        ListenAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, REQUEST_TIMEOUT)?;
            stream.set_read_timeout(timeout)?;
            stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
            read_response(stream, request)
        }
    }
}

fn read_response(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
