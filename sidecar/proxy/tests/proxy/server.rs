//! Private servers: their lab, template and start.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_lab::{Build, DataTemplate, Lab, ServerStart, Tables};
use ciphertoll_model::{SecurityLevel, ServerKey};
use tempfile::TempDir;

/// A directory with a lab and a template of this server.
pub(crate) fn open_lab(build: &Build, tables: &Tables) -> (TempDir, Lab, DataTemplate) {
    let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
    set_permissions(directory.path(), Permissions::from_mode(0o711)).expect("ours to change");
    let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
    let lab = Lab::open_in(exec_helper(), &directory.path().join("scratch"), cache.into()).expect("a lab");
    let template = lab.template(build, tables, &mut |_| {}, &|| false).expect("a template");
    (directory, lab, template)
}

/// How a server of this template is started.
pub(crate) fn start_of<'a>(
    build: &'a Build,
    template: &'a DataTemplate,
    directory: &TempDir,
) -> ServerStart<'a> {
    ServerStart {
        build,
        template,
        name: "x1",
        key: ServerKey::P256,
        log: directory.path().join("server.log"),
        preferred_port: None,
        processors: None,
        strength: SecurityLevel::Default,
    }
}

/// The helper that Cargo builds as an example.
pub(crate) fn exec_helper() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie two below the profile");
    let exec_helper = profile.join("examples/proxy_exec_helper");
    assert!(
        exec_helper.is_file(),
        "{} is missing: cargo build -p ciphertoll-proxy --examples",
        exec_helper.display()
    );
    exec_helper
}
