//! Rows of `/proc/PID/net/tcp` and `tcp6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientSocket {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// Of the socket; unique on the machine while it is open.
    pub(crate) inode: u64,
}

/// The state of a socket that waits for connections.
const LISTEN: u8 = 0x0a;

/// The socket in a row, if its remote port is that of a server and a process may have it. Kernel sockets without a process,
/// such as those in `TIME_WAIT`, have no inode.
pub(crate) fn client_socket(row: &str, is_server_port: impl Fn(u16) -> bool) -> Option<ClientSocket> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let (local, remote) = (fields.next()?, fields.next()?);
    let (_, port) = remote.rsplit_once(':')?;
    if !is_server_port(u16::from_str_radix(port, 16).ok()?) {
        return None;
    }
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    // Queues, timers, user and timeout.
    let inode = fields.nth(5)?.parse().ok().filter(|inode| *inode != 0)?;
    let socket = ClientSocket { client: address(local)?, server: address(remote)?, inode };
    (state != LISTEN).then_some(socket)
}

/// `0100007F:1538`: each 32 bits of the address are a number in the byte order of the machine.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.rsplit_once(':')?;
    let word = |text: Option<&str>| Some(u32::from_str_radix(text?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(ip.get(..8))?)),
        32 => {
            let mut octets = [0; 16];
            for (place, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(ip.get(place * 8..place * 8 + 8))?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    fn socket(row: &str) -> Option<(String, String, u64)> {
        let found = client_socket(row, |port| port == 5432)?;
        Some((found.client.to_string(), found.server.to_string(), found.inode))
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_of_the_kernel_are_read() {
        let row = "   3: 0700000A:9C40 0500000A:1538 01 00000000:00000000 02:000A7214 00000000  1000        0 123456 2 ffff 20 4 30 10 -1";
        assert_eq!(socket(row), Some(("10.0.0.7:40000".into(), "10.0.0.5:5432".into(), 123_456)));
        let row6 = "   0: B80D0120000000000000000001000000:9C40 B80D0120000000000000000002000000:1538 01 0:0 0:0 0 33 0 99 1";
        assert_eq!(socket(row6), Some(("[2001:db8::1]:40000".into(), "[2001:db8::2]:5432".into(), 99)));
        let mapped = "   1: 0000000000000000FFFF00000100007F:9C41 0000000000000000FFFF00000100007F:1538 08 0:0 0:0 0 33 0 98 1";
        assert_eq!(socket(mapped), Some(("127.0.0.1:40001".into(), "127.0.0.1:5432".into(), 98)));
    }

    #[test]
    fn rows_of_others_are_left_out() {
        for (what, row) in [
            ("the header", HEADER),
            ("nothing", ""),
            ("a listener", "0: 0100007F:1538 00000000:0000 0A 0:0 0:0 0 0 0 5 1"),
            ("a listener with such a peer", "0: 0100007F:9C40 0100007F:1538 0A 0:0 0:0 0 0 0 5 1"),
            ("the server's end", "0: 0100007F:1538 0100007F:9C40 01 0:0 0:0 0 0 0 5 1"),
            ("TIME_WAIT", "0: 0100007F:9C40 0100007F:1538 06 0:0 3:0 0 0 0 0 3 1"),
            ("a row that ends", "0: 0100007F:9C40 0100007F:1538 01 0:0 0:0 0 0 0"),
            ("a number that is too large", "0: 0100007F:9C40 0100007F:11538 01 0:0 0:0 0 0 0 5 1"),
            ("an address that is too short", "0: 00007F:9C40 0100007F:1538 01 0:0 0:0 0 0 0 5 1"),
            ("no address", "0: ÄÄÄÄ:9C40 0100007F:1538 01 0:0 0:0 0 0 0 5 1"),
            ("an inode that is none", "0: 0100007F:9C40 0100007F:1538 01 0:0 0:0 0 0 0 -5 1"),
        ] {
            assert_eq!(socket(row), None, "{what}");
        }
    }
}
