//! A server that follows a script on one connection at a time. Every wait is bounded by its sockets' timeouts, so
//! that a client that says nothing fails the test rather than hanging it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic;
use std::thread::{self, JoinHandle};

use ciphertoll_net::Address;
use ciphertoll_wire::mysql::column::encode_text_column;
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::server::{self, ClientMessage, StoredPassword};
use ciphertoll_wire::mysql::{Capabilities, Row};
use openssl::ssl::{SslAcceptor, SslRef, SslStream};
use socket2::{Domain, SockRef, Type};
use tempfile::TempDir;

use crate::drivers::{DATABASE, PASSWORD, TIME_LIMIT, USER};

const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";
const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const UTF8MB4: u8 = 45;

/// What servers offer today.
pub(crate) const OFFERED: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SSL)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::DEPRECATE_EOF);

/// A server on a thread of its own.
pub(crate) struct Server<T> {
    pub(crate) address: Address,
    thread: JoinHandle<T>,
    _directory: Option<TempDir>,
}

/// What a script accepts connections from.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// How many bytes the server gives the kernel at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Whole,
    Dribble,
}

/// One connection, from the server's side.
pub(crate) struct Peer {
    stream: Stream,
    /// The number of the next packet of the login.
    sequence: u8,
    capabilities: Capabilities,
}

enum Stream {
    Plain(Wire),
    Tls(Box<SslStream<Wire>>),
    /// Only while TLS starts, and after that failed.
    Gone,
}

/// A socket with timeouts.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    pub(crate) pace: Pace,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How a client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// `COM_QUIT`, over TLS a close alert, then the end of the stream.
    Orderly,
    /// The end of the stream in another place.
    Abrupt,
}

impl<T: Send + 'static> Server<T> {
    /// Listens on a free port of loopback.
    pub(crate) fn tcp(script: impl FnOnce(&Listener) -> T + Send + 'static) -> Self {
        Self::on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), script)
    }

    /// Listens where it was bound to.
    pub(crate) fn on(listener: TcpListener, script: impl FnOnce(&Listener) -> T + Send + 'static) -> Self {
        let address = Address::Tcp(listener.local_addr().unwrap());
        Self::start(address, None, Listener::Tcp(listener), script)
    }

    /// Listens on a unix socket of its own directory.
    pub(crate) fn unix(script: impl FnOnce(&Listener) -> T + Send + 'static) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("server.sock");
        let listener = UnixListener::bind(&path).unwrap();
        Self::start(Address::Unix(path), Some(directory), Listener::Unix(listener), script)
    }

    fn start(
        address: Address,
        directory: Option<TempDir>,
        listener: Listener,
        script: impl FnOnce(&Listener) -> T + Send + 'static,
    ) -> Self {
        // A receive timeout bounds accept(), too (socket(7)).
        listener.with_socket(|socket| socket.set_read_timeout(Some(TIME_LIMIT)).unwrap());
        Self { address, thread: thread::spawn(move || script(&listener)), _directory: directory }
    }

    /// The port of TCP.
    pub(crate) fn port(&self) -> u16 {
        let Address::Tcp(address) = &self.address else { panic!("it does not listen on TCP") };
        address.port()
    }

    /// What the script returned; its panic, if it had one.
    pub(crate) fn join(self) -> T {
        self.thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }
}

impl Listener {
    pub(crate) fn accept(&self) -> Peer {
        self.accept_from().0
    }

    /// A connection that writes one byte at a time.
    pub(crate) fn accept_dribbling(&self) -> Peer {
        let mut peer = self.accept();
        peer.wire().pace = Pace::Dribble;
        peer
    }

    /// A connection and where it came from.
    pub(crate) fn accept_from(&self) -> (Peer, Option<SocketAddr>) {
        let (socket, from) = match self {
            Self::Tcp(listener) => {
                let (socket, from) = listener.accept().unwrap();
                socket.set_nodelay(true).unwrap();
                (Socket::Tcp(socket), Some(from))
            }
            Self::Unix(listener) => (Socket::Unix(listener.accept().unwrap().0), None),
        };
        socket.with_socket(|socket| {
            socket.set_read_timeout(Some(TIME_LIMIT)).unwrap();
            socket.set_write_timeout(Some(TIME_LIMIT)).unwrap();
        });
        let stream = Stream::Plain(Wire { socket, pace: Pace::Whole });
        (Peer { stream, sequence: 0, capabilities: OFFERED }, from)
    }

    fn with_socket(&self, act: impl FnOnce(SockRef<'_>)) {
        match self {
            Self::Tcp(listener) => act(SockRef::from(&listener.as_fd())),
            Self::Unix(listener) => act(SockRef::from(&listener.as_fd())),
        }
    }
}

impl Peer {
    /// The whole login, with TLS where there is an acceptor.
    pub(crate) fn log_in(mut self, acceptor: Option<&SslAcceptor>) -> Self {
        self.greet();
        if let Some(acceptor) = acceptor {
            self.await_tls_request();
            self.start_tls(acceptor).unwrap();
        }
        self.await_login();
        self.ok();
        self
    }

    pub(crate) fn greet(&mut self) {
        self.greet_offering(OFFERED);
    }

    pub(crate) fn greet_offering(&mut self, capabilities: Capabilities) {
        let greeting = greeting(capabilities);
        self.send(&greeting);
    }

    pub(crate) fn await_tls_request(&mut self) {
        let packet = self.read_packet().unwrap();
        let message = server::read_login(&mut packet.as_slice(), self.sequence).unwrap().unwrap();
        assert!(matches!(message, ClientMessage::TlsRequest(_)), "logs in without TLS");
        self.sequence += 1;
    }

    /// The server's half of the handshake; OpenSSL's reason where it fails.
    pub(crate) fn start_tls(&mut self, acceptor: &SslAcceptor) -> Result<(), String> {
        let Stream::Plain(wire) = std::mem::replace(&mut self.stream, Stream::Gone) else {
            panic!("TLS in TLS");
        };
        let stream = acceptor.accept(wire).map_err(|error| error.to_string())?;
        self.stream = Stream::Tls(Box::new(stream));
        Ok(())
    }

    /// Reads a login and checks who it is.
    pub(crate) fn await_login(&mut self) {
        let packet = self.read_packet().unwrap();
        let message = server::read_login(&mut packet.as_slice(), self.sequence).unwrap().unwrap();
        let ClientMessage::Login(login) = message else { panic!("asks for TLS again") };
        assert_eq!(login.user, USER.as_bytes());
        assert_eq!(login.database, Some(DATABASE.as_bytes()));
        assert!(StoredPassword::of(PASSWORD).accepts(&NONCE, login.auth_response), "a wrong password");
        self.capabilities = login.head.capabilities;
        self.sequence += 1;
    }

    pub(crate) fn ok(&mut self) {
        let mut out = Vec::new();
        server::write_ok(&mut out, self.sequence, &OkPacket::default()).unwrap();
        self.send(&out);
    }

    /// Answers a login with an ERR.
    pub(crate) fn refuse(&mut self, code: u16, message: &str) {
        let refusal = err(self.sequence, code, message);
        self.send(&refusal);
    }

    /// The next statement; none when the client says goodbye.
    pub(crate) fn next_query(&mut self) -> Option<String> {
        let packet = self.read_packet().unwrap();
        match packet[4] {
            COM_QUERY => Some(String::from_utf8(packet[5..].to_vec()).unwrap()),
            COM_QUIT => None,
            other => panic!("command {other:#04x}"),
        }
    }

    /// Reads a goodbye and all that follows it.
    pub(crate) fn goodbye(mut self) -> Goodbye {
        match self.read_packet() {
            Ok(packet) if packet == [1, 0, 0, 0, COM_QUIT] => {}
            _ => return Goodbye::Abrupt,
        }
        self.end()
    }

    /// Reads the end of a protocol that has no word for goodbye.
    pub(crate) fn end(mut self) -> Goodbye {
        let mut rest = [0];
        let orderly = match &mut self.stream {
            Stream::Plain(wire) => wire.read(&mut rest).unwrap() == 0,
            // Zero bytes are a close alert; the end without one is an error.
            Stream::Tls(stream) => {
                let alerted =
                    stream.ssl_read(&mut rest).unwrap_err().code() == openssl::ssl::ErrorCode::ZERO_RETURN;
                let ended = stream.get_mut().read(&mut rest).unwrap() == 0;
                // The client has gone without waiting for it; but OpenSSL forgets the session of a server that does not
                // say goodbye.
                let _ = stream.shutdown();
                alerted && ended
            }
            Stream::Gone => false,
        };
        if orderly { Goodbye::Orderly } else { Goodbye::Abrupt }
    }

    /// Sends rows, encoded for what the client can do.
    pub(crate) fn answer(&mut self, rows: &[Row]) {
        let answer = self.encode_rows(rows);
        self.send(&answer);
    }

    /// The answer to a query; every row has as many columns as the first.
    pub(crate) fn encode_rows(&self, rows: &[Row]) -> Vec<u8> {
        let columns = rows[0].len();
        let mut packets = vec![vec![u8::try_from(columns).unwrap()]];
        for _ in 0..columns {
            let mut definition = Vec::new();
            encode_text_column(&mut definition, b"column", UTF8MB4);
            packets.push(definition);
        }
        let mut end = Vec::new();
        OkPacket::default().encode_end_of_rows(&mut end, self.capabilities);
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            packets.push(end.clone());
        }
        packets.extend(rows.iter().map(encode_row));
        packets.push(end);
        let mut out = Vec::new();
        for (index, payload) in packets.iter().enumerate() {
            server::write_payload(&mut out, (index + 1) as u8, payload).unwrap();
        }
        out
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match &mut self.stream {
            Stream::Plain(wire) => wire.write_all(bytes).unwrap(),
            Stream::Tls(stream) => stream.write_all(bytes).unwrap(),
            Stream::Gone => panic!("there is no stream"),
        }
        if self.sequence == 0 {
            self.sequence = 1;
        }
    }

    /// Appends what comes next, in plaintext; nothing at the end.
    pub(crate) fn read_more(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut piece = [0; 4096];
        let count = self.plaintext().read(&mut piece)?;
        into.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    fn plaintext(&mut self) -> &mut dyn Read {
        match &mut self.stream {
            Stream::Plain(wire) => wire,
            Stream::Tls(stream) => stream,
            Stream::Gone => panic!("there is no stream"),
        }
    }

    /// A close alert, over TLS, then the end of this direction. A client may have gone before either.
    pub(crate) fn finish(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            let _ = stream.shutdown();
        }
        self.cut();
    }

    /// The end of this direction, without an alert.
    pub(crate) fn cut(&mut self) {
        let _ = match &self.wire().socket {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
        };
    }

    /// Everything that still comes, as it is on the wire.
    pub(crate) fn read_to_end(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        match self.wire().read_to_end(&mut all) {
            Ok(_) => all,
            // The client closed before it had read everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => all,
            Err(error) => panic!("{error}"),
        }
    }

    /// Exactly one TLS record.
    pub(crate) fn read_tls_record(&mut self) -> Vec<u8> {
        let mut record = vec![0; 5];
        self.wire().read_exact(&mut record).unwrap();
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        self.wire().read_exact(&mut record[5..]).unwrap();
        record
    }

    pub(crate) fn tls(&self) -> &SslRef {
        match &self.stream {
            Stream::Tls(stream) => stream.ssl(),
            Stream::Plain(_) | Stream::Gone => panic!("there is no TLS"),
        }
    }

    pub(crate) fn wire(&mut self) -> &mut Wire {
        match &mut self.stream {
            Stream::Plain(wire) => wire,
            Stream::Tls(stream) => stream.get_mut(),
            Stream::Gone => panic!("there is no stream"),
        }
    }

    /// One packet with its header and not a byte more: what follows may be TLS.
    fn read_packet(&mut self) -> io::Result<Vec<u8>> {
        let stream = self.plaintext();
        let mut packet = vec![0; 4];
        stream.read_exact(&mut packet)?;
        let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
        packet.resize(4 + length, 0);
        stream.read_exact(&mut packet[4..])?;
        Ok(packet)
    }
}

impl Socket {
    fn with_socket(&self, act: impl FnOnce(SockRef<'_>)) {
        match self {
            Self::Tcp(socket) => act(SockRef::from(&socket.as_fd())),
            Self::Unix(socket) => act(SockRef::from(&socket.as_fd())),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.read(into),
            Socket::Unix(socket) => socket.read(into),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let from = if self.pace == Pace::Dribble { &from[..from.len().min(1)] } else { from };
        match &mut self.socket {
            Socket::Tcp(socket) => socket.write(from),
            Socket::Unix(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The greeting's packet.
pub(crate) fn greeting(capabilities: Capabilities) -> Vec<u8> {
    let greeting = Greeting {
        version: b"5.5.5-10.11.19-MariaDB",
        connection_id: 42,
        nonce: NONCE,
        capabilities,
        character_set: UTF8MB4,
        status: 2,
        plugin: b"mysql_native_password",
    };
    let mut out = Vec::new();
    server::write_greeting(&mut out, &greeting).unwrap();
    out
}

/// An ERR's packet.
pub(crate) fn err(sequence: u8, code: u16, message: &str) -> Vec<u8> {
    let packet = ErrPacket { code, sql_state: *b"28000", message: message.as_bytes() };
    let mut out = Vec::new();
    server::write_err(&mut out, sequence, &packet).unwrap();
    out
}

fn encode_row(row: &Row) -> Vec<u8> {
    let mut out = Vec::new();
    for cell in row {
        match cell {
            None => out.push(0xfb),
            Some(bytes) if bytes.len() < 0xfb => out.push(bytes.len() as u8),
            Some(bytes) => {
                out.push(0xfd);
                out.extend_from_slice(&bytes.len().to_le_bytes()[..3]);
            }
        }
        out.extend_from_slice(cell.as_deref().unwrap_or_default());
    }
    out
}

/// An address at which nobody listens for as long as the socket is held: a port that were free might be somebody's by then.
pub(crate) fn nobody() -> (socket2::Socket, SocketAddr) {
    let taken = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = taken.local_addr().unwrap().as_socket().unwrap();
    (taken, address)
}
