//! MySQL's component that keeps the master key in a file. A manifest in the directory of the server program configures it.
//! We cannot write there, but MySQL uses the path that it was started by, which may be a symbolic link in our directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PUBLIC_FILE};
use ciphertoll_host::user::RunAs;
use ciphertoll_record::Context;
use serde_json::json;

use crate::error::Error;

const COMPONENT: &str = "component_keyring_file";
/// The manifest's name: the program's name with another extension.
const MANIFEST: &str = "mysqld.my";
const PROGRAM: &str = "mysqld";
const PLUGINS: &str = "plugins";
/// The server's user can read the directory, but not change it. It contains no secrets.
const READABLE: u32 = 0o755;

pub(super) fn is_in(plugins: &Path) -> bool {
    plugins.join(format!("{COMPONENT}.so")).is_file()
}

/// The directory of plugins and of the component's configuration after [`install`].
pub(super) fn plugins_in(directory: &Path) -> PathBuf {
    directory.join(PLUGINS)
}

/// Creates `directory` with all files that MySQL expects, unless it exists; returns the program to start.
pub(super) fn install(
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
    for path in [directory, &own_plugins] {
        files::make_directory(path, READABLE, RunAs::Ourselves)?;
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
        // A link to the machine-wide configuration.
        fs::remove_file(&settings).context("remove", &settings)?;
    }
    write(&settings, json!({"path": keyring.display().to_string(), "read_only": false}))?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_linked_into_the_directory_of_the_manifest() {
        let place = tempfile::tempdir().unwrap();
        let plugins = place.path().join("lib");
        fs::create_dir(&plugins).unwrap();
        assert!(!is_in(&plugins));
        for name in ["component_keyring_file.so", "component_keyring_file.cnf", "other.so"] {
            fs::write(plugins.join(name), "theirs").unwrap();
        }
        assert!(is_in(&plugins));
        let (own, program) = (place.path().join("component"), place.path().join("usr/sbin/mysqld"));
        let link = install(&own, &program, &plugins, Path::new("/keys/keyring")).unwrap();
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
            install(&own, &program, &plugins, Path::new("/keys/keyring")).unwrap(),
            link,
            "a second call changes nothing"
        );
    }
}
