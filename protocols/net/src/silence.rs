//! Whether a peer's machine still acknowledges what it is sent.
//!
//! `TCP_USER_TIMEOUT` does not show it: it also ends connections to a peer that acknowledges all it has received, but does not
//! read (tcp(7)), such as a server that waits for a lock within a `COPY`.

use std::os::fd::AsRawFd;

use socket2::Socket;

/// Offsets in `struct tcp_info` (`linux/tcp.h`), which only grows at its end.
const RETRANSMITS_AT: usize = 2;
const PROBES_AT: usize = 3;
const UNACKED_AT: usize = 24;
const BYTES: usize = UNACKED_AT + size_of::<u32>();
/// A single probe may be on its way.
const UNANSWERED_PROBES: u8 = 2;

/// Whether the kernel has sent data again, or has probed a peer without room, and nothing was acknowledged since. False for
/// other sockets than those of TCP.
pub(crate) fn is_unanswered(socket: &Socket) -> bool {
    read_info(socket).is_some_and(|info| {
        let unacked = info[UNACKED_AT..].iter().any(|byte| *byte != 0);
        unacked && info[RETRANSMITS_AT] > 0 || info[PROBES_AT] >= UNANSWERED_PROBES
    })
}

fn read_info(socket: &Socket) -> Option<[u8; BYTES]> {
    let mut info = [0_u8; BYTES];
    let mut bytes = BYTES as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the kernel writes at most `bytes` bytes, all of
    // which `info` has, and their number to `bytes`.
    #[expect(unsafe_code, reason = "no safe library reads TCP_INFO")]
    let result = unsafe {
        let (info, bytes) = (info.as_mut_ptr().cast(), &raw mut bytes);
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, bytes)
    };
    (result == 0 && bytes as usize == BYTES).then_some(info)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peer_that_does_not_read_acknowledges() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 1 << 12]).is_ok() {}
        let socket = Socket::from(client.try_clone().unwrap());
        // Its window has no room, and its machine answers each probe.
        let probed = |socket: &Socket| read_info(socket).unwrap()[PROBES_AT];
        assert!(!is_unanswered(&socket) && probed(&socket) < UNANSWERED_PROBES);
        peer.read_exact(&mut [0; 100]).unwrap();
        let (unix, _other) = UnixStream::pair().unwrap();
        assert!(!is_unanswered(&Socket::from(std::os::fd::OwnedFd::from(unix))));
    }
}
