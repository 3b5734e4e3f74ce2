//! The classification of arbitrary paths. It does not depend on how the parts are joined, and a file may always be renamed
//! to itself.
//!
//! Input: two paths, separated by a NUL.

use ciphertoll_tde::{FileClass, OpenFile, Rename};

pub fn run(data: &[u8]) {
    let mut paths = data.splitn(2, |&byte| byte == 0);
    let (Some(from), to) = (paths.next(), paths.next().unwrap_or_default()) else { return };
    let class = FileClass::of(from);
    assert_eq!(OpenFile::new(class).class(), class);
    assert_eq!(class.is_encrypted(), class != FileClass::Unencrypted);
    assert_eq!(Rename::of(from, from), Rename::Allowed);
    // An encrypted file may not become unencrypted, except a history file.
    if FileClass::of(from).is_encrypted()
        && !FileClass::of(to).is_encrypted()
        && Rename::of(from, to) == Rename::Allowed
    {
        assert_eq!(class, FileClass::XlogTemp);
        assert!(to.ends_with(b".history"));
    }
    assert!(
        FileClass::of(to).is_encrypted() || class.is_encrypted() || Rename::of(from, to) == Rename::Allowed
    );
    // Names of deeply nested temporary files are not normalised.
    if !matches!(class, FileClass::Temporary(_)) && !from.is_empty() {
        assert_eq!(FileClass::of(&[b"./", from].concat()), class);
    }
}
