//! What two processes of an upgrade tell each other, and the sockets that the new one inherits.
//!
//! They talk over the new process's standard input, a socket pair: the sockets and their addresses; `ready`; `yours`.
//! Until `yours` the running process owns the sockets and their files, so an upgrade that fails changes nothing.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ciphertoll_net::Listener;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::settings::{ListenAddress, StartError};

/// The new process reads its settings, derives keys and resolves names meanwhile.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// The kernel passes at most 253 descriptors at a time.
pub(crate) const MAX_SOCKETS: usize = 250;
const MAX_LINE_BYTES: u64 = 256 << 10;
const READY: &str = "ready\n";
const YOURS: &str = "yours\n";
/// Of the conversation.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Inventory {
    version: u32,
    /// In the order of the descriptors.
    sockets: Vec<ListenAddress>,
}

/// The sockets of the process that has started this one.
pub struct Inheritance {
    stream: UnixStream,
    sockets: Vec<(ListenAddress, OwnedFd)>,
}

impl Inheritance {
    /// Receives them over the standard input.
    pub fn receive() -> Result<Self, StartError> {
        let nothing = |reason: &dyn std::fmt::Display| StartError::NothingToTakeOver(reason.to_string());
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| nothing(&error))?;
        let peer = getsockopt(&stdin, PeerCredentials).map_err(|error| nothing(&error))?;
        if peer.uid() != geteuid().as_raw() {
            return Err(nothing(&"the standard input is a connection of another user"));
        }
        let stream = UnixStream::from(stdin);
        let (inventory, descriptors) = receive(&stream).map_err(StartError::NotHandedOver)?;
        if inventory.version != VERSION || inventory.sockets.len() != descriptors.len() {
            let error = io::Error::other("its version differs: restart the proxy instead");
            return Err(StartError::NotHandedOver(error));
        }
        Ok(Self { stream, sockets: inventory.sockets.into_iter().zip(descriptors).collect() })
    }

    /// The socket that listens on this address, if it was inherited.
    pub fn take(&mut self, address: &ListenAddress) -> Option<OwnedFd> {
        let at = self.sockets.iter().position(|(own, _)| own == address)?;
        Some(self.sockets.remove(at).1)
    }

    /// Tells the other process that this one is ready. The sockets and their files are this process's if it returns
    /// `Ok`. Sockets that the new settings do not have are closed, and their files removed.
    pub fn confirm(mut self) -> Result<(), StartError> {
        let mut confirm = || {
            self.stream.set_read_timeout(Some(START_TIMEOUT))?;
            self.stream.write_all(READY.as_bytes())?;
            expect(&self.stream, YOURS)
        };
        confirm().map_err(StartError::NotHandedOver)?;
        for (address, socket) in self.sockets {
            if let ListenAddress::Unix(path) = address
                && let Ok(mut listener) = Listener::inherited_unix(socket, &path)
            {
                listener.own_file(&path);
            }
        }
        Ok(())
    }
}

/// The running process's side: sends the sockets, and waits until the new process is ready.
pub(crate) fn send(mut stream: &UnixStream, sockets: &[(ListenAddress, OwnedFd)]) -> io::Result<()> {
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.set_write_timeout(Some(START_TIMEOUT))?;
    let addresses = sockets.iter().map(|(address, _)| address.clone()).collect();
    let mut line = serde_json::to_vec(&Inventory { version: VERSION, sockets: addresses })?;
    line.push(b'\n');
    let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many listening sockets"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(&line[sent..])
}

pub(crate) fn await_ready(stream: &UnixStream) -> io::Result<()> {
    expect(stream, READY)
}

pub(crate) fn say_yours(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(YOURS.as_bytes())
}

fn receive(stream: &UnixStream) -> io::Result<(Inventory, Vec<OwnedFd>)> {
    let (mut bytes, mut first) = (Vec::new(), [0; 4096]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(stream, &mut [IoSliceMut::new(&mut first)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    bytes.extend_from_slice(&first[..received.bytes]);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if !bytes.ends_with(b"\n") {
        BufReader::new(stream.take(MAX_LINE_BYTES)).read_until(b'\n', &mut bytes)?;
    }
    Ok((serde_json::from_slice(&bytes)?, descriptors))
}

fn expect(mut stream: &UnixStream, word: &str) -> io::Result<()> {
    let mut bytes = vec![0; word.len()];
    stream.read_exact(&mut bytes)?;
    if bytes == word.as_bytes() { Ok(()) } else { Err(io::Error::other("an unexpected message")) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;

    #[test]
    fn sockets_arrive_with_their_addresses() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = listener.local_addr().unwrap();
        send(&ours, &[(ListenAddress::Tcp(bound), listener.into())]).unwrap();
        let (inventory, mut descriptors) = receive(&theirs).unwrap();
        assert_eq!(inventory.sockets, [ListenAddress::Tcp(bound)]);
        let inherited = Listener::inherited_tcp(descriptors.remove(0), bound).unwrap();
        assert_eq!(inherited.address(), Some(bound));
    }

    #[test]
    fn a_socket_of_another_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = ([127, 0, 0, 1], 1).into();
        assert!(Listener::inherited_tcp(listener.into(), other).is_err());
        let (connected, _peer) = UnixStream::pair().unwrap();
        assert!(Listener::inherited_unix(connected.into(), Path::new("/x")).is_err());
    }

    #[test]
    fn other_words_are_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"{\"version\":1}\n").unwrap();
        assert!(receive(&theirs).is_err());
        (&ours).write_all(b"hello\n").unwrap();
        assert!(await_ready(&theirs).is_err());
        drop(ours);
        assert!(await_ready(&theirs).is_err());
    }
}
