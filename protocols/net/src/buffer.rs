//! Received bytes that were not parsed yet.

use std::io::{self, Read};

/// Two ordinary TCP segments on loopback, or one whole TLS record with its overhead.
const INITIAL_BYTES: usize = 18 * 1024;

/// A growing buffer that is read from the front and filled at the back.
#[derive(Default)]
pub(crate) struct Buffer {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn unread(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.storage.is_empty()
    }

    /// Moves the unread bytes to a buffer of their size. Returns the previous one, empty.
    pub(crate) fn shrink(&mut self) -> Self {
        let storage = self.unread().to_vec();
        let shrunk = Self { start: 0, end: storage.len(), storage };
        let previous = std::mem::replace(self, shrunk);
        Self { storage: previous.storage, start: 0, end: 0 }
    }

    /// Whether it was not shrunk.
    pub(crate) fn is_full_size(&self) -> bool {
        self.storage.len() >= INITIAL_BYTES
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end, "consumed more than was received");
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Free space behind the unread bytes; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.end == self.storage.len() {
            self.make_space();
        }
        &mut self.storage[self.end..]
    }

    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        debug_assert!(self.end <= self.storage.len(), "filled more than the free space");
    }

    /// Appends `bytes` to the unread ones.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let (now, rest) = bytes.split_at(bytes.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            self.filled(now.len());
            bytes = rest;
        }
    }

    /// Moves the unread bytes to the front and, if that frees little, doubles the storage.
    fn make_space(&mut self) {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.storage.len() - self.end < INITIAL_BYTES / 2 {
            let grown = (self.storage.len() * 2).max(INITIAL_BYTES);
            self.storage.resize(grown, 0);
        }
    }
}

impl Read for Buffer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.unread()[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrunk_buffer_keeps_its_bytes_and_grows_again() {
        let mut buffer = Buffer::default();
        buffer.append(b"done, waiting");
        buffer.consume(6);
        let previous = buffer.shrink();
        assert!(previous.is_empty() && previous.is_full_size());
        assert_eq!((buffer.unread(), buffer.storage.len()), (&b"waiting"[..], 7));
        buffer.append(&vec![b'+'; 2 * INITIAL_BYTES]);
        assert!(buffer.unread().starts_with(b"waiting++") && buffer.is_full_size());
        assert_eq!(buffer.unread().len(), 7 + 2 * INITIAL_BYTES);
    }

    #[test]
    fn keeps_order_across_growth() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        for round in 0..5_000_u32 {
            let bytes = round.to_le_bytes();
            let mut left = &bytes[..];
            while !left.is_empty() {
                let space = buffer.space();
                let count = space.len().min(left.len());
                space[..count].copy_from_slice(&left[..count]);
                buffer.filled(count);
                left = &left[count..];
            }
            expected.extend_from_slice(&bytes);
            if round % 3 == 0 {
                let mut two = [0; 2];
                assert_eq!(buffer.read(&mut two).unwrap(), 2);
                assert_eq!(two, expected[..2]);
                expected.drain(..2);
            }
        }
        assert_eq!(buffer.unread(), expected);
    }
}
