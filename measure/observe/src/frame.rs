//! Parses a captured frame into a TCP segment.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, LaxIpSlice, LenSource};

const ETHERNET_HEADER_BYTES: usize = 14;
const SLL_HEADER_BYTES: usize = 16;
const SLL2_HEADER_BYTES: usize = 20;
const LOOPBACK_HEADER_BYTES: usize = 4;
const VLAN_TAG_BYTES: usize = 4;
const TCP_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;

const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad, and the older number of stacked tags.
const ETHER_TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Since the epoch.
    pub time_ns: u64,
    pub link_type: LinkType,
    /// Interfaces are numbered from 0 across all sections of a file.
    pub interface: u32,
    /// The direction, if the capture records it outside the data.
    pub direction: Option<PacketDirection>,
    /// The length of the packet on the wire. `data` is shorter if a snap length was set.
    pub wire_bytes: u32,
    pub data: &'a [u8],
}

/// The link-layer header of a frame: <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    Ethernet,
    /// SLL, written by older versions of tcpdump -i any.
    LinuxCooked,
    /// SLL2, written by tcpdump -i any.
    LinuxCookedV2,
    /// No link-layer header: IPv4 or IPv6.
    Ip,
    /// NULL and LOOP: four bytes for the address family.
    BsdLoopback,
    Other(u32),
}

impl LinkType {
    /// `number` is the link type in the capture file.
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Ethernet,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCookedV2,
            // RAW (and its numbers on Linux and OpenBSD), IPv4, IPv6.
            101 | 12 | 14 | 228 | 229 => Self::Ip,
            0 | 108 => Self::BsdLoopback,
            other => Self::Other(other),
        }
    }
}

/// Relative to the capturing machine. On a loopback interface, each packet may be captured in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    Incoming,
    Outgoing,
    /// Between other machines (promiscuous mode).
    OtherHost,
}

/// Why a frame has no TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// A fragment of an IP packet that has TCP.
    Fragment,
    /// Not IP, or not TCP.
    OtherProtocol,
    /// A header is cut by the snap length.
    Truncated,
    /// A header contradicts itself.
    Malformed,
    UnknownLinkType(u32),
}

#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the header")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags {
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    pub psh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Since the epoch.
    pub time_ns: u64,
    /// The interface of the frame. With SLL2, the interface index of the capturing machine.
    pub interface: u32,
    pub direction: Option<PacketDirection>,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub acknowledgement: Option<u32>,
    pub flags: TcpFlags,
    /// Shorter than `payload_bytes` if a snap length was set.
    pub payload: &'a [u8],
    /// The length of the payload on the wire.
    pub payload_bytes: u32,
}

/// The header of the link layer.
struct LinkHeader {
    /// The length of the header without VLAN tags.
    bytes: usize,
    interface: u32,
    direction: Option<PacketDirection>,
    /// `None` if the link type carries only IP.
    ether_type: Option<u16>,
}

/// An IP packet without its headers.
struct IpPayload<'a> {
    addresses: (IpAddr, IpAddr),
    data: &'a [u8],
    /// The length on the wire.
    wire_bytes: usize,
}

pub fn segment<'a>(frame: &Frame<'a>) -> Result<Segment<'a>, Skipped> {
    let link = link_header(frame)?;
    let ip = ip_payload(frame, ip_offset(frame.data, &link)?)?;
    let header: &[u8; TCP_HEADER_BYTES] = ip.data.first_chunk().ok_or(Skipped::Truncated)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < TCP_HEADER_BYTES || header_bytes > ip.wire_bytes {
        return Err(Skipped::Malformed);
    }
    let flags = header[13];
    Ok(Segment {
        time_ns: frame.time_ns,
        interface: link.interface,
        direction: link.direction,
        source: SocketAddr::new(ip.addresses.0, u16::from_be_bytes([header[0], header[1]])),
        destination: SocketAddr::new(ip.addresses.1, u16::from_be_bytes([header[2], header[3]])),
        sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        acknowledgement: (flags & ACK != 0)
            .then(|| u32::from_be_bytes([header[8], header[9], header[10], header[11]])),
        flags: TcpFlags {
            syn: flags & SYN != 0,
            fin: flags & FIN != 0,
            rst: flags & RST != 0,
            psh: flags & PSH != 0,
        },
        // TCP options may be cut by the snap length.
        payload: ip.data.get(header_bytes..).unwrap_or_default(),
        payload_bytes: (ip.wire_bytes - header_bytes) as u32,
    })
}

fn link_header(frame: &Frame<'_>) -> Result<LinkHeader, Skipped> {
    let Frame { data, interface, direction, .. } = *frame;
    let plain = |bytes, ether_type| LinkHeader { bytes, interface, direction, ether_type };
    Ok(match frame.link_type {
        LinkType::Ethernet => plain(ETHERNET_HEADER_BYTES, Some(u16_at(data, 12)?)),
        LinkType::LinuxCooked => LinkHeader {
            direction: packet_direction(u16_at(data, 0)?),
            ..plain(SLL_HEADER_BYTES, Some(u16_at(data, 14)?))
        },
        LinkType::LinuxCookedV2 => LinkHeader {
            direction: packet_direction(u16_at(data, 10)? >> 8),
            interface: u32::from(u16_at(data, 4)?) << 16 | u32::from(u16_at(data, 6)?),
            ..plain(SLL2_HEADER_BYTES, Some(u16_at(data, 0)?))
        },
        LinkType::Ip => plain(0, None),
        LinkType::BsdLoopback => plain(LOOPBACK_HEADER_BYTES, None),
        LinkType::Other(number) => return Err(Skipped::UnknownLinkType(number)),
    })
}

/// Packet types of Linux (`PACKET_HOST` and so on).
fn packet_direction(number: u16) -> Option<PacketDirection> {
    match number {
        // Unicast, broadcast, multicast.
        0..=2 => Some(PacketDirection::Incoming),
        3 => Some(PacketDirection::OtherHost),
        4 => Some(PacketDirection::Outgoing),
        _ => None,
    }
}

/// The offset of the IP header, after any VLAN tags.
fn ip_offset(data: &[u8], link: &LinkHeader) -> Result<usize, Skipped> {
    let Some(mut ether_type) = link.ether_type else { return Ok(link.bytes) };
    let mut offset = link.bytes;
    while ETHER_TYPES_VLAN.contains(&ether_type) {
        ether_type = u16_at(data, offset + 2)?;
        offset += VLAN_TAG_BYTES;
    }
    if [ETHER_TYPE_IPV4, ETHER_TYPE_IPV6].contains(&ether_type) {
        Ok(offset)
    } else {
        Err(Skipped::OtherProtocol)
    }
}

fn ip_payload<'a>(frame: &Frame<'a>, offset: usize) -> Result<IpPayload<'a>, Skipped> {
    use etherparse::err::ip::LaxHeaderSliceError;
    use etherparse::err::ipv6_exts::HeaderSliceError;

    let data = frame.data.get(offset..).ok_or(Skipped::Truncated)?;
    let (packet, stopped) = LaxIpSlice::from_slice(data).map_err(|error| match error {
        LaxHeaderSliceError::Len(_) => Skipped::Truncated,
        LaxHeaderSliceError::Content(_) => Skipped::Malformed,
    })?;
    let payload = packet.payload();
    match stopped {
        Some((HeaderSliceError::Len(_), _)) => return Err(Skipped::Truncated),
        Some((HeaderSliceError::Content(_), _)) => return Err(Skipped::Malformed),
        None if payload.ip_number != IpNumber::TCP => return Err(Skipped::OtherProtocol),
        None if payload.fragmented => return Err(Skipped::Fragment),
        None => {}
    }
    let stated = match &packet {
        LaxIpSlice::Ipv4(ipv4) => ipv4.header().total_len().into(),
        LaxIpSlice::Ipv6(ipv6) => match usize::from(ipv6.header().payload_length()) {
            0 => 0,
            bytes => IPV6_HEADER_BYTES + bytes,
        },
    };
    // The length is 0 for packets over 64 KiB, which segmentation offload merges or splits.
    let total = if stated == 0 { (frame.wire_bytes as usize).saturating_sub(offset) } else { stated };
    // The payload ends where the header says. If the data is shorter, or the length is 0, it ends with the data.
    let end = if payload.len_source == LenSource::Slice { data.len() } else { total };
    let wire_bytes = total.checked_sub(end - payload.payload.len()).ok_or(Skipped::Malformed)?;
    Ok(IpPayload {
        addresses: (packet.source_addr(), packet.destination_addr()),
        data: &payload.payload[..payload.payload.len().min(wire_bytes)],
        wire_bytes,
    })
}

fn u16_at(data: &[u8], at: usize) -> Result<u16, Skipped> {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Skipped::Truncated)?;
    Ok(u16::from_be_bytes(*bytes))
}
