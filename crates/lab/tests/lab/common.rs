//! What the lab's tests share: the helper and a place.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The helper that Cargo builds beside the tests.
pub(crate) fn helper() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let helper = profile.join("examples/exec_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-lab --examples", helper.display());
    helper
}

/// A directory that servers of another user can pass through; short, as sockets' paths are.
pub(crate) fn place() -> TempDir {
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
    place
}
