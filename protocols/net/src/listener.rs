//! Listening sockets, and the identity of the peers that connect.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::{Mode, fchmod};
use rustix::net::SocketFlags;
use socket2::{Domain, SockAddr, SockRef, Type};

use crate::{Channel, Error};

const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A non-blocking listener. The file of a unix socket is removed when it is dropped.
pub struct Listener {
    inner: Inner,
    file: Option<PathBuf>,
}

enum Inner {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A local process, connected by unix socket.
    Process {
        /// The kernel-verified user ID.
        uid: u32,
        /// The process ID at the time of the connect.
        pid: i32,
    },
    Address(SocketAddr),
}

impl Listener {
    /// Listens on a unix socket whose file gets the permissions `mode`. Replaces the socket of a listener that no
    /// longer runs, and no other file.
    pub fn unix(path: &Path, mode: u32) -> Result<Self, Error> {
        remove_dead(path)?;
        let listener = bind_unix(path, mode).map_err(Error::socket("cannot listen on the unix socket"))?;
        Ok(Self { inner: Inner::Unix(listener), file: Some(path.to_owned()) })
    }

    /// Listens on an address; port 0 for any free port.
    pub fn tcp(address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).map_err(Error::socket("cannot listen on the address"))?;
        // Accepted sockets inherit it, which saves a system call for each.
        SockRef::from(&listener).set_tcp_nodelay(true).map_err(Error::socket("cannot set TCP_NODELAY"))?;
        Ok(Self { inner: Inner::Tcp(listener), file: None })
    }

    /// A unix socket that another process has opened at this path, and whose file this handle does not remove.
    pub fn inherited_unix(socket: OwnedFd, path: &Path) -> Result<Self, Error> {
        check_inherited(&socket, |address| address.as_pathname() == Some(path))?;
        Ok(Self { inner: Inner::Unix(UnixListener::from_std(socket.into())), file: None })
    }

    /// A TCP socket that another process has opened for this address; port 0 for any port.
    pub fn inherited_tcp(socket: OwnedFd, address: SocketAddr) -> Result<Self, Error> {
        let is_asked_for = |own: SocketAddr| {
            own.ip() == address.ip() && (own.port() == address.port() || address.port() == 0)
        };
        check_inherited(&socket, |own| own.as_socket().is_some_and(is_asked_for))?;
        Ok(Self { inner: Inner::Tcp(TcpListener::from_std(socket.into())), file: None })
    }

    /// From now on the file of this unix socket is removed when the listener is dropped.
    pub fn own_file(&mut self, path: &Path) {
        self.file = Some(path.to_owned());
    }

    /// The file of a unix socket stays when the listener is dropped: another process has the socket.
    pub fn leave_file(&mut self) {
        self.file = None;
    }

    /// The local address; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.inner {
            Inner::Tcp(listener) => listener.local_addr().ok(),
            Inner::Unix(_) => None,
        }
    }

    /// Another handle of the same socket, for another thread. The original one removes the file of a unix socket.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let error = Error::socket("cannot share a listener");
        // mio's listener cannot be cloned.
        let descriptor = self.descriptor().try_clone_to_owned().map_err(error)?;
        let inner = match &self.inner {
            Inner::Tcp(_) => Inner::Tcp(TcpListener::from_std(descriptor.into())),
            Inner::Unix(_) => Inner::Unix(UnixListener::from_std(descriptor.into())),
        };
        Ok(Self { inner, file: None })
    }

    /// Accepts the next connection; `None` if there is none. If the machine is out of file descriptors
    /// ([`Error::fault`]), the connections stay queued, and no further edge announces them.
    pub fn accept(&mut self) -> Result<Option<(Channel, Peer)>, Error> {
        loop {
            let accepted = match &mut self.inner {
                Inner::Tcp(listener) => {
                    listener.accept().map(|(stream, address)| (OwnedFd::from(stream), Some(address)))
                }
                // The peer has no address.
                Inner::Unix(listener) => {
                    let accepted = rustix::net::accept_with(&*listener, ACCEPTED);
                    accepted.map(|socket| (socket, None)).map_err(io::Error::from)
                }
            };
            match accepted {
                Ok((socket, address)) => {
                    let peer = address.map_or_else(|| peer_process(&socket), |at| Ok(Peer::Address(at)))?;
                    return Ok(Some((Channel::over(socket.into()), peer)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The client has gone again, or a signal arrived.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(source) => return Err(Error::Socket { doing: "cannot accept", source }),
            }
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.inner {
            Inner::Tcp(listener) => listener.as_fd(),
            Inner::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // The next listener replaces a file that remains.
            let _ = fs::remove_file(file);
        }
    }
}

/// An inherited socket must listen, and on the address that it is said to have.
fn check_inherited(socket: &OwnedFd, is_address: impl FnOnce(&SockAddr) -> bool) -> Result<(), Error> {
    let reference = SockRef::from(socket);
    let unusable = |source| Error::Socket { doing: "cannot use an inherited socket", source };
    let address = reference.local_addr().map_err(unusable)?;
    if !reference.is_listener().map_err(unusable)? || !is_address(&address) {
        let reason = "it does not listen on the configured address";
        return Err(unusable(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
    reference.set_nonblocking(true).map_err(unusable)
}

fn peer_process(socket: &OwnedFd) -> Result<Peer, Error> {
    let credentials = nix::sys::socket::getsockopt(socket, PeerCredentials).map_err(|errno| {
        Error::Socket { doing: "cannot read the peer's credentials", source: errno.into() }
    })?;
    Ok(Peer::Process { uid: credentials.uid(), pid: credentials.pid() })
}

/// Removes the socket file of a listener that no longer runs.
fn remove_dead(path: &Path) -> Result<(), Error> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let taken = |reason: &str| Error::Socket {
        doing: "cannot listen on the unix socket",
        source: io::Error::new(io::ErrorKind::AddrInUse, reason.to_owned()),
    };
    if !found.file_type().is_socket() {
        return Err(taken("a file of that name exists and is not a socket"));
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(taken("another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(Error::socket("cannot remove the socket of a dead listener"))
        }
        Err(source) => Err(Error::Socket { doing: "cannot check who listens on the unix socket", source }),
    }
}

/// The socket file never has wider permissions, not even for a moment: it is created with those of the socket
/// (unix(7)), less the umask, which is left alone because it is process-wide.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // The kernel caps it at its limit.
    const BACKLOG: i32 = 4096;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    fchmod(&socket, Mode::from_bits_truncate(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(UnixListener::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_unix_listener_knows_its_peers_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let open = Listener::unix(&path, 0o666).unwrap();
        assert_eq!(mode(), 0o666);
        drop(open);
        let mut listener = Listener::unix(&path, 0o600).unwrap();
        assert_eq!(mode(), 0o600);
        assert!(listener.accept().unwrap().is_none());
        let mut client = StdUnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        let (mut channel, peer) = listener.accept().unwrap().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        assert!(matches!(peer, Peer::Process { uid: found, .. } if found == uid), "{peer:?}");
        channel.receive_input().unwrap();
        assert_eq!(channel.input(), b"hello");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn only_the_socket_of_a_dead_listener_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let living = Listener::unix(&path, 0o600).unwrap();
        assert!(Listener::unix(&path, 0o600).is_err());
        drop(living);
        // The standard library's listener does not remove its file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path, 0o600).unwrap());
        fs::write(&path, "not a socket").unwrap();
        assert!(Listener::unix(&path, 0o600).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"not a socket");
    }
}
