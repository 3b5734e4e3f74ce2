//! Pages, logs and temporary files that a server encrypts itself.

mod component;
pub(crate) mod mariadb;
pub(crate) mod mysql;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::user::RunAs;
use ciphertoll_net::blocking::Client;

use crate::datasets::sysbench;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::control;

/// New data directories are small, so it usually takes a moment.
const ENCRYPTION_LIMIT: Duration = Duration::from_mins(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Keys and plugins of a server that encrypts its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeKeys<'a> {
    pub(crate) keys: &'a Path,
    pub(crate) plugins: &'a Path,
    /// Files that MySQL expects in the directory of its program.
    pub(crate) component: &'a Path,
    /// Whether the data directory is new, so that existing tables must be encrypted at once.
    pub(crate) fresh: bool,
}

pub(crate) struct NativeProperties {
    /// Suffix of the names of encrypted templates.
    pub(crate) template_suffix: &'static str,
    /// A build needs one of these files in its plugin directory; errors name the first.
    pub(crate) plugin_files: &'static [&'static str],
    /// What to do if the plugin is missing, in errors.
    pub(crate) how_to_get: &'static str,
    /// Settings that encrypt everything that the engine can encrypt; they are verified at run time. There is no binary log.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

/// How an engine encrypts its own files.
pub(crate) trait NativeEncryption: Sync {
    fn properties(&self) -> NativeProperties;

    /// The same in the output of `doctor`.
    fn doctor_advice(&self) -> String;

    /// Writes keys to an empty directory, unless the server does it.
    fn create_keys(&self, directory: &Path, owner: RunAs) -> Result<(), Error>;

    fn program(&self, build: &Build, _keys: NativeKeys<'_>) -> Result<PathBuf, Error> {
        Ok(build.server_program.clone())
    }

    fn plugin_directory(&self, keys: NativeKeys<'_>) -> PathBuf {
        keys.plugins.to_owned()
    }

    /// Options that load the plugin and name the keys.
    fn options(&self, keys: NativeKeys<'_>) -> Vec<(&'static str, String)>;

    fn encrypt_system_tables(&self, _client: &mut Client) -> Result<(), Error> {
        Ok(())
    }

    /// A query for the names of tablespaces with unencrypted pages, except temporary ones, which the server does not report.
    fn unencrypted_tablespaces(&self, condition: &str) -> String;
}

/// The plugin directory of `build`. Fails if the build cannot encrypt its own files.
pub(crate) fn find_plugins(encryption: &dyn NativeEncryption, build: &Build) -> Result<PathBuf, Error> {
    const DIRECTORIES: [&str; 4] =
        ["lib/mysql/plugin", "lib/plugin", "lib64/mysql/plugin", "lib/mariadb/plugin"];
    let NativeProperties { plugin_files: files, how_to_get: advice, .. } = encryption.properties();
    let has_plugin = |directory: &&PathBuf| files.iter().any(|file| directory.join(file).is_file());
    let candidates: Vec<PathBuf> =
        DIRECTORIES.iter().map(|directory| build.base_directory.join(directory)).collect();
    candidates.iter().find(has_plugin).cloned().ok_or_else(|| {
        let existing = candidates.iter().find(|directory| directory.is_dir()).or(candidates.first());
        let directory = existing.map_or_else(String::new, |directory| directory.display().to_string());
        let (name, file) = (build.name(), files.first().copied().unwrap_or_default());
        Error::AtRestUnavailable(format!(
            "{name} cannot encrypt its own files: its plugin {file} is not in {directory}; {advice}"
        ))
    })
}

pub(crate) fn create_keys(
    encryption: &dyn NativeEncryption,
    directory: &Path,
    owner: RunAs,
) -> Result<(), Error> {
    files::make_directory(directory, PRIVATE_DIRECTORY, owner)?;
    encryption.create_keys(directory, owner)
}

pub(crate) fn options(
    encryption: &dyn NativeEncryption,
    keys: NativeKeys<'_>,
) -> Vec<(&'static str, Option<String>)> {
    let mut options = encryption.options(keys);
    options.push(("plugin-dir", encryption.plugin_directory(keys).display().to_string()));
    options.extend(encryption.properties().settings.iter().map(|&(name, value)| (name, value.to_owned())));
    options.into_iter().map(|(name, value)| (name, Some(value))).collect()
}

/// Encrypts existing tables, and waits until that is done.
pub(crate) fn wait_until_encrypted(
    client: &mut Client,
    encryption: &dyn NativeEncryption,
) -> Result<(), Error> {
    encryption.encrypt_system_tables(client)?;
    let deadline = Instant::now() + ENCRYPTION_LIMIT;
    loop {
        let left = unencrypted_tablespaces(client, encryption, "")?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let left = left.join(", ");
            return Err(Error::NotEncrypted(format!("not encrypted after {ENCRYPTION_LIMIT:?}: {left}")));
        }
        thread::sleep(CHECK_INTERVAL);
    }
}

/// What the server reports as unencrypted: a setting, or a table of clients.
pub(crate) fn find_unencrypted(
    client: &mut Client,
    encryption: &dyn NativeEncryption,
) -> Result<Option<String>, Error> {
    let settings = encryption.properties().settings;
    let names: Vec<String> = settings.iter().map(|(name, _)| format!("'{name}'")).collect();
    let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
    let rows = control::query(client, "check the server's encryption", &sql)?;
    let values: BTreeMap<String, String> = rows
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[name, value]| (name, value))
        .collect();
    let off = settings.iter().find(|(name, _)| {
        let value = values.get(*name);
        value.is_none_or(|value| ["OFF", "0", "FALSE"].contains(&value.to_ascii_uppercase().as_str()))
    });
    if let Some((name, _)) = off {
        let value = values.get(*name).map_or("missing", String::as_str);
        return Ok(Some(format!("{name} is {value}")));
    }
    let condition = format!(" AND t.name LIKE '{}/%'", sysbench::SCHEMA);
    let tables = unencrypted_tablespaces(client, encryption, &condition)?;
    Ok((!tables.is_empty()).then(|| format!("not encrypted: {}", tables.join(", "))))
}

fn unencrypted_tablespaces(
    client: &mut Client,
    encryption: &dyn NativeEncryption,
    condition: &str,
) -> Result<Vec<String>, Error> {
    let sql = encryption.unencrypted_tablespaces(condition);
    let rows = control::query(client, "check the server's encryption", &sql)?;
    Ok(rows.into_iter().flatten().collect())
}
