//! The password in the option file of MySQL's or MariaDB's clients, and in the files that it includes.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_model::Engine;
use ciphertoll_wire::mysql::option_file::{Directive, OptionFile, PasswordSetting};

use crate::progress::tell;

/// Permission bits of group and others, which a password file must not have.
pub(super) const OTHERS: u32 = 0o077;

/// The clients' limit.
const MAX_DEPTH: usize = 10;
const OTHERS_CAN_WRITE: u32 = 0o002;
const EXTENSION: &str = "cnf";

/// The groups that every client of an engine reads. Clients have further ones for themselves, such as `mysql`.
fn groups(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::MariaDb => &["client", "client-server", "client-mariadb"],
        Engine::MySql | Engine::Postgres | Engine::MongoDb | Engine::FerretDb => &["client"],
    }
}

/// The password that the clients of `engine` would use with the file `bytes`, which was read from `path`. `None` also if
/// they would ask for it, and, with a warning, if they would not start or if it is unclear which one they use.
pub(super) fn password(engine: Engine, path: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader { groups: groups(engine), setting: None };
    match reader.read(path, bytes, Access::Private, 0) {
        Ok(()) => match reader.setting? {
            PasswordSetting::Password(password) => Some(password),
            PasswordSetting::Ask => None,
        },
        Err(Stop::File(reason) | Stop::Everything(reason)) => {
            tell(&format!("{} is ignored: {reason}", path.display()));
            None
        }
    }
}

struct Reader {
    groups: &'static [&'static str],
    /// The last one wins.
    setting: Option<PasswordSetting>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Private,
    /// Other users can read the file.
    Public,
}

/// Why a file is not read to its end.
enum Stop {
    /// The clients continue with the including file.
    File(String),
    Everything(String),
}

impl Reader {
    fn read(&mut self, path: &Path, bytes: &[u8], access: Access, depth: usize) -> Result<(), Stop> {
        let mut is_ours = false;
        for (line, directive) in OptionFile::new(bytes) {
            let place = || format!("{}, line {line}", path.display());
            match directive.map_err(|fault| Stop::File(format!("{}: {fault}", place())))? {
                Directive::Group(name) => {
                    is_ours = self.groups.iter().any(|group| name.eq_ignore_ascii_case(group.as_bytes()));
                }
                Directive::Option { name, value } if is_ours => {
                    let setting = PasswordSetting::of(&name, value.as_deref());
                    if setting.is_some() && access == Access::Public {
                        let reason = "others can read this password; run chmod 600 on the file";
                        return Err(Stop::Everything(format!("{}: {reason}", place())));
                    }
                    self.setting = setting.or_else(|| self.setting.take());
                }
                Directive::Option { .. } => {}
                Directive::Include(_) | Directive::IncludeDirectory(_) if depth >= MAX_DEPTH => {
                    tell(&format!(
                        "{}: skipped, since more than {MAX_DEPTH} files include each other",
                        place()
                    ));
                }
                Directive::Include(file) => self.include(&expanded(&file), depth + 1)?,
                Directive::IncludeDirectory(directory) => {
                    let directory = expanded(&directory);
                    let files = files_of(&directory).map_err(|error| {
                        Stop::File(format!("{}: cannot read the directory: {error}", place()))
                    })?;
                    self.include_all(&directory, &files, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// A file that does not exist or cannot be read is no error to the clients.
    fn include(&mut self, path: &Path, depth: usize) -> Result<(), Stop> {
        let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
        if metadata.is_file() && metadata.mode() & OTHERS_CAN_WRITE != 0 {
            tell(&format!("{} is ignored because others can write to it", path.display()));
            return Ok(());
        }
        // Unlike the clients, we do not wait for a pipe.
        let Some(bytes) = Some(()).filter(|()| metadata.is_file()).and_then(|()| fs::read(path).ok()) else {
            return Ok(());
        };
        match self.read(path, &bytes, access(&metadata), depth) {
            Err(Stop::File(reason)) => {
                tell(&format!("ignored: {reason}"));
                Ok(())
            }
            other => other,
        }
    }

    /// The clients read the files of a directory in the order in which the file system lists them.
    fn include_all(&mut self, directory: &Path, files: &[PathBuf], depth: usize) -> Result<(), Stop> {
        let before = self.setting.take();
        let mut found: Option<PasswordSetting> = None;
        for file in files {
            self.include(file, depth)?;
            match (self.setting.take(), &found) {
                (Some(new), Some(known)) if new != *known => {
                    let reason = "several files set different passwords, and their order is not defined";
                    return Err(Stop::Everything(format!("{}: {reason}", directory.display())));
                }
                (Some(new), _) => found = Some(new),
                (None, _) => {}
            }
        }
        self.setting = found.or(before);
        Ok(())
    }
}

fn access(metadata: &Metadata) -> Access {
    if metadata.mode() & OTHERS == 0 { Access::Private } else { Access::Public }
}

/// A path whose `~/` is the home directory.
fn expanded(path: &[u8]) -> PathBuf {
    match (path.strip_prefix(b"~/"), env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(OsStr::from_bytes(rest)),
        _ => PathBuf::from(OsStr::from_bytes(path)),
    }
}

fn files_of(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // A hidden file `.cnf` has no extension to this library, but to the clients.
        if path.extension().is_some_and(|extension| extension == EXTENSION) || path.ends_with(".cnf") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
