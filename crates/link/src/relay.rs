//! Where no network of our own can be made: a process that clients take for the server. It says later what it hears, so
//! that what client and server say to each other takes the round trips that it would; it delays no packet. What TCP does
//! by itself (its handshake, slow start, acknowledgements) takes no longer than on loopback, but for the handshake's
//! round trip, which the first answer takes longer instead.
//!
//! With `t0` the moment that a client is accepted: the server hears of it at `t0` + 1.5 round trips, and what the client
//! says when it would, but not before that; the client hears everything half a round trip after it was said.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ciphertoll_model::LinkShape;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use nix::sys::time::TimeSpec;

use crate::clock::monotonic_ns;
use crate::line::{Tally, lock};
use crate::realtime;

/// How soon it sees that there is another port, or that it is over.
const IDLE_NS: u64 = 20_000_000;
const PIECE_BYTES: usize = 1 << 16;
/// More than this of one direction is not held: its sender waits, as it does for a full window.
const MOST_BYTES: usize = 64 << 20;

/// A relay to servers on this machine.
pub(crate) struct Relay {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// Where clients of a server come.
#[derive(Clone)]
struct Listener {
    socket: Arc<TcpListener>,
    server: u16,
}

struct Control {
    one_way_ns: AtomicU64,
    is_over: AtomicBool,
    listeners: Mutex<Vec<Listener>>,
    carried: Mutex<Tally>,
}

impl Relay {
    pub(crate) fn start() -> io::Result<Self> {
        let control = Arc::new(Control {
            one_way_ns: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            listeners: Mutex::default(),
            carried: Mutex::new(Tally::new()),
        });
        let own = Arc::clone(&control);
        let thread =
            thread::Builder::new().name("relay".to_owned()).spawn(move || Exchange::new(&own).run())?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Holds what is said for half of the round trip; `overhead_ns` of each is its own.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) {
        let one_way_ns = shape.rtt_ns().saturating_sub(overhead_ns) / 2;
        self.control.one_way_ns.store(one_way_ns, Ordering::Release);
    }

    /// Where clients find what leads to this port.
    pub(crate) fn address_of(&self, server: u16) -> io::Result<SocketAddr> {
        let mut listeners = lock(&self.control.listeners);
        if let Some(known) = listeners.iter().find(|known| known.server == server) {
            return known.socket.local_addr();
        }
        let socket = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        listeners.push(Listener { socket, server });
        Ok(address)
    }

    /// Leads there no more.
    pub(crate) fn forget(&self, server: u16) {
        lock(&self.control.listeners).retain(|known| known.server != server);
    }

    /// What was carried since the last time: pieces, where the others have packets.
    pub(crate) fn take(&self) -> Tally {
        std::mem::replace(&mut *lock(&self.control.carried), Tally::new())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Release);
        // One that panicked carries nothing any more, either.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the relay's thread has.
struct Exchange<'a> {
    control: &'a Control,
    listeners: Vec<Listener>,
    calls: Vec<Call>,
    buffer: Vec<u8>,
}

/// Somebody who talks to a server.
struct Call {
    client: TcpStream,
    /// None until it is time to tell the server.
    server: Option<TcpStream>,
    server_port: u16,
    /// When the server hears of the client.
    introduced_ns: u64,
    to_server: Way,
    to_client: Way,
}

/// What was said in one direction and not heard yet.
#[derive(Default)]
struct Way {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Nobody speaks any more …
    is_read: bool,
    /// … and nobody will hear any more.
    is_written: bool,
    /// The listener's own buffer is full.
    is_blocked: bool,
}

struct Piece {
    due_ns: u64,
    /// Empty: the end.
    bytes: Vec<u8>,
    sent: usize,
}

impl<'a> Exchange<'a> {
    fn new(control: &'a Control) -> Self {
        Self { control, listeners: Vec::new(), calls: Vec::new(), buffer: vec![0; PIECE_BYTES] }
    }

    fn run(mut self) {
        let _ = set_timerslack(1);
        realtime::ask_for();
        while !self.control.is_over.load(Ordering::Acquire) {
            self.listeners.clone_from(&lock(&self.control.listeners));
            self.accept();
            let one_way_ns = self.control.one_way_ns.load(Ordering::Acquire);
            for call in &mut self.calls {
                call.hear(one_way_ns, &mut self.buffer);
                // What cannot be said, or to nobody, ends the call: its sockets are closed.
                if call.say(&self.control.carried).is_err() {
                    call.to_server.is_written = true;
                    call.to_client.is_written = true;
                }
            }
            self.calls.retain(|call| !(call.to_server.is_written && call.to_client.is_written));
            self.wait();
        }
    }

    fn accept(&mut self) {
        let one_way_ns = self.control.one_way_ns.load(Ordering::Acquire);
        for Listener { socket, server } in &self.listeners {
            while let Ok((client, _)) = socket.accept() {
                let ready = client.set_nonblocking(true).and_then(|()| client.set_nodelay(true));
                if ready.is_ok() {
                    self.calls.push(Call::new(client, *server, monotonic_ns() + 3 * one_way_ns));
                }
            }
        }
    }

    /// Until somebody speaks, can hear again, or something is due.
    fn wait(&self) {
        let now_ns = monotonic_ns();
        let due_ns = self.calls.iter().filter_map(Call::due_ns).min().unwrap_or(u64::MAX);
        let wait_ns = due_ns.saturating_sub(now_ns).min(IDLE_NS);
        if wait_ns == 0 {
            return;
        }
        let listeners = self.listeners.iter();
        let mut fds: Vec<PollFd<'_>> =
            listeners.map(|listener| PollFd::new(listener.socket.as_fd(), PollFlags::POLLIN)).collect();
        fds.extend(self.calls.iter().flat_map(Call::awaited));
        // Interrupted or not, what there is to do is looked at anew.
        let _ = ppoll(&mut fds, Some(TimeSpec::new(0, wait_ns.cast_signed())), None);
    }
}

impl Call {
    fn new(client: TcpStream, server_port: u16, introduced_ns: u64) -> Self {
        let (to_server, to_client) = (Way::default(), Way::default());
        Self { client, server: None, server_port, introduced_ns, to_server, to_client }
    }

    fn hear(&mut self, one_way_ns: u64, buffer: &mut [u8]) {
        self.to_server.hear(&self.client, one_way_ns, self.introduced_ns, buffer);
        if let Some(server) = &self.server {
            self.to_client.hear(server, one_way_ns, 0, buffer);
        }
    }

    fn say(&mut self, carried: &Mutex<Tally>) -> io::Result<()> {
        if self.server.is_none() {
            if monotonic_ns() < self.introduced_ns {
                return Ok(());
            }
            self.server = Some(begin_connect(self.server_port)?);
        }
        if let Some(server) = &self.server {
            self.to_server.say(server, carried);
            self.to_client.say(&self.client, carried);
        }
        Ok(())
    }

    fn due_ns(&self) -> Option<u64> {
        if self.server.is_none() {
            return Some(self.introduced_ns);
        }
        let ways = [&self.to_server, &self.to_client].into_iter().filter(|way| !way.is_blocked);
        ways.filter_map(|way| way.pieces.front()).map(|piece| piece.due_ns).min()
    }

    fn awaited(&self) -> impl Iterator<Item = PollFd<'_>> {
        let client = (&self.client, &self.to_server, &self.to_client);
        let server = self.server.as_ref().map(|server| (server, &self.to_client, &self.to_server));
        [Some(client), server].into_iter().flatten().filter_map(|(socket, from, to)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, from.may_be_read());
            flags.set(PollFlags::POLLOUT, to.is_blocked);
            // Asked for nothing, a socket that was reset would still end every wait at once.
            (!flags.is_empty()).then(|| PollFd::new(socket.as_fd(), flags))
        })
    }
}

impl Way {
    fn may_be_read(&self) -> bool {
        !self.is_read && self.bytes < MOST_BYTES
    }

    fn hear(&mut self, mut from: &TcpStream, one_way_ns: u64, not_before_ns: u64, buffer: &mut [u8]) {
        while self.may_be_read() {
            let bytes = match from.read(buffer) {
                Ok(bytes) => buffer[..bytes].to_vec(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A server that is not connected yet has said nothing, either.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return;
                }
                // Who breaks off has ended.
                Err(_) => Vec::new(),
            };
            self.is_read = bytes.is_empty();
            self.bytes += bytes.len();
            let due_ns = (monotonic_ns() + one_way_ns).max(not_before_ns);
            self.pieces.push_back(Piece { due_ns, bytes, sent: 0 });
        }
    }

    fn say(&mut self, mut to: &TcpStream, carried: &Mutex<Tally>) {
        self.is_blocked = false;
        while let Some(piece) = self.pieces.front_mut().filter(|piece| piece.due_ns <= monotonic_ns()) {
            if piece.bytes.is_empty() || self.is_written {
                // Where the other side has gone already there is nothing to end.
                let _ = to.shutdown(Shutdown::Write);
                self.is_written = true;
                self.pieces.clear();
                return;
            }
            match to.write(&piece.bytes[piece.sent..]) {
                Ok(sent) => piece.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.is_blocked = true;
                    return;
                }
                Err(_) => {
                    // What is still said goes nowhere.
                    self.is_written = true;
                    self.is_read = true;
                    self.pieces.clear();
                    return;
                }
            }
            if piece.sent == piece.bytes.len() {
                let mut tally = lock(carried);
                tally.packets += 1;
                tally.bytes += piece.bytes.len() as u64;
                tally.late_ns.saturating_record(monotonic_ns().saturating_sub(piece.due_ns).max(1));
                self.bytes -= piece.bytes.len();
                self.pieces.pop_front();
            }
        }
    }
}

/// A connection to a server here that may still be in the making: nobody waits for it.
fn begin_connect(port: u16) -> io::Result<TcpStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket: OwnedFd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    let address = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}
