//! The storage of private servers' files.

use std::fmt;
use std::str::FromStr;

use crate::factor::as_text;
use crate::labelled;

labelled! {
    /// The storage of private servers' files.
    #[derive(Default)]
    pub enum Storage {
        /// The disk of the scratch directory.
        #[default]
        Disk = "disk",
        /// tmpfs: I/O without a disk.
        Tmpfs = "tmpfs",
    }
}

/// The text is not a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected disk or tmpfs")]
pub struct StorageError;

impl fmt::Display for Storage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for Storage {
    type Err = StorageError;

    fn from_str(text: &str) -> Result<Self, StorageError> {
        Self::ALL.into_iter().find(|storage| storage.label() == text).ok_or(StorageError)
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
    }
}
