//! The fallback if no private network can be made: a TCP relay that clients connect to in place of the server. It
//! delays bytes, not packets, so that the exchanges of client and server take the configured round trips. What TCP
//! does by itself (slow start, acknowledgements) is as fast as on loopback; the round trip of TCP's handshake is
//! added to the first exchange instead.
//!
//! With `t0` the time a client is accepted: the server is connected at `t0` + 1.5 round trips and receives the
//! client's bytes half a round trip after they were sent, but not before that. The client receives all bytes half a
//! round trip after they were sent.

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
use crate::line::{TrafficCounters, lock};
use crate::realtime;

/// How soon the thread notices a new listener or the end.
const IDLE_NS: u64 = 20_000_000;
const CHUNK_BYTES: usize = 1 << 16;
/// Per direction. Above this, the relay stops reading, as a full TCP window would.
const MOST_BYTES: usize = 64 << 20;

pub(crate) struct LinkRelay {
    control: Arc<RelayControl>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct RelayListener {
    socket: Arc<TcpListener>,
    server: u16,
}

struct RelayControl {
    one_way_ns: AtomicU64,
    is_over: AtomicBool,
    listeners: Mutex<Vec<RelayListener>>,
    carried: Mutex<TrafficCounters>,
}

impl LinkRelay {
    pub(crate) fn start() -> io::Result<Self> {
        let control = Arc::new(RelayControl {
            one_way_ns: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            listeners: Mutex::default(),
            carried: Mutex::new(TrafficCounters::new()),
        });
        let own = Arc::clone(&control);
        let thread =
            thread::Builder::new().name("relay".to_owned()).spawn(move || RelayLoop::new(&own).run())?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Delays bytes by half of the round trip, less `overhead_ns`, which the relay itself adds to each round trip.
    pub(crate) fn set(&self, shape: LinkShape, overhead_ns: u64) {
        let one_way_ns = shape.rtt_ns().saturating_sub(overhead_ns) / 2;
        self.control.one_way_ns.store(one_way_ns, Ordering::Release);
    }

    /// The address that is relayed to this port of the server.
    pub(crate) fn find_address(&self, server: u16) -> io::Result<SocketAddr> {
        let mut listeners = lock(&self.control.listeners);
        if let Some(known) = listeners.iter().find(|known| known.server == server) {
            return known.socket.local_addr();
        }
        let socket = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        listeners.push(RelayListener { socket, server });
        Ok(address)
    }

    pub(crate) fn close(&self, server: u16) {
        lock(&self.control.listeners).retain(|known| known.server != server);
    }

    /// The traffic since the last call, in chunks where other kinds count packets.
    pub(crate) fn take_counters(&self) -> TrafficCounters {
        std::mem::replace(&mut *lock(&self.control.carried), TrafficCounters::new())
    }
}

impl Drop for LinkRelay {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Release);
        // A thread that panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct RelayLoop<'a> {
    control: &'a RelayControl,
    listeners: Vec<RelayListener>,
    connections: Vec<RelayedConnection>,
    buffer: Vec<u8>,
}

struct RelayedConnection {
    client: TcpStream,
    /// `None` until `introduced_ns`.
    server: Option<TcpStream>,
    server_port: u16,
    /// When the server is connected.
    introduced_ns: u64,
    to_server: DelayQueue,
    to_client: DelayQueue,
}

/// Bytes of one direction on their way.
#[derive(Default)]
struct DelayQueue {
    chunks: VecDeque<DelayedChunk>,
    bytes: usize,
    /// The sender has closed.
    is_read: bool,
    /// The receiver was sent the end, or is gone.
    is_written: bool,
    /// The receiver's socket buffer is full.
    is_blocked: bool,
}

struct DelayedChunk {
    due_ns: u64,
    /// Empty: the end of the stream.
    bytes: Vec<u8>,
    sent: usize,
}

impl<'a> RelayLoop<'a> {
    fn new(control: &'a RelayControl) -> Self {
        Self { control, listeners: Vec::new(), connections: Vec::new(), buffer: vec![0; CHUNK_BYTES] }
    }

    fn run(mut self) {
        let _ = set_timerslack(1);
        realtime::ask_for();
        while !self.control.is_over.load(Ordering::Acquire) {
            self.listeners.clone_from(&lock(&self.control.listeners));
            self.accept();
            let one_way_ns = self.control.one_way_ns.load(Ordering::Acquire);
            for connection in &mut self.connections {
                connection.receive(one_way_ns, &mut self.buffer);
                // A connection that fails is closed on both sides.
                if connection.send(&self.control.carried).is_err() {
                    connection.to_server.is_written = true;
                    connection.to_client.is_written = true;
                }
            }
            self.connections
                .retain(|connection| !(connection.to_server.is_written && connection.to_client.is_written));
            self.wait();
        }
    }

    fn accept(&mut self) {
        let one_way_ns = self.control.one_way_ns.load(Ordering::Acquire);
        for RelayListener { socket, server } in &self.listeners {
            while let Ok((client, _)) = socket.accept() {
                let ready = client.set_nonblocking(true).and_then(|()| client.set_nodelay(true));
                if ready.is_ok() {
                    self.connections.push(RelayedConnection::new(
                        client,
                        *server,
                        monotonic_ns() + 3 * one_way_ns,
                    ));
                }
            }
        }
    }

    /// Waits until a socket is readable or writable, or a chunk is due.
    fn wait(&self) {
        let now_ns = monotonic_ns();
        let due_ns = self.connections.iter().filter_map(RelayedConnection::due_ns).min().unwrap_or(u64::MAX);
        let wait_ns = due_ns.saturating_sub(now_ns).min(IDLE_NS);
        if wait_ns == 0 {
            return;
        }
        let listeners = self.listeners.iter();
        let mut fds: Vec<PollFd<'_>> =
            listeners.map(|listener| PollFd::new(listener.socket.as_fd(), PollFlags::POLLIN)).collect();
        fds.extend(self.connections.iter().flat_map(RelayedConnection::awaited));
        // Whether interrupted or not, the loop checks everything again.
        let _ = ppoll(&mut fds, Some(TimeSpec::new(0, wait_ns.cast_signed())), None);
    }
}

impl RelayedConnection {
    fn new(client: TcpStream, server_port: u16, introduced_ns: u64) -> Self {
        let (to_server, to_client) = (DelayQueue::default(), DelayQueue::default());
        Self { client, server: None, server_port, introduced_ns, to_server, to_client }
    }

    fn receive(&mut self, one_way_ns: u64, buffer: &mut [u8]) {
        self.to_server.receive(&self.client, one_way_ns, self.introduced_ns, buffer);
        if let Some(server) = &self.server {
            self.to_client.receive(server, one_way_ns, 0, buffer);
        }
    }

    fn send(&mut self, carried: &Mutex<TrafficCounters>) -> io::Result<()> {
        if self.server.is_none() {
            if monotonic_ns() < self.introduced_ns {
                return Ok(());
            }
            self.server = Some(begin_connect(self.server_port)?);
        }
        if let Some(server) = &self.server {
            self.to_server.send(server, carried);
            self.to_client.send(&self.client, carried);
        }
        Ok(())
    }

    fn due_ns(&self) -> Option<u64> {
        if self.server.is_none() {
            return Some(self.introduced_ns);
        }
        let queues = [&self.to_server, &self.to_client].into_iter().filter(|queue| !queue.is_blocked);
        queues.filter_map(|queue| queue.chunks.front()).map(|chunk| chunk.due_ns).min()
    }

    fn awaited(&self) -> impl Iterator<Item = PollFd<'_>> {
        let client = (&self.client, &self.to_server, &self.to_client);
        let server = self.server.as_ref().map(|server| (server, &self.to_client, &self.to_server));
        [Some(client), server].into_iter().flatten().filter_map(|(socket, from, to)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, from.may_be_read());
            flags.set(PollFlags::POLLOUT, to.is_blocked);
            // Without flags a reset socket would still end every wait at once.
            (!flags.is_empty()).then(|| PollFd::new(socket.as_fd(), flags))
        })
    }
}

impl DelayQueue {
    fn may_be_read(&self) -> bool {
        !self.is_read && self.bytes < MOST_BYTES
    }

    fn receive(&mut self, mut from: &TcpStream, one_way_ns: u64, not_before_ns: u64, buffer: &mut [u8]) {
        while self.may_be_read() {
            let bytes = match from.read(buffer) {
                Ok(bytes) => buffer[..bytes].to_vec(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A server that is not connected yet has sent nothing.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return;
                }
                // A reset counts as the end.
                Err(_) => Vec::new(),
            };
            self.is_read = bytes.is_empty();
            self.bytes += bytes.len();
            let due_ns = (monotonic_ns() + one_way_ns).max(not_before_ns);
            self.chunks.push_back(DelayedChunk { due_ns, bytes, sent: 0 });
        }
    }

    fn send(&mut self, mut to: &TcpStream, carried: &Mutex<TrafficCounters>) {
        self.is_blocked = false;
        while let Some(chunk) = self.chunks.front_mut().filter(|chunk| chunk.due_ns <= monotonic_ns()) {
            if chunk.bytes.is_empty() || self.is_written {
                // If the receiver is gone there is nothing to shut down.
                let _ = to.shutdown(Shutdown::Write);
                self.is_written = true;
                self.chunks.clear();
                return;
            }
            match to.write(&chunk.bytes[chunk.sent..]) {
                Ok(sent) => chunk.sent += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.is_blocked = true;
                    return;
                }
                Err(_) => {
                    // Later bytes are discarded.
                    self.is_written = true;
                    self.is_read = true;
                    self.chunks.clear();
                    return;
                }
            }
            if chunk.sent == chunk.bytes.len() {
                let mut counters = lock(carried);
                counters.packets += 1;
                counters.bytes += chunk.bytes.len() as u64;
                counters.late_ns.saturating_record(monotonic_ns().saturating_sub(chunk.due_ns).max(1));
                self.bytes -= chunk.bytes.len();
                self.chunks.pop_front();
            }
        }
    }
}

/// Begins a connection to a local server and does not wait for it.
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
