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
