//! The storage of private servers' files.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;

/// The storage of private servers' files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// The disk of the scratch directory.
    #[default]
    Disk,
    /// tmpfs: I/O without a disk.
    Tmpfs,
}

/// The text is not a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected disk or tmpfs")]
pub struct StorageError;

impl Storage {
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
    fn a_storage_prints_in_the_format_it_is_parsed_from() {
        for text in ["disk", "tmpfs"] {
            assert_eq!(text.parse::<Storage>().map(|storage| storage.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "ramfs", "Disk"] {
            assert_eq!(text.parse::<Storage>(), Err(StorageError));
        }
        assert!(Storage::Disk.is_default() && !Storage::Tmpfs.is_default());
    }
}
