//! Where ciphertext lies.

use crate::error::Errno;

/// A file of ciphertext. It is as long as its plaintext.
pub trait Storage {
    /// Reads at an offset; fewer bytes than asked for only at the end.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno>;
    /// Writes at an offset; fewer bytes than given where there is no room for more.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno>;
    /// How long it is.
    fn size(&self) -> Result<u64, Errno>;
    /// Makes it as long, with zeros or by cutting it off.
    fn set_size(&self, size: u64) -> Result<(), Errno>;
}
