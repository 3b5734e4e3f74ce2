//! Storage of ciphertext.

use crate::error::Errno;

/// A file of ciphertext. It has the same size as the plaintext.
pub trait Storage {
    /// Reads fewer bytes than requested only at the end of the file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Writes fewer bytes than given only if the disk is full.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno>;
    fn size(&self) -> Result<u64, Errno>;
    /// Truncates the file, or extends it with zeros.
    fn set_size(&self, size: u64) -> Result<(), Errno>;
}

/// Data to write. The engine copies it once before encrypting, because pages in shared memory may change meanwhile.
pub trait WriteSource {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fills `bytes` from position `at`.
    fn copy_to(&self, at: usize, bytes: &mut [u8]);
}

impl WriteSource for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self[at..at + bytes.len()]);
    }
}
