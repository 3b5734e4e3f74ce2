//! The secret with which a running command may be cancelled from another connection.

use std::fmt;

use crate::Secret;

/// What `BackendKeyData` has beside the process id: four bytes in protocol 3.0, up to [`CancelKey::MAX_BYTES`] in 3.2.
/// It is empty where the server gave none.
#[derive(Clone)]
pub struct CancelKey(Secret);

impl CancelKey {
    /// The most that any version of the protocol allows.
    pub const MAX_BYTES: usize = 256;

    /// Takes the bytes over; none if they are too many.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() <= Self::MAX_BYTES).then(|| Self(Secret::new(bytes)))
    }

    /// The key of a server that gave none.
    pub fn none() -> Self {
        Self(Secret::new(Vec::new()))
    }

    /// The bytes, for the one who must send them.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// Says that there is a key, not which.
impl fmt::Debug for CancelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CancelKey(..)")
    }
}
