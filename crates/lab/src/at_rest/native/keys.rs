//! Pages, logs and temporary files encrypted by the server itself: MariaDB by its plugin `file_key_management`, MySQL by
//! its component `keyring_file`, or by the plugin of that name where it has no such component yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{AtRest, Engine};
use ciphertoll_net::blocking::Client;
use openssl::hash::MessageDigest;
use openssl::pkcs5::bytes_to_key;
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, encrypt};

use crate::control;
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::find::Build;
use crate::hex::hex;
use crate::rows;
use crate::user::RunAs;

use super::component::{self, COMPONENT};

/// MariaDB's keys, encrypted, and what they are encrypted with: without the second the first is worth nothing, and both
/// are on the same disk here, as they are only to be measured.
const KEYS_FILE: &str = "keys.enc";
const KEYS_PASSWORD_FILE: &str = "keys-password";
/// The file that MySQL makes its master key in.
const KEYRING_FILE: &str = "keyring";
const MARIADB_PLUGIN: &str = "file_key_management";
const MYSQL_PLUGIN: &str = "keyring_file";
/// 256 bits.
const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 8;
/// What `openssl enc` begins a file with.
const SALTED: &[u8] = b"Salted__";
/// Most often a moment: new data directories are small.
const ENCRYPTION_LIMIT: Duration = Duration::from_mins(1);
/// Between two looks at how far the server is.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A server that encrypts its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Native<'a> {
    /// Where its keys are.
    pub(crate) keys: &'a Path,
    /// Where its plugins are.
    pub(crate) plugins: &'a Path,
    /// Where there is to be what MySQL looks for beside its program.
    pub(crate) component: &'a Path,
    /// Whether its data are being made, so that what was there before is to be encrypted at once.
    pub(crate) fresh: bool,
}

impl Native<'_> {
    /// What is to be started, with all that it looks for laid beside it.
    pub(crate) fn program(self, build: &Build) -> Result<PathBuf, Error> {
        if !self.has_component(build.engine) {
            return Ok(build.server_program.clone());
        }
        let keyring = self.keys.join(KEYRING_FILE);
        component::lay(self.component, &build.server_program, self.plugins, &keyring)
    }

    fn has_component(self, engine: Engine) -> bool {
        engine == Engine::MySql && component::is_in(self.plugins)
    }
}

/// Where `build` has its plugin that knows the keys; else why it cannot encrypt its own files.
pub(crate) fn find_plugins(build: &Build) -> Result<PathBuf, Error> {
    let name = format!("{} {}", build.engine.display_name(), build.version);
    let (plugin, how_to_get) = match build.engine {
        Engine::MariaDb => (
            MARIADB_PLUGIN,
            "install it (Debian and Ubuntu: the package mariadb-server), or name a build that has it",
        ),
        Engine::MySql => (COMPONENT, "name a build that has it"),
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => {
            let reason = AtRest::Native.impossible(build.engine);
            return Err(Error::AtRestUnavailable(reason.unwrap_or_default()));
        }
    };
    let file = format!("{plugin}.so");
    // Until 8.3 there is a plugin, too; before 8.0.24 there is nothing else.
    let is_in = |place: &PathBuf| {
        place.join(&file).is_file()
            || build.engine == Engine::MySql && place.join(format!("{MYSQL_PLUGIN}.so")).is_file()
    };
    let base = &build.base_directory;
    let candidates = ["lib/mysql/plugin", "lib/plugin", "lib64/mysql/plugin", "lib/mariadb/plugin"];
    let places: Vec<PathBuf> = candidates.iter().map(|directory| base.join(directory)).collect();
    places.iter().find(|&place| is_in(place)).cloned().ok_or_else(|| {
        let usual = places.iter().find(|place| place.is_dir()).or(places.first());
        let directory = usual.map_or_else(String::new, |place| place.display().to_string());
        Error::AtRestUnavailable(format!(
            "{name} cannot encrypt its own files: its plugin {file} is not in {directory}; {how_to_get}"
        ))
    })
}

/// Makes a directory with fresh keys; where the server makes them itself, with nothing.
pub(crate) fn make_keys(engine: Engine, directory: &Path, owner: RunAs) -> Result<(), Error> {
    files::make_directory(directory, files::PRIVATE_DIRECTORY, owner)?;
    if engine != Engine::MariaDb {
        return Ok(());
    }
    let mut secrets = [0; 2 * KEY_BYTES];
    rand_bytes(&mut secrets)?;
    let (key, password) = secrets.split_at(KEY_BYTES);
    let password = hex(password);
    let keys = encrypted(format!("1;{}\n", hex(key)).as_bytes(), password.as_bytes())?;
    files::write(&directory.join(KEYS_PASSWORD_FILE), password.as_bytes(), PRIVATE_FILE, owner)?;
    files::write(&directory.join(KEYS_FILE), &keys, PRIVATE_FILE, owner)
}

/// As `openssl enc -aes-256-cbc -md sha1` does it, which is what the plugin reads.
fn encrypted(text: &[u8], password: &[u8]) -> Result<Vec<u8>, Error> {
    let mut salt = [0; SALT_BYTES];
    rand_bytes(&mut salt)?;
    let cipher = Cipher::aes_256_cbc();
    let derived = bytes_to_key(cipher, MessageDigest::sha1(), password, Some(&salt), 1)?;
    let ciphertext = encrypt(cipher, &derived.key, derived.iv.as_deref(), text)?;
    Ok([SALTED, &salt, &ciphertext].concat())
}

/// What the server is told.
pub(crate) fn options(engine: Engine, native: Native<'_>) -> Vec<(&'static str, Option<String>)> {
    let file = |name: &str| native.keys.join(name).display().to_string();
    let mut options = match engine {
        Engine::MariaDb => vec![
            ("plugin-load-add", MARIADB_PLUGIN.to_owned()),
            ("loose-file-key-management-filename", file(KEYS_FILE)),
            ("loose-file-key-management-filekey", format!("FILE:{}", file(KEYS_PASSWORD_FILE))),
        ],
        Engine::MySql if native.has_component(engine) => Vec::new(),
        Engine::MySql => vec![
            ("early-plugin-load", format!("{MYSQL_PLUGIN}.so")),
            ("loose-keyring-file-data", file(KEYRING_FILE)),
        ],
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => Vec::new(),
    };
    if native.fresh && engine == Engine::MariaDb {
        options.push(("innodb-encryption-rotation-iops", "10000".to_owned()));
    }
    let plugins = if native.has_component(engine) {
        component::plugins_in(native.component)
    } else {
        native.plugins.to_owned()
    };
    options.push(("plugin-dir", plugins.display().to_string()));
    options.extend(settings(engine).iter().map(|&(name, value)| (name, value.to_owned())));
    options.into_iter().map(|(name, value)| (name, Some(value))).collect()
}

/// What of that is a setting that is asked for again: everything that a server of this engine can encrypt. There is no
/// binary log.
pub(crate) fn settings(engine: Engine) -> &'static [(&'static str, &'static str)] {
    match engine {
        Engine::MariaDb => &[
            ("innodb_encrypt_tables", "FORCE"),
            ("innodb_encrypt_log", "ON"),
            ("innodb_encrypt_temporary_tables", "ON"),
            ("innodb_encryption_threads", "4"),
            ("aria_encrypt_tables", "ON"),
            ("encrypt_tmp_disk_tables", "ON"),
            ("encrypt_tmp_files", "ON"),
        ],
        Engine::MySql => &[
            ("default_table_encryption", "ON"),
            ("innodb_redo_log_encrypt", "ON"),
            ("innodb_undo_log_encrypt", "ON"),
        ],
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => &[],
    }
}

/// Has everything encrypted that was there before, and waits for it.
pub(crate) fn wait_until_encrypted(client: &mut Client, engine: Engine) -> Result<(), Error> {
    let doing = "encrypt what there is";
    if engine == Engine::MySql {
        control::execute(client, doing, "ALTER TABLESPACE mysql ENCRYPTION = 'Y'")?;
        control::execute(client, doing, "ALTER TABLE sys.sys_config ENCRYPTION = 'Y'")?;
    }
    let deadline = Instant::now() + ENCRYPTION_LIMIT;
    loop {
        let left = in_the_clear(client, engine, "")?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let left = left.join(", ");
            return Err(Error::NotEncrypted(format!("not encrypted after {ENCRYPTION_LIMIT:?}: {left}")));
        }
        thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// What is not as it should be of a server that encrypts its own files, in the server's own words: a setting, or a table
/// that clients use.
pub(crate) fn unencrypted(client: &mut Client, engine: Engine) -> Result<Option<String>, Error> {
    let names: Vec<String> = settings(engine).iter().map(|(name, _)| format!("'{name}'")).collect();
    let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
    let said: BTreeMap<String, String> =
        crate::mysql_family::pairs(control::query(client, "ask what is encrypted", &sql)?);
    let off = settings(engine).iter().find(|(name, _)| {
        said.get(*name)
            .is_none_or(|value| ["OFF", "0", "FALSE"].contains(&value.to_ascii_uppercase().as_str()))
    });
    if let Some((name, _)) = off {
        let value = said.get(*name).map_or("not there", String::as_str);
        return Ok(Some(format!("{name} is {value}")));
    }
    let tables = in_the_clear(client, engine, &format!(" AND t.name LIKE '{}/%'", rows::SCHEMA))?;
    Ok((!tables.is_empty()).then(|| format!("not encrypted: {}", tables.join(", "))))
}

/// Names of tablespaces with pages in the clear; of temporary ones nothing is told, and MySQL's system tablespace, which
/// has no rows of anybody's, cannot be encrypted.
fn in_the_clear(client: &mut Client, engine: Engine, which: &str) -> Result<Vec<String>, Error> {
    let sql = match engine {
        Engine::MariaDb => format!(
            "SELECT t.name FROM information_schema.innodb_sys_tablespaces t \
             LEFT JOIN information_schema.innodb_tablespaces_encryption e ON e.space = t.space \
             WHERE t.name <> 'innodb_temporary' AND (e.space IS NULL OR e.encryption_scheme = 0 \
             OR e.min_key_version = 0 OR e.rotating_or_flushing <> 0){which} ORDER BY t.name"
        ),
        Engine::MySql => format!(
            "SELECT t.name FROM information_schema.innodb_tablespaces t WHERE t.encryption <> 'Y' \
             AND t.name NOT IN ('innodb_system', 'innodb_temporary'){which} ORDER BY t.name"
        ),
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => return Ok(Vec::new()),
    };
    Ok(control::query(client, "ask what is encrypted", &sql)?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use openssl::symm::decrypt;

    use super::*;

    #[test]
    fn keys_are_encrypted_as_openssl_does_it() {
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
    fn keys_are_for_their_owner_only_and_in_no_option() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let keys = place.path().join("keys");
        make_keys(Engine::MariaDb, &keys, RunAs::Ourselves).unwrap();
        let password = fs::read_to_string(keys.join(KEYS_PASSWORD_FILE)).unwrap();
        for name in [KEYS_FILE, KEYS_PASSWORD_FILE] {
            assert_eq!(fs::metadata(keys.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let native = Native { keys: &keys, plugins: Path::new("/plugins"), component: &keys, fresh: true };
        let told = format!("{:?}", options(Engine::MariaDb, native));
        assert_eq!(password.len(), 2 * KEY_BYTES);
        assert!(told.contains("FORCE") && !told.contains(&password), "{told}");
    }
}
