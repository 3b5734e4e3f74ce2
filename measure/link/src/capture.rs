//! TCP segments that pass this machine's interfaces, to observe them.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::blocks::BlockRing;
use crate::filter::port_filter;
use crate::packet::PacketSocket;

/// The most ports: jumps of the filter are at most 255 instructions long.
pub const MOST_PORTS: usize = 50;

/// Receives the packets of servers' ports. Needs the right `CAP_NET_RAW` to open, and none afterwards.
pub struct LiveCapture(BlockRing);

/// A packet that begins with the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePacket<'a> {
    /// Shorter than it was on the wire if it ended with data that TLS has encrypted.
    pub data: &'a [u8],
    /// Since the epoch.
    pub time_ns: u64,
    pub interface: u32,
    /// The length on the wire.
    pub wire_bytes: u32,
}

impl LiveCapture {
    /// Begins to receive TCP packets of these ports, on an interface or on all. The kernel drops all others, and keeps to
    /// itself what TLS has encrypted where a packet contains nothing else.
    pub fn open(interface: Option<&str>, ports: &[u16]) -> io::Result<Self> {
        if ports.len() > MOST_PORTS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 50 ports"));
        }
        let ring = BlockRing::map(PacketSocket::with_filter(&port_filter(ports))?)?;
        ring.bind(interface)?;
        Ok(Self(ring))
    }

    /// The next packet that has been handed over, at most [`HAND_OVER`](crate::HAND_OVER) after it arrived. On a loopback
    /// interface, which shows each twice, once.
    pub fn take(&mut self) -> Option<LivePacket<'_>> {
        let packet = self.0.take()?;
        Some(LivePacket {
            data: packet.data,
            time_ns: packet.came_unix_ns,
            interface: packet.interface,
            wire_bytes: packet.wire_bytes,
        })
    }

    /// Waits for a packet, for so long at most. A signal ends it early.
    pub fn wait(&self, most: Duration) -> io::Result<()> {
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Packets that the kernel dropped since the last call, because they were not taken in time. It is asked each time.
    pub fn take_dropped(&mut self) -> u64 {
        self.0.ask_dropped();
        self.0.take_dropped()
    }
}
