//! The memory buffers that a TLS library uses in place of a socket. One `recv` takes a whole record with its header.

use std::io::{self, Read, Write};

use socket2::Socket;

use super::session::Filled;
use crate::buffer::Buffer;

#[derive(Default)]
pub(super) struct MemoryBuffers {
    pub(super) incoming: Buffer,
    pub(super) outgoing: Vec<u8>,
}

impl MemoryBuffers {
    /// Reads once from `socket`; also returns the new bytes.
    pub(super) fn fill(&mut self, socket: &mut Socket) -> io::Result<(Filled, &[u8])> {
        let space = self.incoming.space();
        let room = space.len();
        let bytes = socket.read(space)?;
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
        self.incoming.read(into)
    }
}

impl Write for MemoryBuffers {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
