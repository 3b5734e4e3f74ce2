//! For what a connection is ready.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Sending; nothing was received.
    Writable,
    Readable,
    /// Receiving the remaining bytes and then the end, which no further edge announces.
    ReadableToEnd,
    /// The same, and the peer does not read either.
    Gone,
}

impl Readiness {
    /// Whether the peer sends nothing after the remaining bytes.
    pub fn is_end(self) -> bool {
        matches!(self, Self::ReadableToEnd | Self::Gone)
    }
}
