//! Bytes that must not be shown, stored or left in memory.

use zeroize::Zeroizing;

/// A password or key; wiped when dropped.
///
/// It has no `Debug`, `Display`, `Serialize` or `PartialEq`, so that it cannot reach a log, a record or a comparison
/// whose time tells something:
///
/// ```compile_fail
/// println!("{:?}", ciphertoll_wire::Secret::new(b"hunter2".to_vec()));
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; the caller should have no other copy.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the one who must hash or send them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}
