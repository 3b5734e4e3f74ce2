//! What connections are opened with, told apart without being kept.

use openssl::sha::Sha256;

/// A password, certificates or whatever else is shown to a server or asked of it: the same has the same mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark([u8; 32]);

/// Makes a mark of several parts.
#[derive(Clone, Default)]
pub(crate) struct Marker(Sha256);

impl Marker {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(&part.len().to_be_bytes());
        self.0.update(part);
    }

    pub(crate) fn finish(self) -> Mark {
        Mark(self.0.finish())
    }
}
