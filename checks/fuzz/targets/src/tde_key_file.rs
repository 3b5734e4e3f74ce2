//! An arbitrary key file. A file that decodes encodes to the same bytes, and cannot be unwrapped without the
//! key-encryption key.
//!
//! Input: a key file.

use ciphertoll_tde::{Kek, KeyFile};

pub fn run(data: &[u8]) {
    if let Ok(kek) = Kek::parse(data) {
        assert!(Kek::parse(kek.text().as_bytes()).is_ok());
    }
    let Ok(file) = KeyFile::decode(data) else { return };
    assert_eq!(file.encode(), data);
    let kek = Kek::parse(&[b'7'; 64]).expect("64 digits");
    assert!(file.unwrap(&kek).is_err());
}
