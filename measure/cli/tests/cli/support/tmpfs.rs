//! A tiny or read-only file system; root alone can make one.

use std::path::Path;

use ciphertoll_testing::{missing, not_for_all};

use super::host::{is_root, system};
use super::text;

/// A mounted file system, gone when dropped, also where a test fails.
pub(crate) struct Tmpfs {
    place: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts one with `options`, or says why this test is skipped. Root in CI must be able to.
    pub(crate) fn mount(options: &str) -> Option<Self> {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mounted = system("mount", &["-t", "tmpfs", "-o", options, "tmpfs", text(place.path())]);
        if let Err(reason) = mounted {
            let told: fn(&str) = if is_root() { missing } else { not_for_all };
            told(&format!("only root can mount a small file system here: {}", reason.trim()));
            return None;
        }
        Some(Self { place })
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let path = text(self.place.path());
        // Lazily where something still has a file open: the mount must not outlive the test.
        let unmounted = system("umount", &[path]).or_else(|_| system("umount", &["--lazy", path]));
        assert!(unmounted.is_ok() || std::thread::panicking(), "{path} is still mounted: {unmounted:?}");
    }
}
