//! Writes packets.

use ciphertoll_observe::{Frame, LinkType};

pub(crate) const TCP: u8 = 6;
pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 0x10;

/// A TCP header from port 40000 to port 5432 with sequence number 1000 and acknowledgement 2000, then the payload.
pub(crate) fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (20 + options.len()) / 4;
    let mut bytes = Vec::new();
    bytes.extend(40_000_u16.to_be_bytes());
    bytes.extend(5432_u16.to_be_bytes());
    bytes.extend(1000_u32.to_be_bytes());
    bytes.extend(2000_u32.to_be_bytes());
    bytes.extend([(words as u8) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// From 10.0.0.1 to 10.0.0.2.
pub(crate) fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut bytes = vec![0x40 | (header / 4) as u8, 0];
    bytes.extend(((header + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// From `fd00::1` to `fd00::2`. The payload begins with extension headers, if any.
pub(crate) fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    for last in [1, 2] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    bytes.extend(payload);
    bytes
}

pub(crate) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[0; 12], &ether_type.to_be_bytes()[..], payload].concat()
}

pub(crate) fn frame(link_type: u32, data: &[u8]) -> Frame<'_> {
    Frame {
        time_ns: 7,
        link_type: LinkType::from_number(link_type),
        interface: 3,
        direction: None,
        wire_bytes: data.len() as u32,
        data,
    }
}
