//! What can go wrong with keys, and how a file operation fails.

use std::io;
use std::path::PathBuf;

use openssl::error::ErrorStack;

/// The number of an operating system's error: what a server's call answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// A file that is not what it should be, or a cipher that fails.
    pub const IO: Self = Self(5);
    /// No space is left.
    pub const NO_SPACE: Self = Self(28);
}

/// A cipher could not be made, or would not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cipher fails")]
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

/// A key or a key file that does not serve.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key file is missing.
    #[error("there is no key file {0}: the cluster is not encrypted, or its key file was lost")]
    Missing(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is none of ours, is torn, or was changed.
    #[error("the key file is damaged: {0}")]
    Damaged(&'static str),
    /// A later version wrote it.
    #[error("the key file has version {0}; this program knows 1 and 2")]
    Newer(u16),
    /// The key-encryption key is another one.
    #[error("the key-encryption key is not the one that this key file was made with")]
    WrongKey,
    /// The system does not say which groups this process is in.
    #[error("cannot read the groups of this process: {0}")]
    Groups(io::Error),
    /// The key-encryption key is not 64 hexadecimal digits.
    #[error("the key-encryption key must be 64 hexadecimal digits, and nothing after them but a newline")]
    Malformed,
    /// Users other than the owner can read or write the file that holds the key-encryption key.
    #[error(
        "{path} is not private: mode {mode:04o}, user {owner}, group {group}; a file with a key-encryption key must have \
         mode 0400, 0600, 0440 or 0640; if its group can read it, its user must be root or the current one, and its group \
         root or one of the current ones: chmod 600"
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its user ID.
        owner: u32,
        /// Its group ID.
        group: u32,
    },
    /// The command that tells the key-encryption key failed.
    #[error("the command for the key-encryption key {0}")]
    Command(String),
    /// A server is running where none may.
    #[error("a server is running in {data} (process {process}): stop it first, `pg_ctl -D {data} stop`")]
    Running {
        /// The data directory.
        data: PathBuf,
        /// The postmaster's process ID.
        process: u32,
    },
    /// A file of the cluster is not what PostgreSQL writes.
    #[error("cannot seal {path}: {why}")]
    BadCluster {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system gives no memory for keys.
    #[error("cannot allocate memory for keys: {0}")]
    Memory(io::Error),
    /// OpenSSL refuses.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] ErrorStack),
    /// The cipher of pages refuses.
    #[error(transparent)]
    Cipher(#[from] CipherFailed),
}
