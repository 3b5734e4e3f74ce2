//! A reader with a buffer of fixed size. Callers borrow bytes from the buffer.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use crate::error::CaptureError;

/// Limits the size of a packet or block. The largest snap length of tcpdump and dumpcap is 256 KiB.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

pub(super) struct Input<R> {
    reader: R,
    /// For errors.
    path: PathBuf,
    buffer: Vec<u8>,
    /// `start..end` was read and is not consumed yet.
    start: usize,
    end: usize,
    /// The position of `start` in the file.
    offset: u64,
    is_truncated: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(path: PathBuf, reader: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { reader, path, buffer, start: 0, end: 0, offset: 0, is_truncated: false }
    }

    /// Returns the next `count` bytes without consuming them, or `None` if the file has fewer. `count` must not exceed
    /// [`BUFFER_BYTES`].
    pub(super) fn peek(&mut self, count: usize) -> Result<Option<&[u8]>, CaptureError> {
        if BUFFER_BYTES - self.start < count {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < count {
            if self.read()? == 0 {
                self.is_truncated |= self.start < self.end;
                return Ok(None);
            }
        }
        Ok(Some(&self.buffer[self.start..self.start + count]))
    }

    /// Consumes bytes that [`peek`](Self::peek) has returned.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let from = self.start;
        self.start += count;
        self.offset += count as u64;
        &self.buffer[from..self.start]
    }

    /// Consumes `count` bytes, which may exceed the buffer. Returns false if the file has fewer.
    pub(super) fn skip(&mut self, count: u64) -> Result<bool, CaptureError> {
        let mut left = count;
        loop {
            let available = (self.end - self.start).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.take(available);
            left -= available as u64;
            if left == 0 {
                return Ok(true);
            }
            (self.start, self.end) = (0, 0);
            if self.read()? == 0 {
                self.is_truncated = true;
                return Ok(false);
            }
        }
    }

    /// Whether the file ended within a packet or block.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub(super) fn damaged(&self, reason: &'static str) -> CaptureError {
        CaptureError::Damaged { path: self.path.clone(), offset: self.offset, reason }
    }

    pub(super) fn not_a_capture(&self, reason: &'static str) -> CaptureError {
        CaptureError::NotACapture { path: self.path.clone(), reason }
    }

    fn read(&mut self) -> Result<usize, CaptureError> {
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(CaptureError::Unreadable { path: self.path.clone(), source }),
            }
        }
    }
}
