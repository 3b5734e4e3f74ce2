//! The arguments that say where a cluster, its key file and its key-encryption key are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ciphertoll_model::ExitCode;
use ciphertoll_tde::{CipherKind, Kek, KekSource, KeyError, KeyFile};
use clap::Args;

use crate::arguments::Choice;
use crate::failure::Failure;

#[derive(Args, Debug)]
pub(super) struct ClusterArguments {
    /// The data directory
    #[arg(short = 'D', long, value_name = "DIR")]
    pub(super) data: PathBuf,
    /// The key file [default: DIR.tde]
    #[arg(long, value_name = "FILE")]
    pub(super) keys: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct KeyArguments {
    /// The file with the key-encryption key, readable only by its owner or its group; or an open pipe, /dev/fd/3
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// A shell command that prints the key-encryption key
    #[arg(long, value_name = "COMMAND")]
    pub(super) key_command: Option<OsString>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(super) struct NewKeyArguments {
    /// The file with the new key-encryption key; the rules of --key-file apply
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// A shell command that prints the new key-encryption key
    #[arg(long, value_name = "COMMAND")]
    new_key_command: Option<OsString>,
}

pub(super) const CIPHERS: [Choice<CipherKind>; 1] = [("aes-256-xts", "", CipherKind::Aes256)];

impl ClusterArguments {
    pub(super) fn data(&self) -> Result<PathBuf, Failure> {
        std::path::absolute(&self.data).map_err(|error| host(&self.data, &error))
    }

    pub(super) fn keys(&self) -> Result<PathBuf, Failure> {
        match &self.keys {
            Some(path) => std::path::absolute(path).map_err(|error| host(path, &error)),
            None => self.data().map(|data| KeyFile::path_beside(&data)),
        }
    }
}

impl KeyArguments {
    pub(super) fn read(&self) -> Result<Kek, Failure> {
        read_key(self.key_file.as_ref(), self.key_command.as_ref())
    }
}

impl NewKeyArguments {
    pub(super) fn read(&self) -> Result<Kek, Failure> {
        read_key(self.new_key_file.as_ref(), self.new_key_command.as_ref())
    }
}

fn read_key(file: Option<&PathBuf>, command: Option<&OsString>) -> Result<Kek, Failure> {
    let source = match (file, command) {
        (Some(path), _) => KekSource::File(path.clone()),
        (None, Some(command)) => KekSource::Command(command.clone()),
        (None, None) => return Err(Failure::usage("no key-encryption key: give a file or a command")),
    };
    Ok(source.read()?)
}

pub(super) fn host(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(ExitCode::HostResource, format!("{}: {error}", path.display()))
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let code = match error {
            KeyError::Io { .. } => ExitCode::HostResource,
            KeyError::NotVerifiable { .. } => ExitCode::NotEncrypted,
            KeyError::OpenSsl(_) | KeyError::Cipher(_) => ExitCode::Internal,
            _ => ExitCode::Usage,
        };
        Self::new(code, error.to_string())
    }
}
