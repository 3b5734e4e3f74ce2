//! Paths of any kind into the classifier: it says the same of a path however its parts are joined, and a file may always
//! keep its name.
//!
//! Input: two paths with a NUL between them.
#![no_main]

use ciphertoll_tde::{OpenFile, FileClass, Rename};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut paths = data.splitn(2, |&byte| byte == 0);
    let (Some(from), to) = (paths.next(), paths.next().unwrap_or_default()) else { return };
    let class = FileClass::of(from);
    assert_eq!(OpenFile::new(class).class(), class);
    assert_eq!(class.is_encrypted(), class != FileClass::Unencrypted);
    assert_eq!(Rename::of(from, from), Rename::Allowed);
    // Neither way may what is encrypted become clear, but for history files.
    if FileClass::of(from).is_encrypted() && !FileClass::of(to).is_encrypted() && Rename::of(from, to) == Rename::Allowed
    {
        assert_eq!(class, FileClass::XlogTemp);
        assert!(to.ends_with(b".history"));
    }
    assert!(FileClass::of(to).is_encrypted() || class.is_encrypted() || Rename::of(from, to) == Rename::Allowed);
    // Temporary files nest, and their names are digested as they are.
    if !matches!(class, FileClass::Temporary(_)) && !from.is_empty() {
        assert_eq!(FileClass::of(&[b"./", from].concat()), class);
    }
});
