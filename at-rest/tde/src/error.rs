//! Errors of keys and of file operations.

use std::io;
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;

/// An error number of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// `EIO`: a file has invalid content, or a cipher failed.
    pub const IO: Self = Self(5);
    /// `ENOSPC`.
    pub const NO_SPACE: Self = Self(28);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cipher failed")]
pub struct CipherFailed;

impl From<ErrorStack> for CipherFailed {
    fn from(_: ErrorStack) -> Self {
        Self
    }
}

impl From<CipherFailed> for Errno {
    fn from(_: CipherFailed) -> Self {
        Self::IO
    }
}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> Self {
        Self::from_raw_os_error(error.0)
    }
}

/// Adds verb and path to an error of the operating system.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, KeyError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str, path: &Path) -> Result<T, KeyError> {
        self.map_err(|error| KeyError::Io { doing, path: path.to_owned(), error: error.into() })
    }
}

/// What to do with a cluster of another version.
pub(crate) const OTHER_VERSION_ADVICE: &str = "use the ciphertoll that encrypted the cluster, or decrypt it with that \
                                               one (`ciphertoll tde convert --decrypt`) and encrypt the copy with this one";

/// Errors of keys, key files and sealing.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("key file {0} not found: the cluster is not encrypted, or its key file was lost")]
    Missing(PathBuf),
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// A verb, such as `read`.
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// The file is not a key file, is incomplete, or was changed.
    #[error("the key file is damaged: {0}")]
    Damaged(&'static str),
    /// The key file was written by a version of ciphertoll with another format.
    #[error(
        "the key file has {0}; this ciphertoll supports only version 3 with AES-256-XTS: {OTHER_VERSION_ADVICE}"
    )]
    OtherVersion(String),
    #[error("wrong key-encryption key for this key file")]
    WrongKey,
    #[error("cannot read the groups of this process: {0}")]
    Groups(io::Error),
    #[error("the key-encryption key must be 64 hexadecimal digits, optionally followed by one newline")]
    Malformed,
    /// The file with the key-encryption key can be accessed by other users.
    #[error(
        "{path} is not private: mode {mode:04o}, user {owner}, group {group}; a file with a key-encryption key must have \
         mode 0400, 0600, 0440 or 0640; if its group can read it, its user must be root or the current one, and its group \
         root or one of the current ones: chmod 600"
    )]
    Exposed { path: PathBuf, mode: u32, owner: u32, group: u32 },
    #[error("the command for the key-encryption key {0}")]
    Command(String),
    #[error("a server is running in {data} (process {process}): stop it first, `pg_ctl -D {data} stop`")]
    Running {
        data: PathBuf,
        /// The postmaster's process ID.
        process: u32,
    },
    /// There is nothing in the directory that these keys could verify.
    #[error("cannot verify {data}: {why}")]
    NotVerifiable { data: PathBuf, why: &'static str },
    #[error("cannot allocate memory for keys: {0}")]
    Memory(io::Error),
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] ErrorStack),
    #[error(transparent)]
    Cipher(#[from] CipherFailed),
}
