//! Bytes that must not be shown, stored or left in memory.

use zeroize::Zeroizing;

/// A password or key; zeroed when dropped.
///
/// It has no `Debug`, `Display`, `Serialize` or `PartialEq`, so it cannot reach a log, a record or a
/// comparison whose duration depends on the content:
///
/// ```compile_fail
/// println!("{:?}", ciphertoll_wire::Secret::new(b"hunter2".to_vec()));
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes. The caller should hold no other copy.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, to hash or to send.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}
