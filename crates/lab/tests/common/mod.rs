//! What the lab's tests share: the helper, a lab of their own, and reasons to skip.

use std::path::{Path, PathBuf};

use ciphertoll_lab::{Build, Lab, find};
use ciphertoll_model::{Engine, ServerLevel};
use tempfile::TempDir;

/// The helper that Cargo builds beside the tests.
pub fn helper() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let helper = profile.join("examples/exec_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-lab --examples", helper.display());
    helper
}

/// A directory that servers of another user can pass through, and a lab in it.
pub fn lab() -> (TempDir, Lab) {
    let place = place();
    let lab = Lab::open_in(helper(), &place.path().join("scratch"), cache()).unwrap();
    (place, lab)
}

/// A directory that servers of another user can pass through; short, as sockets' paths are.
pub fn place() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    place
}

/// Templates are shared by all tests and kept between runs, as users' are.
pub fn cache() -> PathBuf {
    std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("ciphertoll-test-cache")
}

/// The MariaDB of this machine, or a printed reason to skip.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub fn build() -> Option<Build> {
    find(&ServerLevel::of(Engine::MariaDb)).inspect_err(|error| eprintln!("skipped: {error}")).ok()
}
