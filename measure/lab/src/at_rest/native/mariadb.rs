//! MariaDB's plugin `file_key_management`.

use std::path::Path;

use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::hex::hex;
use ciphertoll_host::programs;
use ciphertoll_host::user::RunAs;
use openssl::hash::MessageDigest;
use openssl::pkcs5::bytes_to_key;
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, encrypt};

use super::{NativeEncryption, NativeKeys, NativeProperties};
use crate::error::Error;

/// The encrypted keys, and the password that decrypts them. Both are on the same disk: they serve measurements only.
const KEYS_FILE: &str = "keys.enc";
const KEYS_PASSWORD_FILE: &str = "keys-password";
const PLUGIN: &str = "file_key_management";
/// 256 bits.
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 8;
/// The header of a file of `openssl enc`.
const SALTED: &[u8] = b"Salted__";

pub(crate) struct FileKeyManagement;

impl NativeEncryption for FileKeyManagement {
    fn properties(&self) -> NativeProperties {
        NativeProperties {
            template_suffix: "-encrypted",
            plugin_files: &["file_key_management.so"],
            how_to_get: "install it (Debian and Ubuntu: the package mariadb-server), or name a build that has it",
            settings: &[
                ("innodb_encrypt_tables", "FORCE"),
                ("innodb_encrypt_log", "ON"),
                ("innodb_encrypt_temporary_tables", "ON"),
                ("innodb_encryption_threads", "4"),
                ("aria_encrypt_tables", "ON"),
                ("encrypt_tmp_disk_tables", "ON"),
                ("encrypt_tmp_files", "ON"),
            ],
        }
    }

    fn doctor_advice(&self) -> String {
        programs::how_to_install("mariadb-server")
    }

    fn create_keys(&self, directory: &Path, owner: RunAs) -> Result<(), Error> {
        let mut secrets = [0; 2 * KEY_BYTES];
        rand_bytes(&mut secrets)?;
        let (key, password) = secrets.split_at(KEY_BYTES);
        let password = hex(password);
        let keys = encrypted(format!("1;{}\n", hex(key)).as_bytes(), password.as_bytes())?;
        files::write(&directory.join(KEYS_PASSWORD_FILE), password.as_bytes(), PRIVATE_FILE, owner)?;
        Ok(files::write(&directory.join(KEYS_FILE), &keys, PRIVATE_FILE, owner)?)
    }

    fn options(&self, keys: NativeKeys<'_>) -> Vec<(&'static str, String)> {
        let file = |name: &str| keys.keys.join(name).display().to_string();
        let mut options = vec![
            ("plugin-load-add", PLUGIN.to_owned()),
            ("loose-file-key-management-filename", file(KEYS_FILE)),
            ("loose-file-key-management-filekey", format!("FILE:{}", file(KEYS_PASSWORD_FILE))),
        ];
        if keys.fresh {
            options.push(("innodb-encryption-rotation-iops", "10000".to_owned()));
        }
        options
    }

    fn unencrypted_tablespaces(&self, condition: &str) -> String {
        format!(
            "SELECT t.name FROM information_schema.innodb_sys_tablespaces t \
             LEFT JOIN information_schema.innodb_tablespaces_encryption e ON e.space = t.space \
             WHERE t.name <> 'innodb_temporary' AND (e.space IS NULL OR e.encryption_scheme = 0 \
             OR e.min_key_version = 0 OR e.rotating_or_flushing <> 0){condition} ORDER BY t.name"
        )
    }
}

/// Encrypts like `openssl enc -aes-256-cbc -md sha1`, the format that the plugin reads.
fn encrypted(text: &[u8], password: &[u8]) -> Result<Vec<u8>, Error> {
    let mut salt = [0; SALT_BYTES];
    rand_bytes(&mut salt)?;
    let cipher = Cipher::aes_256_cbc();
    let derived = bytes_to_key(cipher, MessageDigest::sha1(), password, Some(&salt), 1)?;
    let ciphertext = encrypt(cipher, &derived.key, derived.iv.as_deref(), text)?;
    Ok([SALTED, &salt, &ciphertext].concat())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use openssl::symm::decrypt;

    use super::*;
    use crate::at_rest::native;

    #[test]
    fn keys_are_encrypted_as_by_openssl_enc() {
        let file = encrypted(b"1;00ff\n", b"hunter2").unwrap();
        let (salted, rest) = file.split_at(SALTED.len());
        let (salt, ciphertext) = rest.split_at(SALT_BYTES);
        assert_eq!(salted, SALTED);
        let cipher = Cipher::aes_256_cbc();
        let derived = bytes_to_key(cipher, MessageDigest::sha1(), b"hunter2", Some(salt), 1).unwrap();
        assert_eq!(decrypt(cipher, &derived.key, derived.iv.as_deref(), ciphertext).unwrap(), b"1;00ff\n");
        assert_ne!(encrypted(b"1;00ff\n", b"hunter2").unwrap(), file, "another salt");
    }

    #[test]
    fn keys_are_private_files_and_in_no_option() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let keys = place.path().join("keys");
        native::create_keys(&FileKeyManagement, &keys, RunAs::Ourselves).unwrap();
        let password = fs::read_to_string(keys.join(KEYS_PASSWORD_FILE)).unwrap();
        for name in [KEYS_FILE, KEYS_PASSWORD_FILE] {
            assert_eq!(fs::metadata(keys.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let native_keys =
            NativeKeys { keys: &keys, plugins: Path::new("/plugins"), component: &keys, fresh: true };
        let options = format!("{:?}", native::options(&FileKeyManagement, native_keys));
        assert_eq!(password.len(), 2 * KEY_BYTES);
        assert!(options.contains("FORCE") && !options.contains(&password), "{options}");
    }
}
