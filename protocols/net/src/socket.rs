//! Sockets for a load generator and a sidecar: non-blocking from the start, few system calls per connect, and enough
//! local ports for connection churn.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_vocabulary::AddressFamily;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Domain, Socket, TcpKeepalive, Type};

use crate::Error;

/// How long a blocking call waits for its peer: long enough to build an index on a large table.
pub(crate) const BLOCKING_LIMIT: Duration = Duration::from_mins(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// TCP, to a host that is looked up at each connect, as libpq and libmariadb do. An address needs no lookup.
    Host {
        name: String,
        port: u16,
        /// Which of its addresses may be used; any if absent.
        family: Option<AddressFamily>,
    },
    Unix(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    NonBlocking,
    /// A login must end within this time.
    Blocking(Duration),
}

impl Transport {
    /// A blocking connection to a server that is known to answer.
    pub const BLOCKING: Self = Self::Blocking(BLOCKING_LIMIT);
}

/// Local addresses, used in turn. A closed connection occupies its port in `TIME_WAIT` for a minute; on loopback each
/// address of 127.0.0.0/8 has a port range of its own.
#[derive(Clone, Debug)]
pub struct SourceAddresses {
    next: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Established,
    InProgress,
}

/// Receives once. rustix calls the kernel directly: the C library's functions are cancellation points, which cost more
/// as soon as a program has several threads.
pub(crate) fn receive(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    let (bytes, _) = rustix::net::recv(socket, into, RecvFlags::empty())?;
    Ok(bytes)
}

/// Waits for bytes and leaves them in the socket.
pub(crate) fn peek(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    let (bytes, _) = rustix::net::recv(socket, into, RecvFlags::PEEK)?;
    Ok(bytes)
}

/// Sends once.
pub(crate) fn send(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

impl SourceAddresses {
    /// Addresses per load: 64 port ranges suffice for a minute of churn at 25,000 connects/s.
    pub const COUNT: u32 = 64;

    /// The addresses of one thread; threads share none.
    pub fn lane(lane: u16) -> Self {
        let first = u32::from(Ipv4Addr::new(127, 1, 0, 1)) + u32::from(lane) * Self::COUNT;
        Self { next: first, count: 0 }
    }

    fn take(&mut self) -> Ipv4Addr {
        let address = Ipv4Addr::from(self.next + self.count);
        self.count = (self.count + 1) % Self::COUNT;
        address
    }
}

/// Begins a connect; on a blocking transport, completes it.
pub(crate) fn connect_tcp(
    address: SocketAddr,
    transport: Transport,
    sources: Option<&mut SourceAddresses>,
) -> Result<(Socket, Connection), Error> {
    let kind = match transport {
        Transport::NonBlocking => Type::STREAM.nonblocking(),
        Transport::Blocking(_) => Type::STREAM,
    };
    let socket = Socket::new(Domain::for_address(address), kind.cloexec(), None)
        .map_err(Error::socket("cannot open a socket"))?;
    // SSLRequest and ClientHello are two small writes in a row: Nagle's algorithm would delay the second.
    socket.set_tcp_nodelay(true).map_err(Error::socket("cannot set TCP_NODELAY"))?;
    if let Transport::Blocking(limit) = transport {
        limit_waits(&socket, limit)?;
    }
    if let (IpAddr::V4(ip), Some(sources)) = (address.ip(), sources)
        && ip.is_loopback()
    {
        bind_source(&socket, sources.take())?;
    }
    let connection = match socket.connect(&address.into()) {
        Ok(()) => Connection::Established,
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {
            match transport {
                Transport::NonBlocking => Connection::InProgress,
                // The send timeout also limits connects (socket(7)).
                Transport::Blocking(limit) => return Err(Error::TimedOut { seconds: limit.as_secs() }),
            }
        }
        Err(source) => return Err(Error::Socket { doing: "cannot connect", source }),
    };
    Ok((socket, connection))
}

/// A peer that accepts and then sends nothing must not block a caller for ever.
pub(crate) fn limit_waits(socket: &Socket, limit: Duration) -> Result<(), Error> {
    socket
        .set_read_timeout(Some(limit))
        .and_then(|()| socket.set_write_timeout(Some(limit)))
        .map_err(Error::socket("cannot limit how long the socket waits"))
}

/// Keepalive probes find a peer that has vanished while nothing is sent; the user timeout finds a peer that
/// acknowledges nothing.
pub(crate) fn limit_silence(socket: &Socket, limit: Duration) -> Result<(), Error> {
    probe_when_idle(socket, limit)?;
    socket.set_tcp_user_timeout(Some(limit)).map_err(Error::socket(SILENCE))
}

pub(crate) fn probe_when_idle(socket: &Socket, limit: Duration) -> Result<(), Error> {
    const PROBES: u32 = 2;
    let part = (limit / (PROBES + 1)).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(part).with_interval(part).with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive).map_err(Error::socket(SILENCE))
}

const SILENCE: &str = "cannot limit how long the peer may be silent";

/// Binds the address but leaves the port to `connect()`: only it can choose a port that is in use toward other peers.
fn bind_source(socket: &Socket, source: Ipv4Addr) -> Result<(), Error> {
    nix::sys::socket::setsockopt(&socket.as_fd(), IpBindAddressNoPort, &true).map_err(|errno| {
        Error::Socket { doing: "cannot set IP_BIND_ADDRESS_NO_PORT", source: errno.into() }
    })?;
    let source = SocketAddr::new(IpAddr::V4(source), 0);
    socket.bind(&source.into()).map_err(Error::socket("cannot bind a source address"))
}

/// A unix connect completes at once: the kernel queues it or refuses.
pub(crate) fn connect_unix(path: &Path, transport: Transport) -> Result<(Socket, Connection), Error> {
    let stream = UnixStream::connect(path).map_err(Error::socket("cannot connect"))?;
    let socket = Socket::from(OwnedFd::from(stream));
    match transport {
        Transport::NonBlocking => {
            socket.set_nonblocking(true).map_err(Error::socket("cannot make the socket non-blocking"))?;
        }
        Transport::Blocking(limit) => limit_waits(&socket, limit)?,
    }
    Ok((socket, Connection::Established))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_limit_of_silence_sets_keepalive_and_the_user_timeout() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (socket, _) = connect_tcp(address, Transport::BLOCKING, None).unwrap();
        for (limit, part) in [(Duration::from_secs(15), 5), (Duration::from_millis(500), 1)] {
            limit_silence(&socket, limit).unwrap();
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(part));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(part));
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        }
    }
}
