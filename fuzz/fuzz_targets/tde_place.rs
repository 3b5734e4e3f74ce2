//! Paths of any kind into the classifier: it says the same of a path however its parts are joined, and a file may always
//! keep its name.
//!
//! Input: two paths with a NUL between them.
#![no_main]

use ciphertoll_tde::{Opened, Place, Rename};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut paths = data.splitn(2, |&byte| byte == 0);
    let (Some(from), to) = (paths.next(), paths.next().unwrap_or_default()) else { return };
    let place = Place::of(from);
    assert_eq!(Opened::new(place).place(), place);
    assert_eq!(place.is_encrypted(), place != Place::Clear);
    assert_eq!(Rename::of(from, from), Rename::Kept);
    // Neither way may what is encrypted become clear, but for history files.
    if Place::of(from).is_encrypted() && !Place::of(to).is_encrypted() && Rename::of(from, to) == Rename::Kept
    {
        assert_eq!(place, Place::WalDraft);
        assert!(to.ends_with(b".history"));
    }
    assert!(Place::of(to).is_encrypted() || place.is_encrypted() || Rename::of(from, to) == Rename::Kept);
    // Temporary files nest, and their names are digested as they are.
    if !matches!(place, Place::Temporary(_)) && !from.is_empty() {
        assert_eq!(Place::of(&[b"./", from].concat()), place);
    }
});
