//! The helper program and temporary directories.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use ciphertoll_net::Error;
use ciphertoll_net::blocking::Client;
use ciphertoll_tde::PRELOAD_LIBRARY;
use tempfile::TempDir;

/// The helper, which Cargo builds as an example.
pub(crate) fn helper() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let helper = profile.join("examples/exec_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-lab --examples", helper.display());
    helper
}

/// Builds the preload library in the directory of the helper, because no test links it.
pub(crate) fn make_library() {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        let helper = helper();
        let profile = helper.parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--package", "ciphertoll-tde-preload", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "the library is built");
        std::fs::copy(profile.join(PRELOAD_LIBRARY), helper.with_file_name(PRELOAD_LIBRARY)).unwrap();
    });
}

/// A directory that the server user can enter; short, because socket paths are limited.
pub(crate) fn place() -> TempDir {
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o711)).unwrap();
    place
}

/// Queries for one value.
pub(crate) trait QueryText {
    /// The first column of the first row; `None` if there is no row or the value is NULL.
    fn query_text(&mut self, sql: &str) -> Result<Option<String>, Error>;
}

impl QueryText for Client {
    fn query_text(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let rows = self.query(sql)?;
        let first = rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
        Ok(first.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
