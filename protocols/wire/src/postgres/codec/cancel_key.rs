//! The secret that authorizes a cancel request from another connection.

use std::fmt;

use crate::secret::Secret;

/// The secret in `BackendKeyData`: four bytes in protocol 3.0, up to [`CancelKey::MAX_BYTES`] in 3.2. Empty
/// if the server sent none.
#[derive(Clone)]
pub struct CancelKey(Secret);

impl CancelKey {
    /// The longest key in any version of the protocol.
    pub const MAX_BYTES: usize = 256;

    /// Takes ownership of the bytes; `None` if they are too long.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() <= Self::MAX_BYTES).then(|| Self(Secret::new(bytes)))
    }

    /// The key of a server that sent none.
    pub fn none() -> Self {
        Self(Secret::new(Vec::new()))
    }

    /// The bytes, to send.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// Hides the key.
impl fmt::Debug for CancelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CancelKey(..)")
    }
}
