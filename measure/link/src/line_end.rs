//! The interfaces of the delay line.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::packet::{PacketRing, PacketSocket, ReceivedFrame};
use crate::tunnel::{TunDevice, TunReader};

pub(crate) enum LineEnd {
    /// An interface, through a raw socket.
    Packets(PacketSocket),
    Tun(TunDevice),
}

/// The receiving side of an end.
pub(crate) enum FrameSource {
    Ring(PacketRing),
    Tun(TunReader),
}

impl LineEnd {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Packets(socket) => Self::Packets(socket.try_clone()?),
            Self::Tun(device) => Self::Tun(device.try_clone()?),
        })
    }

    /// Sends a frame that a source of the same kind returned.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        match self {
            Self::Packets(socket) => socket.send(frame),
            Self::Tun(device) => device.send(frame),
        }
    }
}

impl FrameSource {
    pub(crate) fn open(end: LineEnd) -> io::Result<Self> {
        Ok(match end {
            LineEnd::Packets(socket) => Self::Ring(PacketRing::map(socket)?),
            LineEnd::Tun(device) => Self::Tun(TunReader::of(device)),
        })
    }

    /// Appends the next frame to `into`, if there is one.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Option<ReceivedFrame> {
        match self {
            Self::Ring(ring) => ring.take(into),
            Self::Tun(reader) => reader.take(into),
        }
    }

    /// Frames that the ring had no room for since the last call; 0 if this end does not count them.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        match self {
            Self::Ring(ring) => ring.take_dropped(),
            Self::Tun(_) => 0,
        }
    }
}

impl AsFd for FrameSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => ring.as_fd(),
            Self::Tun(reader) => reader.as_fd(),
        }
    }
}
