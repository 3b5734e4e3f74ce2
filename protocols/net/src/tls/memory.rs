//! The memory buffers that a TLS library uses in place of a socket. One `recv` takes a whole record with its header.

use std::io::{self, Read, Write};

use socket2::Socket;

use super::handshake_size::HandshakeMeter;
use super::session::Filled;
use crate::buffer::Buffer;
use crate::socket;

#[derive(Default)]
pub(super) struct MemoryBuffers {
    pub(super) incoming: Buffer,
    pub(super) outgoing: Vec<u8>,
    /// Of what the library has read and written here.
    pub(super) meter: HandshakeMeter,
}

impl MemoryBuffers {
    /// Reads once from `socket`; also returns the new bytes.
    pub(super) fn fill(&mut self, socket: &Socket) -> io::Result<(Filled, &[u8])> {
        let space = self.incoming.space();
        let room = space.len();
        let bytes = socket::receive(socket, space)?;
        self.incoming.filled(bytes);
        let unread = self.incoming.unread();
        Ok((Filled { bytes, room }, &unread[unread.len() - bytes..]))
    }
}

impl Read for MemoryBuffers {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = self.incoming.read(into)?;
        self.meter.read(bytes);
        Ok(bytes)
    }
}

impl Write for MemoryBuffers {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(from);
        self.meter.written(from, self.incoming.unread().len());
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
