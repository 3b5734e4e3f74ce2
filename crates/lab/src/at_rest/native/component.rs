//! MySQL's component that keeps the master key in a file. MySQL is told of it by a file beside its program, where nothing is
//! ours to write; but it looks beside the name that it was started by, and that may be a link of ours.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::error::{Context, Error};
use crate::files::{self, PUBLIC_FILE};
use crate::user::RunAs;

/// The component, and the name of its settings.
pub(super) const COMPONENT: &str = "component_keyring_file";
/// What MySQL reads beside its program: the program's name with another end.
const MANIFEST: &str = "mysqld.my";
const PROGRAM: &str = "mysqld";
const PLUGINS: &str = "plugins";
/// Only what is no secret is in it: the server's user reads it and cannot change it.
const READABLE: u32 = 0o755;

/// Whether a MySQL with these plugins has it.
pub(super) fn is_in(plugins: &Path) -> bool {
    plugins.join(format!("{COMPONENT}.so")).is_file()
}

/// Where the plugins are, and the component's settings, once [`lay`] was there.
pub(super) fn plugins_in(directory: &Path) -> PathBuf {
    directory.join(PLUGINS)
}

/// Makes `directory` with all that MySQL looks for, unless it is there, and says what to start.
pub(super) fn lay(
    directory: &Path,
    program: &Path,
    plugins: &Path,
    keyring: &Path,
) -> Result<PathBuf, Error> {
    let link = directory.join(PROGRAM);
    if directory.exists() {
        return Ok(link);
    }
    let own_plugins = plugins_in(directory);
    for made in [directory, &own_plugins] {
        files::make_directory(made, READABLE, RunAs::Ourselves)?;
    }
    symlink(program, &link).context("make", &link)?;
    for entry in fs::read_dir(plugins).context("list", plugins)? {
        let entry = entry.context("list", plugins)?;
        let link = own_plugins.join(entry.file_name());
        symlink(entry.path(), &link).context("make", &link)?;
    }
    let write = |path: &Path, value: serde_json::Value| {
        files::write(path, value.to_string().as_bytes(), PUBLIC_FILE, RunAs::Ourselves)
    };
    write(&directory.join(MANIFEST), json!({"components": format!("file://{COMPONENT}")}))?;
    let settings = own_plugins.join(format!("{COMPONENT}.cnf"));
    if settings.symlink_metadata().is_ok() {
        // That of the whole machine.
        fs::remove_file(&settings).context("remove", &settings)?;
    }
    write(&settings, json!({"path": keyring.display().to_string(), "read_only": false}))?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_by_a_link_beside_its_manifest() {
        let place = tempfile::tempdir().unwrap();
        let plugins = place.path().join("lib");
        fs::create_dir(&plugins).unwrap();
        assert!(!is_in(&plugins));
        for name in ["component_keyring_file.so", "component_keyring_file.cnf", "other.so"] {
            fs::write(plugins.join(name), "theirs").unwrap();
        }
        assert!(is_in(&plugins));
        let (own, program) = (place.path().join("component"), place.path().join("usr/sbin/mysqld"));
        let link = lay(&own, &program, &plugins, Path::new("/keys/keyring")).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), program);
        let text = |name: &str| fs::read_to_string(own.join(name)).unwrap();
        assert_eq!(text("mysqld.my"), r#"{"components":"file://component_keyring_file"}"#);
        assert_eq!(
            text("plugins/component_keyring_file.cnf"),
            r#"{"path":"/keys/keyring","read_only":false}"#
        );
        assert_eq!(text("plugins/other.so"), "theirs");
        assert_eq!(fs::read_to_string(plugins.join("component_keyring_file.cnf")).unwrap(), "theirs");
        assert_eq!(
            lay(&own, &program, &plugins, Path::new("/keys/keyring")).unwrap(),
            link,
            "once is enough"
        );
    }
}
