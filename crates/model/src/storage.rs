//! What private servers' files lie on.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;

/// What private servers' files lie on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// The disk of the scratch directory.
    #[default]
    Disk,
    /// Memory: what reading and writing costs there has no disk in it.
    Tmpfs,
}

/// A storage that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected disk or tmpfs")]
pub struct StorageError;

impl Storage {
    /// Whether it is the one where nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Disk => "disk",
            Self::Tmpfs => "tmpfs",
        })
    }
}

impl FromStr for Storage {
    type Err = StorageError;

    fn from_str(text: &str) -> Result<Self, StorageError> {
        [Self::Disk, Self::Tmpfs].into_iter().find(|storage| storage.to_string() == text).ok_or(StorageError)
    }
}

as_text!(Storage);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_read_as_it_is_written() {
        for text in ["disk", "tmpfs"] {
            assert_eq!(text.parse::<Storage>().map(|storage| storage.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "ramfs", "Disk"] {
            assert_eq!(text.parse::<Storage>(), Err(StorageError));
        }
        assert!(Storage::Disk.is_default() && !Storage::Tmpfs.is_default());
    }
}
