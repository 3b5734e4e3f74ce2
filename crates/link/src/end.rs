//! What the line takes from and gives to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::packet::{PacketSocket, Ring, Taken};
use crate::tunnel::{Tap, Tunnel};

/// One side of the line.
pub(crate) enum End {
    /// An interface, seen through a raw socket.
    Packets(PacketSocket),
    /// A device of our own.
    Tunnel(Tunnel),
}

/// An end that is taken from.
pub(crate) enum Source {
    Ring(Ring),
    Tap(Tap),
}

/// An end that is given to.
pub(crate) struct Sink(End);

impl End {
    /// A second handle.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Packets(socket) => Self::Packets(socket.try_clone()?),
            Self::Tunnel(tunnel) => Self::Tunnel(tunnel.try_clone()?),
        })
    }
}

impl Source {
    pub(crate) fn of(end: End) -> io::Result<Self> {
        Ok(match end {
            End::Packets(socket) => Self::Ring(Ring::of(socket)?),
            End::Tunnel(tunnel) => Self::Tap(Tap::of(tunnel)),
        })
    }

    /// Copies what came next behind what is in `into`; none where nothing came.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>) -> Option<Taken> {
        match self {
            Self::Ring(ring) => ring.take(into),
            Self::Tap(tap) => tap.take(into),
        }
    }
}

impl Source {
    /// What came and found no room since the last time, where that is known at this end.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        match self {
            Self::Ring(ring) => ring.take_dropped(),
            Self::Tap(_) => 0,
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ring(ring) => ring.as_fd(),
            Self::Tap(tap) => tap.as_fd(),
        }
    }
}

impl Sink {
    pub(crate) fn of(end: End) -> Self {
        Self(end)
    }

    /// Sends what a source of the same kind gave.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.0 {
            End::Packets(socket) => socket.send(bytes),
            End::Tunnel(tunnel) => tunnel.send(bytes),
        }
    }
}
