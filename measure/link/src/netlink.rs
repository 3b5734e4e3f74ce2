//! The part of rtnetlink that makes and configures interfaces. The program `ip` is no alternative: a new program loses
//! the capabilities that the user namespace gave us.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h, linux/if.h
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 0x1;
const IFF_NOARP: u32 = 0x80;
const AF_INET: u8 = 2;

/// The first interface of every network namespace.
const LOOPBACK: u32 = 1;
const HEADER_BYTES: usize = 16;
/// Requests and attributes are padded to this.
const ALIGNMENT: usize = 4;

/// A route netlink socket of the namespace that it was opened in.
pub struct Netlink(OwnedFd);

/// The other interface of a veth pair.
#[derive(Clone, Copy)]
pub struct VethPeer<'a> {
    pub name: &'a str,
    /// The namespace that it is created in; the current one if absent.
    pub namespace: Option<BorrowedFd<'a>>,
    /// Its hardware address; chosen by the kernel if absent.
    pub hardware_address: Option<[u8; 6]>,
}

/// Whether an interface resolves hardware addresses by ARP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ArpMode {
    /// Yes, which costs a round trip.
    On,
    /// No: every neighbour has the interface's own address.
    Off,
}

impl Netlink {
    /// The kernel's default (`GSO_MAX_SEGS`).
    pub const MOST_SEGMENTS: u32 = 65_535;

    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?))
    }

    pub fn loopback_up(&self) -> io::Result<()> {
        self.ask(RTM_NEWLINK, 0, &interface(LOOPBACK, IFF_UP))
    }

    pub fn add_veth(&self, name: &str, peer: VethPeer<'_>) -> io::Result<()> {
        let mut end = interface(0, 0);
        end.extend(attribute(IFLA_IFNAME, &text(peer.name)));
        if let Some(namespace) = peer.namespace {
            end.extend(attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes()));
        }
        if let Some(address) = peer.hardware_address {
            end.extend(attribute(IFLA_ADDRESS, &address));
        }
        self.add(name, "veth", &attribute(VETH_INFO_PEER, &end))
    }

    /// Makes an interface of a kind that takes no parameters.
    pub fn add_plain(&self, name: &str, kind: &str) -> io::Result<()> {
        self.add(name, kind, &[])
    }

    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.ask(RTM_DELLINK, 0, &interface(if_nametoindex(name)?, 0))
    }

    /// Brings an interface up with this MTU and transmit queue length.
    pub fn set_up(&self, name: &str, mtu_bytes: u32, queue: u32, neighbours: ArpMode) -> io::Result<()> {
        let flags = match neighbours {
            ArpMode::On => IFF_UP,
            ArpMode::Off => IFF_UP | IFF_NOARP,
        };
        let mtu = attribute(IFLA_MTU, &mtu_bytes.to_ne_bytes());
        self.change(name, flags, &[mtu, attribute(IFLA_TXQLEN, &queue.to_ne_bytes())].concat())
    }

    /// Sets how many segments the kernel may hand to an interface in one piece.
    pub fn set_most_segments(&self, name: &str, most: u32) -> io::Result<()> {
        self.change(name, 0, &attribute(IFLA_GSO_MAX_SEGS, &most.to_ne_bytes()))
    }

    fn change(&self, name: &str, flags: u32, attributes: &[u8]) -> io::Result<()> {
        self.ask(RTM_NEWLINK, 0, &[&interface(if_nametoindex(name)?, flags), attributes].concat())
    }

    pub fn add_address(&self, name: &str, address: Ipv4Addr, prefix_bits: u8) -> io::Result<()> {
        // `struct ifaddrmsg`: family, prefix, flags, scope, interface.
        let mut body = vec![AF_INET, prefix_bits, 0, 0];
        body.extend(if_nametoindex(name)?.to_ne_bytes());
        for kind in [IFA_LOCAL, IFA_ADDRESS] {
            body.extend(attribute(kind, &address.octets()));
        }
        self.ask(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    fn add(&self, name: &str, kind: &str, data: &[u8]) -> io::Result<()> {
        let mut information = attribute(IFLA_INFO_KIND, &text(kind));
        if !data.is_empty() {
            information.extend(attribute(IFLA_INFO_DATA, data));
        }
        let mut body = interface(0, 0);
        body.extend(attribute(IFLA_IFNAME, &text(name)));
        body.extend(attribute(IFLA_LINKINFO, &information));
        self.ask(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// Sends a request and checks the kernel's acknowledgement.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        const LONGEST_ANSWER: usize = 8192;
        send(self.0.as_raw_fd(), &request(kind, flags, body), MsgFlags::empty())?;
        let mut answer = [0; LONGEST_ANSWER];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        check_acknowledgement(&answer[..length])
    }
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Sequence number and sender: one request at a time needs neither.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// `struct ifinfomsg`.
fn interface(index: u32, flags: u32) -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend(index.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // The mask of flags to change.
    message.extend(flags.to_ne_bytes());
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const HEADER: usize = 4;
    let length = HEADER + value.len();
    let mut bytes = (length as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(ALIGNMENT), 0);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// An acknowledgement has 0 or a negative errno.
fn check_acknowledgement(answer: &[u8]) -> io::Result<()> {
    let unexpected = || io::Error::other("unexpected netlink reply from the kernel");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw(code.wrapping_neg()).into()),
        _ => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_state_their_own_length() {
        let bytes = attribute(IFLA_IFNAME, &text("veth0"));
        assert_eq!(bytes.len(), 12);
        assert_eq!(u16::from_ne_bytes([bytes[0], bytes[1]]), 10);
        assert_eq!(&bytes[4..10], b"veth0\0");
        assert_eq!(request(RTM_NEWLINK, 0, &interface(LOOPBACK, IFF_UP)).len(), 32);
    }

    #[test]
    fn acknowledgements_errors_and_malformed_replies() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; 4];
            bytes.extend(kind.to_ne_bytes());
            bytes.resize(HEADER_BYTES, 0);
            bytes.extend(code.to_ne_bytes());
            bytes
        };
        assert!(check_acknowledgement(&answer(NLMSG_ERROR, 0)).is_ok());
        let error = check_acknowledgement(&answer(NLMSG_ERROR, -1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        for nonsense in [answer(RTM_NEWLINK, 0), Vec::new(), vec![0; 17]] {
            assert!(check_acknowledgement(&nonsense).is_err());
        }
    }
}
