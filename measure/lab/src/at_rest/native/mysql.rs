//! MySQL's component `keyring_file`, or the plugin of that name if the build has no such component.

use std::path::{Path, PathBuf};

use ciphertoll_host::user::RunAs;
use ciphertoll_net::blocking::Client;

use super::{NativeEncryption, NativeKeys, NativeProperties, component};
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::control;

/// The file of the master key, which MySQL creates.
const KEYRING_FILE: &str = "keyring";

pub(crate) struct KeyringFile;

impl NativeEncryption for KeyringFile {
    fn properties(&self) -> NativeProperties {
        NativeProperties {
            // "-encrypted" was used by an older version for keys in another format.
            template_suffix: "-keyring",
            // The plugin exists until 8.3; before 8.0.24 there is no component.
            plugin_files: &["component_keyring_file.so", "keyring_file.so"],
            how_to_get: "name a build that has it",
            settings: &[
                ("default_table_encryption", "ON"),
                ("innodb_redo_log_encrypt", "ON"),
                ("innodb_undo_log_encrypt", "ON"),
            ],
        }
    }

    fn doctor_advice(&self) -> String {
        "name a MySQL that has it: --server mysql=DIR; or use at-rest=gocryptfs".to_owned()
    }

    /// MySQL creates its key itself.
    fn create_keys(&self, _directory: &Path, _owner: RunAs) -> Result<(), Error> {
        Ok(())
    }

    fn program(&self, build: &Build, keys: NativeKeys<'_>) -> Result<PathBuf, Error> {
        if !component::is_in(keys.plugins) {
            return Ok(build.server_program.clone());
        }
        let keyring = keys.keys.join(KEYRING_FILE);
        component::install(keys.component, &build.server_program, keys.plugins, &keyring)
    }

    fn plugin_directory(&self, keys: NativeKeys<'_>) -> PathBuf {
        if component::is_in(keys.plugins) {
            component::plugins_in(keys.component)
        } else {
            keys.plugins.to_owned()
        }
    }

    fn options(&self, keys: NativeKeys<'_>) -> Vec<(&'static str, String)> {
        if component::is_in(keys.plugins) {
            return Vec::new();
        }
        let keyring = keys.keys.join(KEYRING_FILE).display().to_string();
        vec![("early-plugin-load", "keyring_file.so".to_owned()), ("loose-keyring-file-data", keyring)]
    }

    fn encrypt_system_tables(&self, client: &mut Client) -> Result<(), Error> {
        let doing = "encrypt the system tables";
        control::execute(client, doing, "ALTER TABLESPACE mysql ENCRYPTION = 'Y'")?;
        control::execute(client, doing, "ALTER TABLE sys.sys_config ENCRYPTION = 'Y'")
    }

    /// The system tablespace, which has no rows of users, cannot be encrypted.
    fn unencrypted_tablespaces(&self, condition: &str) -> String {
        format!(
            "SELECT t.name FROM information_schema.innodb_tablespaces t WHERE t.encryption <> 'Y' \
             AND t.name NOT IN ('innodb_system', 'innodb_temporary'){condition} ORDER BY t.name"
        )
    }
}
