//! A field of fixed length that arrives in portions.

/// Collects `N` bytes from portions; `N` is less than 256.
#[derive(Debug, Clone)]
pub(crate) struct Partial<const N: usize> {
    bytes: [u8; N],
    // Small: each followed connection has several of these.
    filled: u8,
}

impl<const N: usize> Partial<N> {
    /// Takes missing bytes from the front of `input`. Returns the bytes once all are present.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let filled = usize::from(self.filled);
        let (now, rest) = input.split_at(input.len().min(N - filled));
        *input = rest;
        self.bytes[filled..filled + now.len()].copy_from_slice(now);
        self.filled += now.len() as u8;
        (usize::from(self.filled) == N).then_some(self.bytes)
    }
}

impl<const N: usize> Default for Partial<N> {
    fn default() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }
}
